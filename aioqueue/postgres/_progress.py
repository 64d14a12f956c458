"""How far jobs have come: phases and progress, which workers write beside the jobs' rows, and what handlers have logged.

A worker's words about a running job take no lock on its row and wait for none: `completion()` may hold that all the while. The
fence is read from a snapshot. Who has lost the job since then comes too late at most for rows which the next claim writes anew,
and a later claim's words are never overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._insert_columns import array
from aioqueue.postgres._settle_fates import Fence, fate_of, fates_statements
from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._phases import PhaseState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import LostReason
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite

__all__ = ["ProgressWriter", "progress_statements"]

_STORED = {
    PhaseState.RUNNING: StoredState.RUNNING,
    PhaseState.COMPLETED: StoredState.COMPLETED,
    PhaseState.FAILED: StoredState.FAILED,
}

_OWNED = """owned AS MATERIALIZED (
    SELECT given.* FROM given CROSS JOIN LATERAL (
        SELECT FROM @schema@.job j
        WHERE j.id = given.id AND j.state + 0 = 2 AND j.claims = given.claims AND coalesce(j.lease_id, 0) = given.lease_id
        OFFSET 0) AS running
    WHERE EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id)
)"""

_JOB = """CROSS JOIN LATERAL (
        SELECT coalesce(j.chain_id, j.id) AS chain, j.type, j.attempt FROM @schema@.job j
        WHERE j.id = written.job_id OFFSET 0) AS j"""
_PHASES_LOGGED = logged(
    f"""SELECT CASE written.state WHEN 2 THEN '{EventKind.PHASE_STARTED}' ELSE '{EventKind.PHASE_COMPLETED}' END,
           written.job_id, j.chain, j.type, j.attempt, written.claims, written.name
    FROM written {_JOB} WHERE written.state IN (2, 4)""",
    "phase",
)
_PROGRESS_LOGGED = logged(
    f"""SELECT '{EventKind.PROGRESS}', written.job_id, j.chain, j.type, j.attempt, written.claims, written.percent,
           written.phase, written.message
    FROM written {_JOB}""",
    "percent",
    "phase",
    "message",
)
_STAYS = "p.claims = excluded.claims AND p.state = 4 AND excluded.state <> 4"
# Rows that somebody's open transaction has locked, such as one that deletes their job, hold up nobody else's: they're left out,
# unless that's said to be wanted.
_PHASES = f"""WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::smallint[], $6::text[]) WITH ORDINALITY
        AS given(id, claims, lease_id, name, state, result, place)
), {_OWNED}, there AS MATERIALIZED (
    SELECT owned.place, owned.id, owned.name FROM owned CROSS JOIN LATERAL (
        SELECT FROM @schema@.phase p WHERE p.job_id = owned.id AND p.name = owned.name OFFSET 0) AS found
), free AS MATERIALIZED (
    SELECT p.job_id AS id, p.name FROM @schema@.phase p
    WHERE p.job_id = ANY(ARRAY(SELECT id FROM there)) AND p.name = ANY(ARRAY(SELECT name FROM there)) FOR UPDATE SKIP LOCKED
), written AS (
    INSERT INTO @schema@.phase AS p (job_id, name, state, claims, started_at, finished_at, result)
    SELECT id, name, state, claims, clock_timestamp(), CASE WHEN state <> 2 THEN clock_timestamp() END, result::json FROM owned
    WHERE $7::boolean OR place NOT IN (SELECT place FROM there) OR (id, name) IN (SELECT id, name FROM free)
    ORDER BY id, name
    ON CONFLICT (job_id, name) DO UPDATE
    SET state = CASE WHEN {_STAYS} THEN p.state ELSE excluded.state END, claims = excluded.claims,
        finished_at = CASE WHEN {_STAYS} THEN p.finished_at ELSE excluded.finished_at END,
        result = CASE WHEN {_STAYS} THEN p.result ELSE excluded.result END,
        started_at = CASE WHEN NOT ({_STAYS}) AND (excluded.state = 2 OR p.claims < excluded.claims)
                     THEN excluded.started_at ELSE p.started_at END
    WHERE p.claims <= excluded.claims
    RETURNING job_id, name, state, claims
), {_PHASES_LOGGED}
SELECT owned.place FROM owned JOIN written ON written.job_id = owned.id AND written.name = owned.name"""

_PROGRESS = f"""WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::float8[], $5::text[], $6::text[], $7::text[])
        AS given(id, claims, lease_id, percent, message, phase, phases)
), {_OWNED}, there AS MATERIALIZED (
    SELECT owned.id FROM owned CROSS JOIN LATERAL (
        SELECT FROM @schema@.progress p WHERE p.job_id = owned.id OFFSET 0) AS found
), free AS MATERIALIZED (
    SELECT p.job_id FROM @schema@.progress p WHERE p.job_id = ANY(ARRAY(SELECT id FROM there)) FOR UPDATE SKIP LOCKED
), written AS (
    INSERT INTO @schema@.progress AS p (job_id, claims, percent, at, message, phase, phases)
    SELECT id, claims, percent, clock_timestamp(), message, phase, coalesce(phases::text[], '{{}}') FROM owned
    WHERE id NOT IN (SELECT id FROM there) OR id IN (SELECT job_id FROM free) ORDER BY id
    ON CONFLICT (job_id) DO UPDATE
    SET claims = excluded.claims, percent = excluded.percent, at = excluded.at, message = excluded.message,
        phase = excluded.phase, phases = excluded.phases
    WHERE p.claims <= excluded.claims
    RETURNING job_id, claims, percent, phase, message
), {_PROGRESS_LOGGED}
SELECT count(*) FROM written"""


def progress_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "write_phases": schema.render(_PHASES),
        "write_progress": schema.render(_PROGRESS),
        **fates_statements(schema),
    }


class ProgressWriter:
    """Writes what workers say of running jobs, over the pool that serves them.

    Arguments:
        pool: Serves the workers.
        schema: Where the tables are.
    """

    def __init__(self, pool: Pool, schema: Schema) -> None:
        self._pool = pool
        self._statements = progress_statements(schema)

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> list[LostReason | None]:
        """Store where phases stand, as `aioqueue.abc.Store.write_phases` says.

        Raises:
            RowRejected: One of them can't be stored. Nothing was written.
            StoreContended: Somebody's open transaction holds one's row, such as one that deletes the job. The others are
                written.
        """
        results: list[LostReason | None] = [None] * len(writes)
        rounds = _rounds(writes)
        if len(rounds) == 1:
            rows = await self._pool.fetch(self._statements["write_phases"], *_phase_arguments(writes, wait=False))
            unwritten = _unwritten(rounds[0], rows)
        else:
            async with self._pool.transaction() as connection:
                unwritten = [index for each in rounds for index in await self._write(connection, writes, each, wait=False)]
        for index in unwritten:
            results[index] = await self._why_not(writes[index])
        return results

    async def _write(
        self, connection: Connection, writes: Sequence[PhaseWrite], indices: Sequence[int], *, wait: bool
    ) -> list[int]:
        arguments = _phase_arguments([writes[index] for index in indices], wait=wait)
        return _unwritten(indices, await connection.fetch(self._statements["write_phases"], *arguments))

    async def _why_not(self, write: PhaseWrite) -> LostReason | None:
        """Find out why one wasn't written; where its claim isn't lost it's tried once more."""
        reason = await self._lost(write)
        if reason is not None:
            return reason
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_BRIEFLY)
            unwritten = await self._write(connection, [write], [0], wait=True)
        return (await self._lost(write)) if unwritten else None

    async def _lost(self, write: PhaseWrite) -> LostReason | None:
        (fate,) = await self._pool.fetch(self._statements["fates"], [write.id], [write.lease_id])
        result = fate_of(fate, Fence(write.id, write.claims, write.lease_id), orphaned=False)
        if result is None:
            return None
        return result.lost or lost_reason(live=fate[1] is not None, archived=fate[4])

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """Store how far jobs have come, as `aioqueue.abc.Store.write_progress` says. Rows that are locked are left out.

        Raises:
            RowRejected: One of them can't be stored. The others are written.
        """
        if not writes:
            return
        try:
            await self._pool.fetch(self._statements["write_progress"], *_progress_arguments(writes))
        except RowRejected:
            if not (half := len(writes) // 2):
                raise
            try:
                await self.write_progress(writes[:half])
            finally:
                await self.write_progress(writes[half:])


def _rounds(writes: Sequence[PhaseWrite]) -> list[list[int]]:
    """The indices, in runs that name no phase twice: one statement can't change a row twice."""
    rounds: list[list[int]] = [[]]
    seen: set[tuple[UUID, str]] = set()
    for index, each in enumerate(writes):
        key = each.id, each.name
        if key in seen:
            seen.clear()
            rounds.append([])
        seen.add(key)
        rounds[-1].append(index)
    return rounds


def _unwritten(indices: Sequence[int], rows: Sequence[Any]) -> list[int]:
    written = {row[0] for row in rows}
    return [index for place, index in enumerate(indices, 1) if place not in written]


def _phase_arguments(writes: Sequence[PhaseWrite], *, wait: bool) -> list[Any]:
    try:
        return [
            [each.id for each in writes],
            [each.claims for each in writes],
            [each.lease_id for each in writes],
            [each.name for each in writes],
            [int(_STORED[each.state]) for each in writes],
            [None if each.result is None else each.result.decode() for each in writes],
            wait,
        ]
    except (KeyError, UnicodeDecodeError) as error:
        raise RowRejected(f"a phase can't be stored: {error!r}") from None


def _progress_arguments(writes: Sequence[ProgressWrite]) -> list[Any]:
    last = {each.id: each for each in writes}.values()
    return [
        [each.id for each in last],
        [each.claims for each in last],
        [each.lease_id for each in last],
        [each.percent for each in last],
        [each.message for each in last],
        [each.phase for each in last],
        [array(each.phases) for each in last],
    ]
