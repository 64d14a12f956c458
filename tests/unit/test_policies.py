"""Nonsense in a retry policy: refused where it's defined, and never a wait without an end where it's code of the user's."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from aioqueue import ConfigurationError, Exponential, Fixed, Linear, Registry, Retry, Steps
from aioqueue.vocabulary._retry import LONGEST_WAIT_SECONDS
from aioqueue.vocabulary._time import seconds

HUGE = 10**5_000  # has no text: the interpreter refuses to print integers of over 4,300 digits


@dataclass
class Answers:
    """A backoff of the user's."""

    answer: Any

    def delay(self, attempt: int) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def encode(self) -> dict[str, Any]:
        return {"kind": "mine"}


class Wrong(float):
    """A number that lies."""

    def __float__(self) -> float:
        raise OverflowError("no")


NOT_A_BACKOFF: list[Any] = [5, None, 2.5, timedelta(seconds=5), "exponential", Exponential, lambda attempt: 5, [1, 2], {}]


@pytest.mark.parametrize("backoff", NOT_A_BACKOFF, ids=lambda backoff: type(backoff).__name__)
def test_what_is_no_backoff_is_refused_with_the_way_out(backoff: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"backoff must be Exponential.*Fixed\(5\)"):
        Retry(backoff=backoff)


def test_a_backoff_of_ones_own_is_taken() -> None:
    assert Retry(backoff=Answers(3), jitter=0).delay(1) == 3


BAD: list[Any] = [
    lambda: Exponential(factor=HUGE),
    lambda: Exponential(factor="2"),
    lambda: Exponential(factor=None),
    lambda: Exponential(factor=True),
    lambda: Exponential(factor=math.inf),
    lambda: Exponential(factor=timedelta(seconds=2)),
    lambda: Exponential(initial=HUGE),
    lambda: Exponential(initial="10"),
    lambda: Exponential(initial=None),
    lambda: Exponential(maximum=math.nan),
    lambda: Exponential(maximum=timedelta(days=367)),
    lambda: Exponential(maximum=timedelta.max),
    lambda: Linear(increment=-1),
    lambda: Linear(increment="1"),
    lambda: Linear(maximum=LONGEST_WAIT_SECONDS + 1),
    lambda: Fixed(HUGE),
    lambda: Fixed(timedelta(days=400)),
    lambda: Fixed(None),
    lambda: Steps(1, math.inf),
    lambda: Steps(1, None),
    lambda: Steps(LONGEST_WAIT_SECONDS * 2),
    lambda: Retry(max_attempts=HUGE),
    lambda: Retry(max_attempts="3"),
    lambda: Retry(jitter=math.nan),
    lambda: Retry(jitter=HUGE),
    lambda: Retry(jitter=None),
    lambda: Retry(retry_on=5),
    lambda: Retry(retry_on=None),
    lambda: Retry(fail_on="ValueError"),
    lambda: Retry(fail_on=(ValueError("no"),)),
    lambda: Retry(backoff=Answers(1), fail_on=(int,)),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_nonsense_is_refused_where_it_is_defined(number: int) -> None:
    """Whatever it is: not with an error that says nothing, such as `OverflowError` or that an integer has no text."""
    with pytest.raises(ConfigurationError):
        BAD[number]()


def test_the_longest_wait_is_taken() -> None:
    year = timedelta(days=366)
    for backoff in (Fixed(year), Steps(year), Exponential(initial=year, maximum=year), Linear(initial=year, maximum=year)):
        assert Retry(backoff=backoff, jitter=1).delay(32_000) <= LONGEST_WAIT_SECONDS == year.total_seconds()


def test_real_numbers_of_other_kinds_count() -> None:
    backoff = Exponential(initial=Fraction(1, 2), factor=Fraction(3))
    assert (backoff.delay(2), type(backoff.factor), type(backoff.initial)) == (1.5, float, float)


def test_a_large_attempt_number_does_not_freeze_an_integer_factor() -> None:
    """The powers of an integer are exact: `5 ** 10_000_000` takes minutes, and memory, and the event loop with it."""
    policies: list[Any] = [Exponential(initial=1, factor=5), Exponential(initial=0, factor=5), Linear(1, 1)]
    began = time.process_time()
    for attempt in (10_000_000, 2**31 - 1, 2**63, 10**400):
        assert [each.delay(attempt) for each in policies[:2]] == [3600, 0]
    assert policies[2].delay(2**63) == 3600
    assert Steps(1, 2).delay(2**63) == 2
    assert Steps(1, 2).delay(-5) == 1
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (timedelta(seconds=0.5), 0.5),
        (timedelta(days=500), LONGEST_WAIT_SECONDS),
        (timedelta.max, LONGEST_WAIT_SECONDS),
        (0, 0),
        (7, 7),
        (Fraction(1, 4), 0.25),
        (1e300, LONGEST_WAIT_SECONDS),
        (HUGE, LONGEST_WAIT_SECONDS),
        (sys.float_info.max, LONGEST_WAIT_SECONDS),
    ],
    ids=["timedelta", "long timedelta", "longest timedelta", "zero", "int", "fraction", "large", "huge int", "largest float"],
)
def test_waits_that_a_backoff_of_ones_own_may_give(answer: Any, wait: float) -> None:
    given = Retry(backoff=Answers(answer), jitter=0).delay(1)
    assert (given, type(given)) == (wait, float)
    assert 0 <= Retry(backoff=Answers(answer), jitter=1).delay(1) <= LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    "answer",
    [math.nan, math.inf, -math.inf, -5, -HUGE, None, "3", True, [], timedelta(seconds=-1), Wrong(2)],
    ids=lambda answer: type(answer).__name__,
)
def test_what_is_no_wait_is_told_as_such(answer: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Answers\.delay\(1\) gave .* which isn't a wait"):
        Retry(backoff=Answers(answer)).delay(1)


def test_a_backoff_that_encodes_itself_as_no_json_is_told_where_it_is_enqueued() -> None:
    class Odd(Answers):
        def encode(self) -> dict[str, Any]:
            return {"kind": object()}

    registry = Registry()

    @registry.job(retry=Retry(backoff=Odd(1)))
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match=r"Odd\.encode\(\) gave what isn't JSON"):
        work().to_new_job()


@pytest.mark.parametrize(
    "stored",
    [
        b'{"max_attempts":3,"jitter":0,"backoff":{"kind":"exponential","initial":1,"factor":"x","maximum":5}}',
        b'{"max_attempts":3,"jitter":0,"backoff":{"kind":"fixed","interval":1e300}}',
        b'{"max_attempts":3,"jitter":0,"backoff":{"kind":"fixed","interval":' + b"9" * 400 + b"}}",
        b'{"max_attempts":3,"jitter":0,"backoff":{"kind":["fixed"],"interval":1}}',
        b'{"max_attempts":3,"jitter":0,"backoff":{"kind":"steps","intervals":5}}',
        b'{"max_attempts":3,"jitter":0,"backoff":null}',
        b"[]",
        b"5",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_stored_policy_that_is_none_is_told_as_such(stored: bytes) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        Retry.decode(stored)


@pytest.mark.parametrize("value", [HUGE, -HUGE, Wrong(2), 10**400], ids=["huge", "-huge", "lies", "large"])
def test_durations_that_have_no_text_are_refused_too(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        seconds(value, "delay")
