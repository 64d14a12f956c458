"""A worker's settings: each given as an argument, else by an `AIOQUEUE_*` variable, else the default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.definitions import _setting_table as table
from aioqueue.definitions._environment import Environment
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

__all__ = ["WorkerSettings", "longest_try"]


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
    def resolve(
        cls,
        *,
        concurrency: int | None = None,
        lease: float | timedelta | None = None,
        renew_every: float | timedelta | None = None,
        poll_interval: float | timedelta | None = None,
        grace: float | timedelta | None = None,
        max_reschedules: int | None = None,
        release: int | None = None,
        blocked_after: float | timedelta | None = None,
        max_attempts: int | None = None,
        default_retry: Retry | None = None,
        retention_completed: float | timedelta | None = None,
        retention_failed: float | timedelta | None = None,
        retention_interval: float | timedelta | None = None,
        tracing: bool | None = None,
        trace_links: bool | None = None,
        metrics_port: int | None = None,
        metrics_host: str | None = None,
        name: str | None = None,
        types: Iterable[str] | None = None,
        webhook_secret: str | Iterable[str] | None = None,
        webhook_allow: Iterable[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> WorkerSettings:
        """Read the settings: an argument that is None comes from its variable, which `_setting_table` names, or is the default.

        Arguments:
            renew_every: By default a third of the lease, and at most half of it. One try takes at most a sixth of the lease,
                so that three end before the lease does: two of its own, and one of another lease.
            default_retry: A whole policy in place of `max_attempts`, whose variable doesn't count then.
            environment: The variables; by default the process's.

        Raises:
            ConfigurationError: One can't be read, is out of its range, or contradicts another; it's named.
        """
        read = Environment(environment)
        return cls(
            concurrency=table.CONCURRENCY.read(concurrency, read),
            lease=table.LEASE.read(lease, read),
            renew_every=_renewal(renew_every, lease, read),
            renewals_set=table.RENEW_EVERY.is_set(renew_every, read),
            poll_interval=table.POLL_INTERVAL.read(poll_interval, read),
            grace=table.GRACE.read(grace, read),
            max_reschedules=table.MAX_RESCHEDULES.read(max_reschedules, read),
            release=table.RELEASE.read(release, read),
            blocked_after=table.BLOCKED_AFTER.read(blocked_after, read),
            default_retry=_default_retry(default_retry, max_attempts, read),
            retention_completed=table.RETENTION_COMPLETED.read(retention_completed, read),
            retention_failed=table.RETENTION_FAILED.read(retention_failed, read),
            retention_interval=table.RETENTION_INTERVAL.read(retention_interval, read),
            tracing=table.TRACING.read(tracing, read),
            trace_links=table.TRACE_LINKS.read(trace_links, read),
            metrics_port=table.METRICS_PORT.read(metrics_port, read),
            metrics_host=table.METRICS_HOST.read(metrics_host, read),
            name=table.NAME.read(name, read),
            types=table.TYPES.read(types, read),
            webhook_secret=table.WEBHOOK_SECRET.read(webhook_secret, read),
            webhook_allow=table.WEBHOOK_ALLOW.read(webhook_allow, read),
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
