"""A worker's settings: each given as an argument, else by an `AIOQUEUE_*` variable, else the default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue._retry import Retry
from aioqueue._time import seconds
from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["WorkerSettings"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Validated settings; `resolve` makes them.

    Attributes:
        concurrency: Slots: jobs that run at once.
        lease: Seconds that a lease is valid for without being renewed.
        renew_every: Seconds between renewals.
        poll_interval: Seconds between looks for jobs when nothing wakes the worker, varied by ±10 %.
        grace: Seconds that running jobs get to finish at shutdown.
        max_reschedules: How often one job may be rescheduled; None for no limit.
        default_retry: For jobs whose type and call have no policy: its attempts and its waits.
    """

    concurrency: int = 10
    lease: float = 60.0
    renew_every: float = 20.0
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
            renew_every: Seconds or timedelta; by default a third of the lease, and at most half of it.
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
        if lease_seconds < 1:
            raise ConfigurationError(f"{source.name('lease', lease)} must be at least 1 second, not {lease_seconds:g}")
        renewal = source.duration("renew_every", renew_every, lease_seconds / 3)
        if not 0 < renewal <= lease_seconds / 2:
            raise ConfigurationError(
                f"{source.name('renew_every', renew_every)} ({renewal:g} s) must be positive and at most half of the lease "
                f"({lease_seconds:g} s), so that one late renewal loses nothing: lower it, or raise "
                f"{source.name('lease', lease)}"
            )
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
            poll_interval=poll,
            grace=source.duration("grace", grace, 30.0),
            max_reschedules=reschedules,
            default_retry=source.retry(default_retry),
        )


class _Source:
    """Reads one setting from its argument or its variable."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def name(self, setting: str, argument: object) -> str:
        """What to call it in errors: where its value came from."""
        variable = f"AIOQUEUE_{setting.upper()}"
        return variable if argument is None and self._environment.get(variable) else setting

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
