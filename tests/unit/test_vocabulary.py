"""Retry policies, durations, ids, and what is stored of errors."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aioqueue import ConfigurationError, Exponential, Fixed, JobState, Linear, Retry, Steps
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, StoredState
from aioqueue.vocabulary._time import aware, seconds


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Exponential(), [10, 20, 40, 80]),
        (Exponential(initial=1, factor=3, maximum=5), [1, 3, 5, 5]),
        (Exponential(initial=timedelta(seconds=2), maximum=timedelta(hours=1)), [2, 4, 8, 16]),
        (Linear(5), [5, 10, 15, 20]),
        (Linear(initial=1, increment=2, maximum=4), [1, 3, 4, 4]),
        (Fixed(7), [7, 7, 7, 7]),
        (Steps(60, timedelta(minutes=5)), [60, 300, 300, 300]),
    ],
    ids=repr,
)
def test_backoffs(backoff: Any, delays: list[float]) -> None:
    assert [backoff.delay(attempt) for attempt in range(1, 5)] == delays
    policy = Retry(max_attempts=3, backoff=backoff, jitter=0)
    again = Retry.decode(policy.encode())
    assert [again.delay(attempt) for attempt in range(1, 5)] == delays
    assert again == policy


def test_backoffs_do_not_overflow() -> None:
    assert Exponential(initial=1, factor=10).delay(100_000) == 3600
    assert Exponential(initial=0, factor=10).delay(100_000) == 0


def test_jitter_stays_within_its_bounds() -> None:
    policy = Retry(backoff=Fixed(100), jitter=0.2)
    assert all(80 <= policy.delay(1) <= 120 for _ in range(200))
    assert len({policy.delay(1) for _ in range(20)}) > 1


BAD: list[Any] = [
    lambda: Exponential(initial=-1),
    lambda: Exponential(factor=0.5),
    lambda: Exponential(factor=float("nan")),
    lambda: Linear(initial=-1),
    lambda: Fixed(float("inf")),
    lambda: Steps(),
    lambda: Steps(-1),
    lambda: Retry(max_attempts=0),
    lambda: Retry(max_attempts=True),
    lambda: Retry(max_attempts=40_000),
    lambda: Retry(max_attempts=1.5),
    lambda: Retry(jitter=2),
    lambda: Retry(jitter=-0.1),
    lambda: Retry(retry_on=(5,)),
    lambda: Retry(retry_on=(OSError,), fail_on=(OSError,)),
    lambda: Retry.decode(b"{"),
    lambda: Retry.decode(b"{}"),
    lambda: Retry.decode(b'{"max_attempts":3,"jitter":0,"backoff":{"kind":"odd"}}'),
]


@pytest.mark.parametrize("make", BAD)
def test_bad_policies_are_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_which_errors_are_retried() -> None:
    assert Retry().retries(ValueError())
    only = Retry(retry_on=(OSError,), fail_on=(ConnectionError,))
    assert only.retries(TimeoutError())
    assert not only.retries(ConnectionResetError())
    assert not only.retries(ValueError())
    assert Retry(retry_on=OSError).retry_on == (OSError,)


def test_durations() -> None:
    assert seconds(5, "delay") == 5.0
    assert seconds(timedelta(minutes=1), "delay") == 60.0
    for wrong in (-1, float("nan"), float("inf"), 1e12, True, "5", None):
        with pytest.raises(ConfigurationError, match="delay"):
            seconds(wrong, "delay")
    with pytest.raises(ConfigurationError):
        seconds(0, "timeout", positive=True)


def test_points_in_time() -> None:
    moment = datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    assert aware(moment, "at") == moment
    assert aware(moment, "at").tzinfo is UTC
    with pytest.raises(ConfigurationError, match="no time zone"):
        aware(datetime(2030, 1, 1), "at")
    with pytest.raises(ConfigurationError, match="out of range"):
        aware(datetime.min.replace(tzinfo=timezone(timedelta(hours=9))), "at")
    with pytest.raises(ConfigurationError):
        aware("2030-01-01", "at")


def test_ids_grow_and_differ_between_threads() -> None:
    made: list[list[int]] = []

    def make() -> None:
        made.append([new_id().int for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for ids in made for each in ids}) == 6000
    one = [new_id() for _ in range(10_000)]
    assert one == sorted(one)
    assert {each.version for each in one} == {7}
    assert {each.variant for each in one} == {"specified in RFC 4122"}


def test_states() -> None:
    assert StoredState.PENDING.shown(due=True) is JobState.READY
    assert StoredState.PENDING.shown(due=False) is JobState.SCHEDULED
    assert StoredState.FAILED.shown(due=True) is JobState.FAILED
    assert [state for state in JobState if state.finished] == ["completed", "continued", "failed", "cancelled"]


def test_error_entries_are_read_as_well_as_can_be() -> None:
    entry = AttemptError(attempt=2, at=datetime(2030, 1, 1, tzinfo=UTC), type="ValueError", message="no")
    import json

    assert AttemptError.decode(json.loads(entry.encode())) == entry
    assert str(entry) == "ValueError: no"
    assert AttemptError.decode(5).message == "5"
    odd = AttemptError.decode({"attempt": "x", "at": "never", "type": 3})
    assert (odd.attempt, odd.type, odd.message) == (0, "3", "")
