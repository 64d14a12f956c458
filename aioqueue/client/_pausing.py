"""What operators say isn't to be started for now: all jobs, those of some types, or those with some key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._job_type import JobType
from aioqueue.errors import ConfigurationError, NotSupported
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._safe_text import safe_repr, storable
from aioqueue.vocabulary._time import aware, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store

    Target = tuple[PauseTarget, Sequence[str]]
    """What kind of jobs, and which of it."""

__all__ = ["keeper_of_pauses", "pause_jobs", "read_by", "read_reason", "read_target", "resume_jobs"]

_LONGEST_REASON_CHARACTERS = 1_000
_LONGEST_NAME_CHARACTERS = 200
_LONGEST_VALUE_BYTES = 1_024
"""As of a key, and more than any type's name has."""


async def pause_jobs(store: Store, target: Target, until: datetime | timedelta | None, reason: str, by: str) -> None:
    """Pause them, as `Client.pause` promises.

    Raises:
        ConfigurationError: A value can't be used.
        TypeError: A text isn't one.
        NotSupported: The store knows no pauses.
    """
    kind, values = target
    end, why, who = _until(until), read_reason(reason), read_by(by)
    keeper = keeper_of_pauses(store)
    await keeper.pause([NewPause(target=kind, value=value, by=who, reason=why, until=end) for value in values])


async def resume_jobs(store: Store, target: Target, by: str | None) -> int:
    """Lift pauses, as `Client.resume` promises.

    Raises:
        NotSupported: The store knows no pauses.
    """
    kind, values = target
    who = None if by is None else read_by(by)
    return await keeper_of_pauses(store).resume(kind, values, by=who)


def read_target(types: Sequence[JobType[..., Any, Any] | str], key: str | None, everything: object) -> Target:
    """Read what is meant: one of the three.

    Raises:
        ConfigurationError: None of them is, or several are, or a value can't be one.
    """
    if (len(types) > 0) + (key is not None) + bool(everything) != 1:
        raise ConfigurationError(
            "say what is meant, and one thing of these: job types, or their names; key=, for the jobs with that key; or "
            "all=True, for all jobs"
        )
    if everything:
        return PauseTarget.ALL, [""]
    if key is not None:
        return PauseTarget.KEY, [_value(key, "key")]
    names = [name for each in types for name in _names(each)]
    return PauseTarget.TYPE, list(dict.fromkeys(names))


def _names(job_type: JobType[..., Any, Any] | str) -> tuple[str, ...]:
    """The names under which jobs of a type are stored: what was enqueued before a renaming has an older one."""
    if isinstance(job_type, JobType):
        return (job_type.name, *job_type.aliases)
    return (_value(job_type, "a job type"),)


def _value(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {safe_repr(value)}")
    if not value or not storable(value) or len(value.encode()) > _LONGEST_VALUE_BYTES:
        raise ConfigurationError(f"{what} can't be {safe_repr(value)}, which no job has")
    return value


def _until(until: datetime | timedelta | None) -> datetime | None:
    """Read when a pause ends by itself.

    Arguments:
        until: The time; or how long from now, by this machine's clock.

    Raises:
        ConfigurationError: It has no time zone, is over already, or is out of its range.
    """
    if until is None:
        return None
    now = datetime.now(UTC)
    if isinstance(until, timedelta):
        duration = seconds(until, "until", positive=True)
        try:
            return now + timedelta(seconds=duration)
        except OverflowError:
            raise ConfigurationError(f"until is out of range: {safe_repr(until)}") from None
    end = aware(until, "until")
    if end <= now:
        raise ConfigurationError(
            f"until is over already: {end.isoformat()}; it's {now.isoformat(timespec='seconds')} now, by this machine's clock"
        )
    return end


def read_reason(reason: str) -> str:
    """Read why something is paused: for people, and as much of it as is kept.

    Raises:
        TypeError: It isn't text.
    """
    if not isinstance(reason, str):
        raise TypeError(f"a reason is text, not {safe_repr(reason)}")
    return _storable(reason)[:_LONGEST_REASON_CHARACTERS]


def read_by(by: str) -> str:
    """Read who asks.

    Raises:
        TypeError: It isn't text.
        ConfigurationError: It can't be a name.
    """
    if not isinstance(by, str):
        raise TypeError(f"by is the name of whoever asks, not {safe_repr(by)}")
    if len(by) > _LONGEST_NAME_CHARACTERS or not storable(by):
        raise ConfigurationError(f"by is a name of at most {_LONGEST_NAME_CHARACTERS} characters, not {safe_repr(by)}")
    return by


def _storable(text: str) -> str:
    """What no store can have in a text column is made visible."""
    return text if storable(text) else "".join(each if storable(each) else f"\\u{ord(each):04x}" for each in text)


def keeper_of_pauses(store: Store) -> SupportsPauses:
    """The store, as far as it knows pauses.

    Raises:
        NotSupported: It doesn't.
    """
    if not isinstance(store, SupportsPauses):
        raise NotSupported(f"{store.description} knows no pauses", ability="pause")
    return store
