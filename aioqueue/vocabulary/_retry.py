"""Retry policies: whether a failed job is tried again, and when. They are stored with jobs, and read by workers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._exits import members
from aioqueue.vocabulary._safe_text import safe_repr, safe_str, type_name
from aioqueue.vocabulary._time import number_of_seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LONGEST_WAIT_SECONDS", "MOST_ATTEMPTS", "Backoff", "Exponential", "Fixed", "Linear", "Retry", "Steps"]

_DEFAULT_JITTER = 0.2

MOST_ATTEMPTS = 32_767
"""The largest number that the stores' column for it holds."""

LONGEST_WAIT_SECONDS = 366 * 86_400.0
"""Seconds that a policy can let a job wait: 366 days."""


class Backoff(Protocol):
    """How long to wait after a failed attempt: `Exponential`, `Linear`, `Fixed`, `Steps`, or a class of your own.

    A policy stored with a job is one of the four: your own counts where it's given to the job type.
    """

    def delay(self, attempt: int) -> float | timedelta:
        """Seconds (or a timedelta) to wait after attempt number `attempt` (from 1), without jitter.

        At most 366 days are waited. Where it raises, or gives what isn't such a wait (negative, infinite, NaN, no number),
        an error is logged, and the job waits as long as the default policy says.
        """
        ...

    def encode(self) -> dict[str, Any]:
        """The policy as JSON values, as it is stored with a job. Of a class of your own it only has to be JSON."""
        ...


def _wait(value: float | timedelta, name: str) -> float:
    wait = seconds(value, name)
    if wait > LONGEST_WAIT_SECONDS:
        raise ConfigurationError(f"{name} must be at most 366 days, not {safe_repr(value)}")
    return wait


def _jitter(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ConfigurationError(f"jitter must be from 0 to 1, not {safe_repr(value)}")
    return float(value)


def _factor(value: object) -> float:
    number = None if isinstance(value, timedelta) else number_of_seconds(value)
    if number is None or not (math.isfinite(number) and number >= 1):
        raise ConfigurationError(f"factor must be a finite number of at least 1, not {safe_repr(value)}")
    return number  # a float: the powers of an integer are exact, and take for ever


def _is_backoff(value: object) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in ("delay", "encode"))


def _classes(value: object, name: str) -> tuple[type[BaseException], ...]:
    several = isinstance(value, (tuple, list, set, frozenset))
    given: tuple[object, ...] = tuple(cast("Iterable[object]", value)) if several else (value,)
    classes = tuple(each for each in given if isinstance(each, type) and issubclass(each, BaseException))
    if len(classes) < len(given):
        raise ConfigurationError(f"{name} takes exception classes, not {safe_repr(value)}")
    return classes


