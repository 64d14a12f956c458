"""A worker's settings: each given as an argument, else by an `AIOQUEUE_*` variable, else the default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, cast

from aioqueue.definitions import _setting_table as table
from aioqueue.definitions._environment import Environment
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from typing import Unpack

__all__ = ["GivenSettings", "WorkerOptions", "WorkerSettings", "longest_try"]


class WorkerOptions(TypedDict, total=False):
    """The settings that `Worker` is given as arguments, but for those that it reads itself; it says what each is.

    None is as if it wasn't given: then the variable counts, else the default. Durations are seconds.
    """

    name: str | None
    concurrency: int | None
    poll_interval: float | timedelta | None
    max_attempts: int | None
    max_reschedules: int | None
    release: int | None
    pause_between: float | timedelta | None
    dry_run: bool | None
    singleton: str | None
    wait: bool | None
    standby: bool | None
    grace: float | timedelta | None
    lease: float | timedelta | None
    renew_every: float | timedelta | None
    blocked_after: float | timedelta | None
    default_retry: Retry | None
    retention_completed: float | timedelta | None
    retention_failed: float | timedelta | None
    retention_interval: float | timedelta | None
    tracing: bool | None
    trace_links: bool | None
    metrics_port: int | None
    metrics_host: str | None
    webhook_secret: str | Iterable[str] | None
    webhook_allow: Iterable[str] | None


class GivenSettings(WorkerOptions, total=False):
    """All settings of a worker."""

    types: Iterable[str] | None


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
        release: The number of this version of the registry's code, for its schedules; None without one.
        pause_between: Seconds that a slot rests after each job.
        dry_run: Whether it only tries jobs out.
        singleton: Its name among workers of which one works at a time; None if it may work beside others.
        wait: Whether it waits for one lease if another has that name.
        standby: Whether it waits for as long as another has that name.
        blocked_after: Seconds after which the log names what blocks the event loop; 0 for never.
        default_retry: For jobs whose type and call have no policy: its attempts and its waits.
        retention_completed, retention_failed: Seconds that jobs are kept which don't say so themselves; 0 for ever.
        retention_interval: Seconds between looks for old jobs; 0 for never.
        tracing: Whether spans are made, where an SDK for OpenTelemetry is configured.
        trace_links: Whether a first attempt's span is linked to its producer's, in place of being its child.
        metrics_port: Where `/metrics`, `/healthz` and `/readyz` are served; None for nowhere.
        metrics_host: The address to listen at for that.
        name: Of the worker; None for one that is made of the machine and the process.
        types: Names of the only job types that it runs; None for all.
        webhook_secret: What webhooks are signed with; None if it sends none. Not part of its `repr`.
        webhook_allow: What webhooks may reach though it isn't public.
    """

    concurrency: int = table.CONCURRENCY.default
    lease: float = table.LEASE.default
    renew_every: float = table.LEASE.default / 3
    renewals_set: bool = False
    poll_interval: float = table.POLL_INTERVAL.default
    grace: float = table.GRACE.default
    max_reschedules: int | None = table.MAX_RESCHEDULES.default
    release: int | None = table.RELEASE.default
    pause_between: float = table.PAUSE_BETWEEN.default
    dry_run: bool = table.DRY_RUN.default
    singleton: str | None = table.SINGLETON.default
    wait: bool = table.WAIT.default
    standby: bool = table.STANDBY.default
    blocked_after: float = table.BLOCKED_AFTER.default
    default_retry: Retry = field(default_factory=Retry)
    retention_completed: float = table.RETENTION_COMPLETED.default
    retention_failed: float = table.RETENTION_FAILED.default
    retention_interval: float = table.RETENTION_INTERVAL.default
    tracing: bool = table.TRACING.default
    trace_links: bool = table.TRACE_LINKS.default
    metrics_port: int | None = table.METRICS_PORT.default
    metrics_host: str = table.METRICS_HOST.default
    name: str | None = table.NAME.default
    types: tuple[str, ...] | None = table.TYPES.default
    webhook_secret: tuple[str, ...] | None = field(default=table.WEBHOOK_SECRET.default, repr=False)
    webhook_allow: tuple[str, ...] = table.WEBHOOK_ALLOW.default

    @classmethod
    def resolve(cls, environment: Mapping[str, str] | None = None, **given: Unpack[GivenSettings]) -> WorkerSettings:
        """Read the settings: an argument that is None comes from its variable, which `_setting_table` names, or is the default.

        Arguments:
            environment: The variables; by default the process's.
            given: Arguments.

        Raises:
            ConfigurationError: One can't be read, is out of its range, or contradicts another; it's named.
            TypeError: There is no such setting.
        """
        if unknown := given.keys() - GivenSettings.__annotations__.keys():
            raise TypeError(f"a worker has no setting {', '.join(sorted(unknown))}")
        read, arguments = Environment(environment), cast("dict[str, Any]", given)
        settings: dict[str, Any] = {
            setting.name: setting.read(arguments.get(setting.name), read)
            for setting in table.SETTINGS
            if "Worker" in setting.of and setting not in (table.RENEW_EVERY, table.MAX_ATTEMPTS)
        }
        _refuse_waiting_for_nothing(settings, given, read)
        settings["renew_every"] = _renewal(given.get("renew_every"), given.get("lease"), read)
        settings["renewals_set"] = table.RENEW_EVERY.is_set(given.get("renew_every"), read)
        settings["default_retry"] = _default_retry(given.get("default_retry"), given.get("max_attempts"), read)
        return cls(**settings)

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


def _renewal(given: float | timedelta | None, lease: float | timedelta | None, environment: Environment) -> float:
    """Seconds between renewals.

    Raises:
        ConfigurationError: They don't fit the lease.
    """
    lease_seconds, renewal = table.LEASE.read(lease, environment), table.RENEW_EVERY.read(given, environment)
    if renewal is None:
        renewal = lease_seconds / 3
    named = table.RENEW_EVERY.name_of(given, environment)
    _refuse_renewal(renewal, lease_seconds, named, "the lease", f"raise {table.LEASE.name_of(lease, environment)}")
    return renewal


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


def _refuse_waiting_for_nothing(settings: Mapping[str, Any], given: GivenSettings, read: Environment) -> None:
    """Refuse what is said of waiting for a name that only one worker may have, where it contradicts the rest, or itself.

    Raises:
        ConfigurationError: It does.
    """
    waiting = [
        setting.name_of(value, read)
        for setting, value in ((table.WAIT, given.get("wait")), (table.STANDBY, given.get("standby")))
        if settings[setting.name]
    ]
    if settings["singleton"] is None and waiting:
        raise ConfigurationError(f"{waiting[0]} is about a name that only one worker may have: give that too, as singleton")
    if len(waiting) > 1:
        raise ConfigurationError(f"{waiting[0]} is for one lease, and {waiting[1]} for as long as it takes: choose one")


def _default_retry(policy: Retry | None, max_attempts: int | None, environment: Environment) -> Retry:
    """Give the policy of jobs that have none, as a whole or made of its number of attempts.

    Raises:
        ConfigurationError: Both are given, or either can't be used.
    """
    if policy is None:
        return Retry(max_attempts=table.MAX_ATTEMPTS.read(max_attempts, environment))
    if not isinstance(policy, Retry):
        raise ConfigurationError(f"default_retry must be a Retry(...), not {policy!r}")
    if max_attempts is not None:
        raise ConfigurationError(
            "max_attempts and default_retry exclude each other: a policy has its own number of attempts, "
            f"such as default_retry=Retry(max_attempts={max_attempts!r})"
        )
    return policy
