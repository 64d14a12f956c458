"""Which job types share a lease: those whose leases last equally long, and all of a single worker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._lease_thread import KeptLease

__all__ = ["LeaseGroup", "lease_groups"]


@dataclass(eq=False)
class LeaseGroup:
    """The job types whose leases last equally long: they share one.

    Attributes:
        duration: Seconds that the lease is valid for without being renewed.
        renew_every: Seconds between renewals.
        types: Their names, aliases too.
        lease: None while there is none.
        slots: How many jobs the worker runs at once, all its leases together: for those who look.
    """

    duration: float
    renew_every: float
    types: tuple[str, ...]
    lease: KeptLease | None = None
    slots: int | None = None


def lease_groups(
    names: Sequence[str], types: Mapping[str, JobType[..., Any, Any]], settings: WorkerSettings
) -> list[LeaseGroup]:
    """Sort job types by how long their leases last. The group with the worker's own duration comes first, if there is one.

    A worker that is the only one of its name has one lease for all: who loses the name loses all jobs with it.

    Arguments:
        names: Of the types to claim.
        types: By name and alias.
        settings: The worker's: for types that don't say.

    Raises:
        ConfigurationError: `renew_every` was set, and doesn't fit one of them.
    """
    by_duration: dict[float, list[str]] = {settings.lease: []}
    for name in names:
        own = None if settings.singleton is not None else types[name].lease
        by_duration.setdefault(settings.lease if own is None else own, []).append(name)
    return [
        LeaseGroup(
            duration,
            settings.renew_every if duration == settings.lease else settings.renewal_of(duration, own[0]),
            tuple(own),
            slots=settings.concurrency,
        )
        for duration, own in by_duration.items()
        if own
    ]