@dataclass(frozen=True, slots=True)
class Exponential:
    """`initial`, then `factor` times as long each time, at most `maximum`.

    Arguments:
        initial: Seconds or timedelta after the first attempt.
        factor: At least 1.
        maximum: Seconds or timedelta; at most 366 days.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    initial: float | timedelta = 10.0
    factor: float = 2.0
    maximum: float | timedelta = 3600.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", _wait(self.initial, "initial"))
        object.__setattr__(self, "factor", _factor(self.factor))
        object.__setattr__(self, "maximum", _wait(self.maximum, "maximum"))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        initial, maximum = seconds(self.initial, "initial"), seconds(self.maximum, "maximum")
        try:
            return min(initial * self.factor ** (attempt - 1), maximum)
        except OverflowError:
            return maximum if initial else 0.0

    def encode(self) -> dict[str, Any]:
        """The policy as JSON values, from which `Retry.decode` makes it again."""
        return {"kind": "exponential", "initial": self.initial, "factor": self.factor, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Linear:
    """`initial`, then `increment` longer each time, at most `maximum`.

    Arguments:
        initial: Seconds or timedelta after the first attempt.
        increment: Seconds or timedelta; by default as long as `initial`.
        maximum: Seconds or timedelta; at most 366 days.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    initial: float | timedelta = 10.0
    increment: float | timedelta | None = None
    maximum: float | timedelta = 3600.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", _wait(self.initial, "initial"))
        increment = self.initial if self.increment is None else self.increment
        object.__setattr__(self, "increment", _wait(increment, "increment"))
        object.__setattr__(self, "maximum", _wait(self.maximum, "maximum"))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        assert self.increment is not None
        step = seconds(self.increment, "increment")
        return min(seconds(self.initial, "initial") + step * (attempt - 1), seconds(self.maximum, "maximum"))

    def encode(self) -> dict[str, Any]:
        """The policy as JSON values, from which `Retry.decode` makes it again."""
        return {"kind": "linear", "initial": self.initial, "increment": self.increment, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same wait every time.

    Arguments:
        interval: Seconds or timedelta; at most 366 days.

    Raises:
        ConfigurationError: It is negative, not finite, or too long.
    """

    interval: float | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", _wait(self.interval, "interval"))

    def delay(self, attempt: int) -> float:  # noqa: ARG002 - the protocol's signature
        """Seconds to wait after any attempt, without jitter."""
        return seconds(self.interval, "interval")

    def encode(self) -> dict[str, Any]:
        """The policy as JSON values, from which `Retry.decode` makes it again."""
        return {"kind": "fixed", "interval": self.interval}


@dataclass(frozen=True, slots=True, init=False)
class Steps:
    """The given waits one after the other; the last repeats: `Steps(60, 300, 1800)`.

    Arguments:
        intervals: Seconds or timedeltas, each at most 366 days; at least one.

    Raises:
        ConfigurationError: There is none, or one is negative, not finite, or too long.
    """

    intervals: tuple[float, ...]

    def __init__(self, *intervals: float | timedelta) -> None:
        if not intervals:
            raise ConfigurationError("Steps() needs at least one interval, such as Steps(60, 300)")
        object.__setattr__(self, "intervals", tuple(_wait(each, "intervals") for each in intervals))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        return self.intervals[max(min(attempt, len(self.intervals)), 1) - 1]

    def encode(self) -> dict[str, Any]:
        """The policy as JSON values, from which `Retry.decode` makes it again."""
        return {"kind": "steps", "intervals": list(self.intervals)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What happens when an attempt fails.

    Arguments:
        max_attempts: How often the job may be started, the first time included; None for no limit.
        backoff: How long to wait in between; at most 366 days, whatever it says.
        jitter: By how much each wait is varied at random, as a fraction: 0.2 is ±20 %.
        retry_on: Only errors of these classes are retried; all, if it's empty.
        fail_on: Errors of these classes aren't retried.

    A class in both is a contradiction unless it is a subclass of one in the other: `fail_on` decides then.
    `retry_on` and `fail_on` are code, so they count on a job type only, and aren't stored with a call.

    Raises:
        ConfigurationError: A value is out of its range, or the two lists contradict each other.
    """

    max_attempts: int | None = 10
    backoff: Backoff = field(default_factory=Exponential)
    jitter: float = _DEFAULT_JITTER
    retry_on: tuple[type[BaseException], ...] = ()
    fail_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and (
            not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= MOST_ATTEMPTS
        ):
            raise ConfigurationError(
                f"max_attempts must be from 1 to {MOST_ATTEMPTS:,}, or None for no limit, not {safe_repr(attempts)}"
            )
        if not _is_backoff(self.backoff):
            raise ConfigurationError(
                f"backoff must be Exponential(...), Linear(...), Fixed(...), Steps(...) or an object with delay(attempt) and "
                f"encode(), not {safe_repr(self.backoff)}: Fixed(5) waits 5 seconds each time"
            )
        object.__setattr__(self, "jitter", _jitter(self.jitter))
        object.__setattr__(self, "retry_on", _classes(self.retry_on, "retry_on"))
        object.__setattr__(self, "fail_on", _classes(self.fail_on, "fail_on"))
        both = set(self.retry_on) & set(self.fail_on)
        if both:
            names = ", ".join(sorted(each.__name__ for each in both))
            raise ConfigurationError(f"{names} can't be both in retry_on and in fail_on")

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1), with jitter: from 0 to 366 days.

        Raises:
            ConfigurationError: The backoff gave what isn't a wait.
            BaseException: Whatever a backoff of the user's raises.
        """
        given: object = self.backoff.delay(attempt)
        if isinstance(given, int) and given > LONGEST_WAIT_SECONDS:  # it may be too large for a float
            return LONGEST_WAIT_SECONDS
        wait = number_of_seconds(given)
        if wait is None or not (math.isfinite(wait) and wait >= 0):
            raise ConfigurationError(f"{type_name(self.backoff)}.delay({attempt}) gave {safe_repr(given)}, which isn't a wait")
        if self.jitter:
            wait *= random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - not for secrets
        return min(wait, LONGEST_WAIT_SECONDS)

    def retries(self, error: BaseException) -> bool:
        """Whether an error of this class may be retried at all.

        Of a group of exceptions, such as an `asyncio.TaskGroup` raises, each one counts: it's retried if all of them may be.
        """
        if isinstance(error, self.fail_on):
            return False
        if isinstance(error, self.retry_on):
            return True
        inner = members(error)
        return all(self.retries(each) for each in inner) if inner else not self.retry_on

    def encode(self) -> bytes:
        """What is stored with a job: the numbers, not the classes.

        Raises:
            ConfigurationError: A backoff of the user's encodes itself as something that isn't JSON.
        """
        backoff = self.backoff.encode()
        try:
            return orjson.dumps({"max_attempts": self.max_attempts, "jitter": self.jitter, "backoff": backoff})
        except TypeError as error:
            raise ConfigurationError(f"{type_name(self.backoff)}.encode() gave what isn't JSON: {safe_str(error)}") from None

    @classmethod
    def decode(
        cls, stored: bytes, *, retry_on: tuple[type[BaseException], ...] = (), fail_on: tuple[type[BaseException], ...] = ()
    ) -> Retry:
        """Read what `encode` wrote.

        Raises:
            ConfigurationError: It isn't that.
        """
        try:
            value = orjson.loads(stored)
            backoff = dict(value["backoff"])
            make = _BACKOFFS[backoff.pop("kind")]
            made = make(*backoff["intervals"]) if make is Steps else make(**backoff)
            return cls(
                max_attempts=value["max_attempts"], jitter=value["jitter"], backoff=made, retry_on=retry_on, fail_on=fail_on
            )
        except Exception as error:  # noqa: BLE001 - classified: whatever is stored there isn't a policy
            raise ConfigurationError(f"a stored retry policy can't be read: {safe_repr(error)}") from None


_BACKOFFS: dict[str, Any] = {"exponential": Exponential, "linear": Linear, "fixed": Fixed, "steps": Steps}
