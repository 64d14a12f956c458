"""When a failed job is tried again: values only."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from aioqueue._time import seconds
from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Backoff", "Exponential", "Fixed", "Linear", "Retry", "Steps"]

_JITTER = 0.2


class Backoff(Protocol):
    """How long to wait after a failed attempt."""

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1), without jitter."""
        ...

    def encode(self) -> dict[str, Any]:
        """As stored."""
        ...


def _jitter(value: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ConfigurationError(f"jitter must be from 0 to 1, not {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Exponential:
    """`initial`, then `factor` times as long each time, at most `maximum`.

    Arguments:
        initial: Seconds or timedelta after the first attempt.
        factor: At least 1.
        maximum: Seconds or timedelta.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    initial: float | timedelta = 10.0
    factor: float = 2.0
    maximum: float | timedelta = 3600.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", seconds(self.initial, "initial"))
        object.__setattr__(self, "maximum", seconds(self.maximum, "maximum"))
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ConfigurationError(f"factor must be at least 1, not {self.factor!r}")

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        initial, maximum = seconds(self.initial, "initial"), seconds(self.maximum, "maximum")
        try:
            return min(initial * self.factor ** (attempt - 1), maximum)
        except OverflowError:
            return maximum if initial else 0.0

    def encode(self) -> dict[str, Any]:
        """As stored."""
        return {"kind": "exponential", "initial": self.initial, "factor": self.factor, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Linear:
    """`initial`, then `increment` longer each time, at most `maximum`.

    Arguments:
        initial: Seconds or timedelta after the first attempt.
        increment: Seconds or timedelta; by default as long as `initial`.
        maximum: Seconds or timedelta.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    initial: float | timedelta = 10.0
    increment: float | timedelta | None = None
    maximum: float | timedelta = 3600.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", seconds(self.initial, "initial"))
        increment = self.initial if self.increment is None else self.increment
        object.__setattr__(self, "increment", seconds(increment, "increment"))
        object.__setattr__(self, "maximum", seconds(self.maximum, "maximum"))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        assert self.increment is not None
        step = seconds(self.increment, "increment")
        return min(seconds(self.initial, "initial") + step * (attempt - 1), seconds(self.maximum, "maximum"))

    def encode(self) -> dict[str, Any]:
        """As stored."""
        return {"kind": "linear", "initial": self.initial, "increment": self.increment, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same wait every time.

    Arguments:
        interval: Seconds or timedelta.

    Raises:
        ConfigurationError: It is negative or not finite.
    """

    interval: float | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", seconds(self.interval, "interval"))

    def delay(self, attempt: int) -> float:  # noqa: ARG002 - the protocol's signature
        """Seconds to wait after any attempt, without jitter."""
        return seconds(self.interval, "interval")

    def encode(self) -> dict[str, Any]:
        """As stored."""
        return {"kind": "fixed", "interval": self.interval}


@dataclass(frozen=True, slots=True, init=False)
class Steps:
    """The given waits one after the other; the last repeats: `Steps(60, 300, 1800)`.

    Arguments:
        intervals: Seconds or timedeltas; at least one.

    Raises:
        ConfigurationError: There is none, or one is negative or not finite.
    """

    intervals: tuple[float, ...]

    def __init__(self, *intervals: float | timedelta) -> None:
        if not intervals:
            raise ConfigurationError("Steps() needs at least one interval, such as Steps(60, 300)")
        object.__setattr__(self, "intervals", tuple(seconds(each, "intervals") for each in intervals))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, without jitter."""
        return self.intervals[min(attempt, len(self.intervals)) - 1]

    def encode(self) -> dict[str, Any]:
        """As stored."""
        return {"kind": "steps", "intervals": list(self.intervals)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What happens when an attempt fails.

    Arguments:
        max_attempts: How often the job may be started, the first time included; None for no limit.
        backoff: How long to wait in between.
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
    jitter: float = _JITTER
    retry_on: tuple[type[BaseException], ...] = ()
    fail_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and (
            not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= 32_767
        ):
            raise ConfigurationError(f"max_attempts must be from 1 to 32,767, or None for no limit, not {attempts!r}")
        object.__setattr__(self, "jitter", _jitter(self.jitter))
        for name in ("retry_on", "fail_on"):
            classes = getattr(self, name)
            classes = (classes,) if isinstance(classes, type) else tuple(classes)
            for each in classes:
                if not (isinstance(each, type) and issubclass(each, BaseException)):
                    raise ConfigurationError(f"{name} takes exception classes, not {each!r}")
            object.__setattr__(self, name, classes)
        both = set(self.retry_on) & set(self.fail_on)
        if both:
            names = ", ".join(sorted(each.__name__ for each in both))
            raise ConfigurationError(f"{names} can't be both in retry_on and in fail_on")

    def delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1), with jitter."""
        wait = self.backoff.delay(attempt)
        return wait * random.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else wait  # noqa: S311

    def retries(self, error: BaseException) -> bool:
        """Whether an error of this class may be retried at all."""
        if isinstance(error, self.fail_on):
            return False
        return not self.retry_on or isinstance(error, self.retry_on)

    def exhausted(self, attempt: int) -> bool:
        """Whether attempt number `attempt` was the last."""
        return self.max_attempts is not None and attempt >= self.max_attempts

    def encode(self) -> bytes:
        """What is stored with a job: the numbers, not the classes."""
        return orjson.dumps({"max_attempts": self.max_attempts, "jitter": self.jitter, "backoff": self.backoff.encode()})

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
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"a stored retry policy can't be read: {error!r}") from None


_BACKOFFS: dict[str, Any] = {"exponential": Exponential, "linear": Linear, "fixed": Fixed, "steps": Steps}
