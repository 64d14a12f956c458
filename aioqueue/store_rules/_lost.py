"""Why a claim isn't its worker's any more."""

from __future__ import annotations

from aioqueue.vocabulary._job import LostReason, StoredState

__all__ = ["lost_reason"]


def lost_reason(*, live: bool, archived: int | None) -> LostReason:
    """Say what a worker is told about a claim that is known to be lost, by what is stored under its job's id now.

    A live row counts before an archived one: somebody may have copied the job back with SQL.

    Arguments:
        live: Whether the job is among the live ones, whatever its state.
        archived: The job's stored state in the archive; None if it isn't there.
    """
    if live:
        return LostReason.TAKEN
    if archived is None:
        return LostReason.NOT_FOUND
    return LostReason.CANCELLED if archived == StoredState.CANCELLED else LostReason.COMPLETED
