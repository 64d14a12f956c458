"""Where phases of running jobs stand, how far these have come, and what their attempts have logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioqueue.errors import RowRejected
from aioqueue.testing.memory._settle import lease_allows, why_lost
from aioqueue.vocabulary._job import LostReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._phases import Phase, PhaseWrite, ProgressWrite

__all__ = ["fetch_logs", "fetch_phases", "write_phases", "write_progress"]


def write_phases(database: Database, writes: Sequence[PhaseWrite]) -> list[LostReason | None]:
    """Store where phases stand, each under its fence. See `Store.write_phases`. Locks of rows don't matter."""
    for each in writes:
        _require_result(each)
    return [_write_phase(database, each) for each in writes]


def _require_result(each: PhaseWrite) -> None:
    if each.result is not None:
        try:
            orjson.loads(each.result)
        except orjson.JSONDecodeError as error:
            raise RowRejected(f"the result of the phase {each.name!r} of {each.id} isn't JSON: {error}") from error


def _write_phase(database: Database, each: PhaseWrite) -> LostReason | None:
    lost = why_not_its_own(database, each)
    if lost is not None:
        return lost
    return None if database.write_phase(each, database.now()) else LostReason.TAKEN


def why_not_its_own(database: Database, each: PhaseWrite | ProgressWrite) -> LostReason | None:
    """Why a claim isn't the lease's own any more, as of a settlement; None if it is."""
    lost = why_lost(database.rows.get(each.id), each.claims, each.lease_id)
    if lost is None and not lease_allows(database, each.lease_id, database.now(), orphaned=False):
        return LostReason.TAKEN
    return lost


def write_progress(database: Database, writes: Sequence[ProgressWrite]) -> None:
    """Store how far jobs have come, each under its fence. See `Store.write_progress`."""
    for each in writes:
        if why_not_its_own(database, each) is None:
            database.write_progress(each, database.now())


def fetch_phases(database: Database, job_id: UUID) -> list[Phase]:
    """What is stored of a job's phases. See `Store.fetch_phases`."""
    return database.come.phases_of(job_id)


def fetch_logs(database: Database, job_id: UUID) -> list[AttemptLog]:
    """What was kept of a job's logs. See `Store.fetch_logs`."""
    return database.come.logs_of(job_id)
