"""How every store makes leases, which say for how long workers have the jobs that they claim. `aioqueue.abc` has it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._store_parts import LeaseSession

__all__ = ["Leasable"]


@runtime_checkable
class Leasable(Protocol):
    """The part of a `Store` that makes leases. What `Store` says of all its methods holds here."""

    async def open_lease(
        self,
        worker: str,
        duration: float,
        *,
        extra: bool = False,
        types: Sequence[str] | None = None,
        slots: int | None = None,
        singleton: str | None = None,
    ) -> int:
        """Make a lease that is valid for `duration` seconds from now, and return its id.

        An id is positive and has a random part, so that none comes again, also after a restore or a failover.

        Arguments:
            worker: The worker's name; others may have the same.
            duration: Seconds.
            extra: Whether the worker has another lease already, so that `stats` counts it once.
            types: What is claimed for it, for `leases` to tell.
            slots: How many jobs the worker runs at once, for `leases` to tell.
            singleton: A name that only one valid lease may have. One that has it and has run out is deleted by this, which
                fences its jobs as `take_expired` does: a renewal at that moment is either seen, or it finds no lease.

        Raises:
            SingletonHeld: A valid lease has the name.
            ConfigurationError: The database's role may not do what a worker does; each missing right is named.
        """
        ...

    def lease_session(self, *, timeout: float = 10.0) -> LeaseSession:
        """What the lease thread uses.

        Arguments:
            timeout: Seconds that each of its calls may take.
        """
        ...
