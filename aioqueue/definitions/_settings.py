"""A worker's settings: each given as an argument, else by an `AIOQUEUE_*` variable, else the default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.definitions._environment import Environment, variable_of
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._retry import MOST_ATTEMPTS, Retry
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["MOST_CONCURRENT_JOBS", "SHORTEST_LEASE_SECONDS", "WorkerSettings", "longest_try", "read_flag"]

SHORTEST_LEASE_SECONDS = 1.0
"""Seconds: renewals of a shorter one would be late whenever the machine is busy."""

MOST_CONCURRENT_JOBS = 10_000

_SHORTEST_POLL_SECONDS = 0.01
_MOST_RESCHEDULES = 2**31 - 1


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
        blocked_after: Seconds after which the log names what blocks the event loop; 0 for never.
        default_retry: For jobs whose type and call have no policy: its attempts and its waits.
        tracing: Whether spans are made, where an SDK for OpenTelemetry is configured.
        trace_links: Whether a first attempt's span is linked to its producer's, in place of being its child.
        metrics_port: Where `/metrics`, `/healthz` and `/readyz` are served; None for nowhere.
        metrics_host: The address to listen at for that; None for the usual one.
    """

    concurrency: int = 10
    lease: float = 60.0
    renew_every: float = 20.0
    renewals_set: bool = False
    poll_interval: float = 5.0
    grace: float = 30.0
    max_reschedules: int | None = 1000
    blocked_after: float = 5.0
    default_retry: Retry = field(default_factory=Retry)
    tracing: bool = True
    trace_links: bool = False
    metrics_port: int | None = None
    metrics_host: str | None = None

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
        blocked_after: float | timedelta | None = None,
        default_retry: Retry | None = None,
        tracing: bool | None = None,
        trace_links: bool | None = None,
        metrics_port: int | None = None,
        metrics_host: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> WorkerSettings:
        """Read the settings: an argument that is None comes from its variable, or is the default.

        The variables are AIOQUEUE_ and the setting's name; that of `default_retry` is AIOQUEUE_MAX_ATTEMPTS. How they're
        written is said in `vocabulary._numbers`.

        Arguments:
            concurrency: From 1 to 10,000.
            lease: Seconds or timedelta; at least 1 second.
            renew_every: Seconds or timedelta; by default a third of the lease, and at most half of it. One try takes at most
                a sixth of the lease, so that three end before the lease does: two of its own, and one of another lease.
            poll_interval: Seconds or timedelta; at least 10 ms.
            grace: Seconds or timedelta; zero cancels at once.
            max_reschedules: Zero or more.
            blocked_after: Seconds or timedelta; zero turns it off.
            default_retry: A policy.
            tracing, trace_links: True or False.
            metrics_port: From 1 to 65,535; 0 for one that is free.
            metrics_host: An address of this machine.
            environment: The variables; by default the process's.

        Raises:
            ConfigurationError: One can't be read, is out of its range, or contradicts another; it's named.
        """
        read = _Reader(Environment(environment))
        lease_seconds = read.duration("lease", lease, 60.0, least=SHORTEST_LEASE_SECONDS)
        renewal = read.duration("renew_every", renew_every, lease_seconds / 3)
        named = read.name_of("renew_every", renew_every)
        _refuse_renewal(renewal, lease_seconds, named, "the lease", f"raise {read.name_of('lease', lease)}")
        return cls(
            concurrency=read.whole_number("concurrency", concurrency, 10, least=1, most=MOST_CONCURRENT_JOBS),
            lease=lease_seconds,
            renew_every=renewal,
            renewals_set=read.is_set("renew_every", renew_every),
            poll_interval=read.duration("poll_interval", poll_interval, 5.0, least=_SHORTEST_POLL_SECONDS),
            grace=read.duration("grace", grace, 30.0),
            max_reschedules=read.whole_number("max_reschedules", max_reschedules, 1000, least=0, most=_MOST_RESCHEDULES),
            blocked_after=read.duration("blocked_after", blocked_after, 5.0),
            default_retry=read.retry(default_retry),
            tracing=read.flag("tracing", tracing, default=True),
            trace_links=read.flag("trace_links", trace_links, default=False),
            metrics_port=read.port("metrics_port", metrics_port),
            metrics_host=read.text("metrics_host", metrics_host),
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


def read_flag(environment: Environment, setting: str, argument: object, *, default: bool) -> bool:
    """Read a setting that is on or off, of a client or a worker: from its argument, else from its variable.

    Raises:
        ConfigurationError: It says neither.
    """
    if argument is None:
        given = environment.flag(variable_of(setting))
        return default if given is None else given
    if not isinstance(argument, bool):
        raise ConfigurationError(f"{setting} must be True or False, not {argument!r}")
    return argument


class _Reader:
    """Reads each setting from its argument or its variable, and refuses what is out of its range."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def is_set(self, setting: str, argument: object) -> bool:
        """Whether somebody has set it, in either way."""
        return argument is not None or self._environment.text(variable_of(setting)) is not None

    def name_of(self, setting: str, argument: object) -> str:
        """What to call it in errors: where its value came from."""
        return variable_of(setting) if argument is None and self.is_set(setting, None) else setting

    def duration(self, setting: str, argument: float | timedelta | None, default: float, *, least: float = 0.0) -> float:
        """Seconds from the argument, else from the variable; `least` or more."""
        variable = variable_of(setting)
        given = self._environment.duration(variable) if argument is None else seconds(argument, setting)
        if given is None:
            return default
        if given < least:
            raise ConfigurationError(f"{self.name_of(setting, argument)} must be at least {least:g} s, not {given:g} s")
        return given

    def whole_number(self, setting: str, argument: int | None, default: int, *, least: int, most: int) -> int:
        """A number from the argument, else from the variable; from `least` to `most`."""
        if argument is not None and (not isinstance(argument, int) or isinstance(argument, bool)):
            raise ConfigurationError(f"{setting} must be a whole number, not {argument!r}")
        given = self._environment.whole_number(variable_of(setting)) if argument is None else argument
        if given is None:
            return default
        if not least <= given <= most:
            raise ConfigurationError(f"{self.name_of(setting, argument)} must be from {least:,} to {most:,}, not {given}")
        return given

    def flag(self, setting: str, argument: bool | None, *, default: bool) -> bool:  # noqa: FBT001 - as its neighbours
        """Yes or no from the argument, else from the variable."""
        return read_flag(self._environment, setting, argument, default=default)

    def port(self, setting: str, argument: int | None) -> int | None:
        """A port of TCP from the argument, else from the variable; None if nobody has set it."""
        return self.whole_number(setting, argument, 0, least=0, most=65_535) if self.is_set(setting, argument) else None

    def text(self, setting: str, argument: str | None) -> str | None:
        """A text from the argument, else from the variable; None if nobody has set it."""
        if argument is not None and (not isinstance(argument, str) or not argument.strip()):
            raise ConfigurationError(f"{setting} must be a text, not {argument!r}")
        return self._environment.text(variable_of(setting)) if argument is None else argument.strip()

    def retry(self, argument: Retry | None) -> Retry:
        """The policy of jobs that have none. Only its number of attempts has a variable."""
        if argument is None:
            return Retry(max_attempts=self.whole_number("max_attempts", None, 10, least=1, most=MOST_ATTEMPTS))
        if not isinstance(argument, Retry):
            raise ConfigurationError(f"default_retry must be a Retry(...), not {argument!r}")
        return argument
