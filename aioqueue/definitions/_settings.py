"""A worker's settings: each given as an argument, else by an `AIOQUEUE_*` variable, else the default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["SHORTEST_LEASE", "WorkerSettings", "longest_try"]

SHORTEST_LEASE = 1.0
"""Seconds: renewals of a shorter one would be late whenever the machine is busy."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Validated settings; `resolve` makes them.

    Attributes:
        concurrency: Slots: jobs that run at once.
        lease: Seconds that a lease is valid for without being renewed.
        renew_every: Seconds between renewals.
        renewals_set: Whether somebody has set them: they count for the leases of job types too, then.
        poll_interval: Seconds between looks for jobs when nothing wakes the worker, varied by ±10 %.
        grace: Seconds that running jobs get to finish at shutdown.
        max_reschedules: How often one job may be rescheduled; None for no limit.
        default_retry: For jobs whose type and call have no policy: its attempts and its waits.
    """

    concurrency: int = 10
    lease: float = 60.0
    renew_every: float = 20.0
    renewals_set: bool = False
    poll_interval: float = 5.0
    grace: float = 30.0
    max_reschedules: int | None = 1000
    default_retry: Retry = field(default_factory=Retry)

    @classmethod
    def resolve(
        cls,
        *,
        concurrency: int | None = None,
        lease: float | timedelta | None = None,
        renew_every: float | timedelta | None = None,
        poll_interval: float | timedelta | None = None,
        grace: float | timedelta | None = None,
        max_reschedules: int | None = None,
        default_retry: Retry | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> WorkerSettings:
        """Read the settings: an argument that is None comes from its variable, or is the default.

        The variables are AIOQUEUE_CONCURRENCY, AIOQUEUE_LEASE, AIOQUEUE_RENEW_EVERY, AIOQUEUE_POLL_INTERVAL,
        AIOQUEUE_GRACE, AIOQUEUE_MAX_RESCHEDULES and AIOQUEUE_MAX_ATTEMPTS. Durations are seconds, or have a unit:
        `500ms`, `30s`, `5m`, `1h`.

        Arguments:
            concurrency: From 1 to 10,000.
            lease: Seconds or timedelta; at least 1 second.
            renew_every: Seconds or timedelta; by default a third of the lease, and at most half of it. One try takes at most
                a sixth of the lease, so that three end before the lease does: two of its own, and one of another lease.
            poll_interval: Seconds or timedelta; at least 10 ms.
            grace: Seconds or timedelta; zero cancels at once.
            max_reschedules: Zero or more.
            default_retry: A policy.
            environment: The variables; by default the process's.

        Returns:
            The settings.

        Raises:
            ConfigurationError: One can't be read, is out of its range, or contradicts another; it's named.
        """
        source = _Source(os.environ if environment is None else environment)
        lease_seconds = source.duration("lease", lease, 60.0)
        if lease_seconds < SHORTEST_LEASE:
            raise ConfigurationError(f"{source.name('lease', lease)} must be at least 1 second, not {lease_seconds:g}")
        renewal = source.duration("renew_every", renew_every, lease_seconds / 3)
        name = source.name("renew_every", renew_every)
        _refuse_renewal(renewal, lease_seconds, name, "the lease", f"raise {source.name('lease', lease)}")
        poll = source.duration("poll_interval", poll_interval, 5.0)
        if poll < 0.01:
            raise ConfigurationError(f"{source.name('poll_interval', poll_interval)} must be at least 0.01 s, not {poll:g}")
        slots = source.integer("concurrency", concurrency, 10)
        if not 1 <= slots <= 10_000:
            raise ConfigurationError(f"{source.name('concurrency', concurrency)} must be from 1 to 10,000, not {slots}")
        reschedules = source.integer("max_reschedules", max_reschedules, 1000)
        if not 0 <= reschedules <= 2**31 - 1:
            raise ConfigurationError(
                f"{source.name('max_reschedules', max_reschedules)} must be zero or more, not {reschedules}"
            )
        return cls(
            concurrency=slots,
            lease=lease_seconds,
            renew_every=renewal,
            renewals_set=source.given("renew_every", renew_every),
            poll_interval=poll,
            grace=source.duration("grace", grace, 30.0),
            max_reschedules=reschedules,
            default_retry=source.retry(default_retry),
        )

    def renewal_of(self, lease: float, job_type: str) -> float:
        """Seconds between renewals of a lease of which job types have said how long it lasts.

        Arguments:
            lease: Seconds.
            job_type: The name of one of them, for the error.

        Raises:
            ConfigurationError: `renew_every` was set, and doesn't fit it.
        """
        if not self.renewals_set:
            return lease / 3
        _refuse_renewal(self.renew_every, lease, "renew_every", f"the lease of the job type {job_type}", "raise its lease=")
        return self.renew_every


def longest_try(lease: float) -> float:
    """Seconds that one try to renew a lease may take, connecting included."""
    return lease / 6


def _refuse_renewal(renewal: float, lease: float, name: str, whose: str, other_way: str) -> None:
    """Refuse renewals that are too rare: a silent line must cost a lease no more than one try.

    Raises:
        ConfigurationError: Three tries after the time of a renewal could end later than the lease.
    """
    one = longest_try(lease)
    if renewal <= 0:
        raise ConfigurationError(f"{name} must be positive, not {renewal:g} s")
    if renewal + 3 * one > lease * (1 + 1e-9):
        raise ConfigurationError(
            f"{name} ({renewal:g} s) must be at most half of {whose} ({lease:g} s): a renewal may take {one:g} s, and three "
            f"of them, two tries and one of another lease, must end before it does; lower it, or {other_way}"
        )


class _Source:
    """Reads one setting from its argument or its variable."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def name(self, setting: str, argument: object) -> str:
        """What to call it in errors: where its value came from."""
        variable = f"AIOQUEUE_{setting.upper()}"
        return variable if argument is None and self._environment.get(variable) else setting

    def given(self, setting: str, argument: object) -> bool:
        """Whether somebody has set it."""
        return argument is not None or bool(self._text(setting))

    def _text(self, setting: str) -> str:
        return self._environment.get(f"AIOQUEUE_{setting.upper()}", "").strip()

    def duration(self, setting: str, argument: float | timedelta | None, default: float) -> float:
        """Seconds."""
        if argument is not None:
            return seconds(argument, setting)
        if not (text := self._text(setting)):
            return default
        number = text.rstrip("msdh")
        try:
            return seconds(float(number) * _UNITS[text[len(number) :] or "s"], self.name(setting, None))
        except (ValueError, KeyError):
            raise ConfigurationError(
                f"AIOQUEUE_{setting.upper()} must be seconds, or a number with ms, s, m, h or d, not {text!r}"
            ) from None

    def integer(self, setting: str, argument: int | None, default: int) -> int:
        """A whole number."""
        if argument is not None:
            if not isinstance(argument, int) or isinstance(argument, bool):
                raise ConfigurationError(f"{setting} must be a whole number, not {argument!r}")
            return argument
        if not (text := self._text(setting)):
            return default
        try:
            return int(text)
        except ValueError:
            raise ConfigurationError(f"AIOQUEUE_{setting.upper()} must be a whole number, not {text!r}") from None

    def retry(self, argument: Retry | None) -> Retry:
        """The policy of jobs that have none."""
        if argument is not None:
            if not isinstance(argument, Retry):
                raise ConfigurationError(f"default_retry must be a Retry(...), not {argument!r}")
            return argument
        if not self._text("max_attempts"):
            return Retry()
        try:
            return Retry(max_attempts=self.integer("max_attempts", None, 10))
        except ConfigurationError as error:
            raise ConfigurationError(f"AIOQUEUE_MAX_ATTEMPTS: {error}") from None
