"""What job types and calls say of whom their jobs wait for: limits, rates and sequences."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from aioqueue.definitions._names import LONGEST_NAME_CHARACTERS
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_repr, storable
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["OF_METADATA", "InSequence", "Limit", "OnFailure", "Rate", "check_by", "check_places", "check_rate"]

OnFailure = Literal["continue", "block"]

OF_METADATA = "metadata."
"""Before the name of a field of the metadata, where it mustn't be taken for a parameter's."""

_MOST_PLACES = 2**31 - 1
_SHORTEST_INTERVAL_SECONDS = 1e-6
_LONGEST_SEQUENCE_BYTES = 1_024


@dataclass(frozen=True, slots=True, repr=False)
class Limit:
    """At most so many jobs of a type run at once, in all workers together: `@registry.job(limit=Limit(3, by="tenant_id"))`.

    A job counts from its claim until it's settled, given back or recovered, whatever its lease says. Those for which there's no
    place are held, and take no slot. `client.limits.put` changes the number at run time.

    Arguments:
        places: How many; 0 for none.
        by: The name of an argument, or else of a field of the metadata, whose values are limited each by itself. By default all
            jobs of the type are limited together. `1`, `"1"`, null and an argument that wasn't passed are different values.
            `"metadata.tenant_id"` is a field of the metadata, whatever the parameters are called.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    places: int
    by: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_places(self.places, "a limit's places")
        check_by(self.by, "by")

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(frozen=True, slots=True, repr=False)
class Rate:
    """At most so many jobs of a type start in a time, in all workers together: `rate=Rate(100, per=timedelta(minutes=1))`.

    Each start counts, whatever comes of it: retries too, and jobs that a worker gives back before it has begun with them.
    `client.limits.put_rate` changes the rate at run time.

    Arguments:
        starts: How many in `per`; 0 for none.
        per: Seconds or timedelta.
        by: The name of an argument, or else of a field of the metadata, whose values have the rate each by itself.
        burst: How many may start at once after a while in which none did, at least 1; by default as many as `starts`. Thus up
            to `starts` and `burst` together may start within one `per`.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    starts: int
    per: float | timedelta = field(kw_only=True)
    by: str | None = field(default=None, kw_only=True)
    burst: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        per, _ = check_rate(self.starts, self.per, self.burst)
        object.__setattr__(self, "per", per)
        check_by(self.by, "by")

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(frozen=True, slots=True, repr=False)
class InSequence:
    """In which sequence jobs run: one at a time, in the order in which they were inserted. A chain keeps it until its end.

    Of a call: `transfer(…).options(sequence="account:42")`, which is `InSequence("account:42")`. Of a job type:
    `sequence_by="account_id"`, which is `InSequence("account_id")`: each value is a sequence of its own.

    Arguments:
        name: Of a call, the sequence's; of a job type, that of an argument, or else of a field of the metadata.
        strict: Whether those behind it wait, too, while it waits for its next try, its due time, or other chains. By default
            they pass it then, so that a job that's tried again in an hour doesn't keep them for so long.
        on_failure: What becomes of those behind it if it fails for good. `"continue"`: they go on. `"block"`: they wait until
            it's retried or deleted, or `client.sequences.resume` lets them go on.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    name: str
    strict: bool = field(default=False, kw_only=True)
    on_failure: OnFailure = field(default="continue", kw_only=True)

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str):
            raise ConfigurationError(f"a sequence's name must be a str, not {safe_repr(name)}")
        if not name or not storable(name) or len(name.encode()) > _LONGEST_SEQUENCE_BYTES:
            raise ConfigurationError(
                f"a sequence's name must have 1 to {_LONGEST_SEQUENCE_BYTES:,} bytes, no NUL and no lone surrogate, "
                f"not {safe_repr(name)}"
            )
        strict: object = self.strict
        if not isinstance(strict, bool):
            raise ConfigurationError(f"strict must be True or False, not {safe_repr(strict)}")
        if self.on_failure not in ("continue", "block"):
            raise ConfigurationError(f'on_failure must be "continue" or "block", not {safe_repr(self.on_failure)}')

    def __repr__(self) -> str:
        return _shown(self)


def check_places(value: object, what: str) -> int:
    """Check how many may run at once, or start in a time.

    Arguments:
        value: As given.
        what: What it is, for the error.

    Raises:
        ConfigurationError: It's no whole number, or out of its range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PLACES:
        raise ConfigurationError(f"{what} must be a whole number from 0 (none) to {_MOST_PLACES:,}, not {safe_repr(value)}")
    return value


def check_rate(starts: object, per: float | timedelta, burst: object) -> tuple[float, int]:
    """Check a rate.

    Returns:
        Seconds, and how many may start at once.

    Raises:
        ConfigurationError: A value is out of its range.
    """
    number = check_places(starts, "a rate's starts")
    time = seconds(per, "per", positive=True)
    if number and time / number < _SHORTEST_INTERVAL_SECONDS:
        raise ConfigurationError(f"{number:,} starts in {time:g} s are more than a million a second: leave out the rate")
    if burst is None:
        return time, max(number, 1)
    if check_places(burst, "burst") == 0:
        raise ConfigurationError("burst must be at least 1, or nothing could ever start; starts=0 stops all")
    return time, cast("int", burst)


def check_by(by: object, option: str) -> str | None:
    """Check what names an argument, or a field of the metadata; None for neither.

    Raises:
        ConfigurationError: It can't be the name of one.
    """
    if by is None:
        return None
    if not isinstance(by, str) or not 0 < len(by.removeprefix(OF_METADATA)) <= LONGEST_NAME_CHARACTERS or not storable(by):
        raise ConfigurationError(
            f"{option} must be the name of one argument, or of a field of the metadata, such as {'tenant_id'!r}, "
            f"not {safe_repr(by)}"
        )
    return by


def _shown(value: Any) -> str:
    """Its repr, without what is the default."""
    first, *others = fields(value)
    given = [(each.name, getattr(value, each.name)) for each in others if getattr(value, each.name) != each.default]
    shown = [repr(getattr(value, first.name)), *(f"{name}={part!r}" for name, part in given)]
    return f"{type(value).__name__}({', '.join(shown)})"
