"""What every store keeps of what running jobs say of themselves. `aioqueue.abc` has it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import LostReason
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite

__all__ = ["Recordable"]


@runtime_checkable
class Recordable(Protocol):
    """The part of a `Store` that keeps how far running jobs have come. What `Store` says of all its methods holds here."""

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        """Store where phases of running jobs stand, each on its own. They count only under the fence of `settle`; what an
        earlier claim has stored is overwritten, what a later one has stored is not; and what the same claim has completed stays
        so, since a request may be carried out long after its caller has repeated it. Nobody's lock on a job's row is waited
        for, and none is taken that `completion()` of the same job would wait for. May be repeated. No job's row is written.

        Returns:
            Why the claim isn't the lease's own any more, for each; None if it's stored.

        Raises:
            RowRejected: One of the rows is at fault, and the store can't tell which. Nothing was written.
        """
        ...

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """Store how far running jobs have come, all in one statement, in rows apart from the jobs'. Of each only under the
        fence of `settle`, and not over what a later claim has stored. Nobody's lock on a job's row is waited for. What
        doesn't count is ignored.

        Arguments:
            writes: One for each job at most.
        """
        ...
