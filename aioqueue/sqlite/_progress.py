"""How far running jobs have come: their phases and their progress, in tables beside the jobs'.

No job's row is written. The functions run inside an open write transaction, or in a snapshot for those that read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._settle import lost_reasons
from aioqueue.vocabulary._job import Claim
from aioqueue.vocabulary._phases import PhaseState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.vocabulary._job import LostReason
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite

__all__ = ["Progresses", "write_phases", "write_progress"]

_OWNED = """FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND coalesce(job.lease_id, 0) = s.value ->> 2
  AND EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)"""
"""The fence of a settlement."""

_LOOK = f"SELECT json_group_array(s.key) {_OWNED}"

_WRITE_PHASES = f"""
INSERT INTO phase (job_id, name, state, claims, result, started_at, finished_at)
SELECT job.id, s.value ->> 3, s.value ->> 4, job.claims, s.value ->> 5, {NOW}, iif(s.value ->> 4 = 2, NULL, {NOW}) {_OWNED}
ON CONFLICT (job_id, name) DO UPDATE SET state = excluded.state, claims = excluded.claims, result = excluded.result,
    started_at = iif(excluded.state = 2, excluded.started_at, phase.started_at), finished_at = excluded.finished_at
WHERE phase.claims < excluded.claims OR (phase.claims = excluded.claims AND (phase.state <> 4 OR excluded.state = 4))
"""

_WRITE_PROGRESS = f"""
INSERT INTO progress (job_id, claims, percent, message, phase, phases, at)
SELECT job.id, job.claims, s.value ->> 3, s.value ->> 4, s.value ->> 5, s.value ->> 6, {NOW} {_OWNED}
ON CONFLICT (job_id) DO UPDATE SET claims = excluded.claims, percent = excluded.percent, message = excluded.message,
    phase = excluded.phase, phases = excluded.phases, at = excluded.at
WHERE progress.claims <= excluded.claims
"""

_STATES = {PhaseState.RUNNING: 2, PhaseState.COMPLETED: 4, PhaseState.FAILED: 6}


class Progresses:
    """Phases and progress of one open store.

    Arguments:
        writer: Where they're written.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        """Store where phases stand, as `aioqueue.abc.Store.write_phases` promises."""
        return await self._writer.write(lambda connection: (write_phases(connection, writes), None))

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """Store how far jobs have come, as `aioqueue.abc.Store.write_progress` promises."""

        def body(connection: sqlite3.Connection) -> tuple[None, None]:
            write_progress(connection, writes)
            return None, None

        await self._writer.write(body)


def write_phases(connection: sqlite3.Connection, writes: Sequence[PhaseWrite]) -> list[LostReason | None]:
    """Write phases; of those whose claims are lost it's said why.

    Raises:
        RowRejected: One of them can't be stored.
    """
    rows = dump([_phase_row(each) for each in writes])
    owned = set(load(one(connection, _LOOK, {"rows": rows})[0]))
    lost = [Claim(each.id, each.claims) for place, each in enumerate(writes) if place not in owned]
    if owned:
        connection.execute(_WRITE_PHASES, {"rows": rows})
    reasons = lost_reasons(connection, lost)
    return [None if place in owned else reasons[Claim(each.id, each.claims)] for place, each in enumerate(writes)]


def _phase_row(write: PhaseWrite) -> list[object]:
    try:
        result = None if write.result is None else write.result.decode()
        state = _STATES[write.state]
    except (UnicodeError, KeyError) as error:
        raise RowRejected(f"job {write.id}: the phase {write.name!r} can't be stored: {error!r}") from error
    return [str(write.id), write.claims, write.lease_id, write.name, state, result]


def write_progress(connection: sqlite3.Connection, writes: Sequence[ProgressWrite]) -> None:
    """Write how far jobs have come.

    Raises:
        RowRejected: One of the rows can't be stored.
    """
    connection.execute(_WRITE_PROGRESS, {"rows": dump([_progress_row(each) for each in writes])})


def _progress_row(write: ProgressWrite) -> list[object]:
    fence = [str(write.id), write.claims, write.lease_id]
    return [*fence, write.percent, write.message, write.phase, dump(write.phases)]
