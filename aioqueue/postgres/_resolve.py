"""Telling those that wait for chains that have ended: within the open transaction of whoever has locked how they ended.

Two statements do it. The first one looks which of them there are, a bounded number, and locks the jobs in the order of their
ids; the second one, whose snapshot sees all that was committed before those locks, counts the ends for each job, and makes it
pending, fails it or removes it. One level at a time: how the chains of those that fail have ended is stored as untold, for
`Store.tend`. What somebody holds for longer than a moment stays untold as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.postgres._errors import sqlstate
from aioqueue.postgres._settle_archive import archive
from aioqueue.store_rules._causes import BLOCKER_FAILED, WAITED_FOR

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["MOST_TOLD", "Resolved", "resolve", "resolve_statements"]

MOST_TOLD = 2_000
"""Blocker rows that one transaction resolves at most."""

_LOCKED = "55P03"
_NOT_ALLOWED = "42501"
_SAVEPOINT = "SAVEPOINT aioqueue_waiting; SET LOCAL lock_timeout = '100ms'"
_ROLL_BACK = "ROLLBACK TO SAVEPOINT aioqueue_waiting"
_RELEASE = "RELEASE SAVEPOINT aioqueue_waiting"

_LOCK = """WITH edge AS MATERIALIZED (
    SELECT waiting.job_id, waiting.ordinal, ended.chain_id
    FROM unnest($1::uuid[]) AS ended(chain_id)
    CROSS JOIN LATERAL (
        SELECT b.job_id, b.ordinal FROM @schema@.blocker b WHERE b.chain_id = ended.chain_id AND NOT b.resolved
        LIMIT $2::integer) AS waiting
    LIMIT $2::integer
), locked AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT job_id FROM edge)) ORDER BY j.id FOR UPDATE@skip@
)
SELECT (SELECT count(*) FROM locked), array_agg(edge.job_id), array_agg(edge.ordinal), array_agg(edge.chain_id), @held@
FROM edge"""
_HELD = """array_agg((SELECT true FROM @schema@.job j WHERE j.id = edge.job_id LIMIT 1) IS NOT NULL
                            AND NOT edge.job_id IN (SELECT id FROM locked))"""

_ENTRY = f"""json_build_object('attempt', 0, 'at', clock_timestamp(), 'type', '{BLOCKER_FAILED}',
                       'message', '{WAITED_FOR}' || coalesce(gone.cause, 'a chain that is gone'), 'traceback', '')"""
# The rows are found one by one, and then by their places: where the planner believes that a table is empty, as statistics of a
# quiet moment say, a join would read all of it for each; so would a look-up without the chain, by the index on chains. A time
# that is infinite or far away can't be moved.
_TELL = f"""WITH edge AS MATERIALIZED (
    SELECT found.place FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS given(job_id, ordinal, chain_id)
    CROSS JOIN LATERAL (
        SELECT b.ctid AS place FROM @schema@.blocker b
        WHERE b.chain_id = given.chain_id AND b.job_id = given.job_id AND b.ordinal = given.ordinal AND NOT b.resolved OFFSET 0
    ) AS found
), told AS (
    UPDATE @schema@.blocker b SET resolved = true WHERE b.ctid = ANY(ARRAY(SELECT place FROM edge)) AND NOT b.resolved
    RETURNING b.job_id, b.ordinal, b.chain_id, b.settled
), counted AS MATERIALIZED (
    SELECT told.job_id AS id, count(*)::integer AS ends,
           bool_or((e.state <> 4 AND NOT told.settled) OR e.take_along) AS ended, bool_or(e.take_along) AS taken,
           (array_agg(e.cause ORDER BY told.ordinal) FILTER (WHERE e.state <> 4 AND NOT told.settled))[1] AS cause
    FROM told CROSS JOIN LATERAL (
        SELECT e.state, e.cause, e.take_along FROM @schema@.chain_end e WHERE e.chain_id = told.chain_id OFFSET 0) AS e
    GROUP BY told.job_id
), waiting AS MATERIALIZED (
    SELECT counted.*, found.place FROM counted
    CROSS JOIN LATERAL (
        SELECT j.ctid AS place FROM @schema@.job j
        WHERE j.id = counted.id AND j.state + 0 = 0 AND j.open_blockers > 0 OFFSET 0) AS found
), gone AS (
    DELETE FROM @schema@.job j USING waiting WHERE j.ctid = waiting.place AND waiting.ended
    RETURNING j.*, waiting.cause, waiting.taken
), failed AS (
    {archive(state="6", lease_id="NULL", outcome="NULL", output="NULL", error=_ENTRY)}
    FROM gone WHERE NOT gone.taken
    RETURNING coalesce(chain_id, id) AS chain_id
), passed_on AS (
    INSERT INTO @schema@.chain_end (chain_id, state, type, cause, untold, take_along)
    SELECT coalesce(gone.chain_id, gone.id), CASE WHEN gone.taken THEN 8 ELSE 6 END, gone.type, gone.cause, true, gone.taken
    FROM gone
    WHERE (SELECT true FROM @schema@.blocker b WHERE b.chain_id = coalesce(gone.chain_id, gone.id) LIMIT 1)
    ON CONFLICT (chain_id) DO UPDATE SET state = excluded.state, type = excluded.type, output = NULL, cause = excluded.cause,
        untold = true, take_along = excluded.take_along, ended_at = excluded.ended_at
    RETURNING 1
), counted_down AS (
    UPDATE @schema@.job j
    SET open_blockers = greatest(j.open_blockers - waiting.ends, 0),
        state = CASE WHEN j.open_blockers <= waiting.ends THEN 1 ELSE 0 END,
        run_at = CASE WHEN j.open_blockers <= waiting.ends THEN greatest(j.run_at, due.now) ELSE j.run_at END,
        expires_at = CASE WHEN j.open_blockers <= waiting.ends AND isfinite(j.run_at) AND j.run_at < due.now
                               AND j.expires_at < '9999-12-31 00:00:00+00'
                          THEN j.expires_at + (due.now - j.run_at) ELSE j.expires_at END
    FROM waiting CROSS JOIN (SELECT clock_timestamp() AS now) AS due
    WHERE j.ctid = waiting.place AND NOT waiting.ended
    RETURNING j.type, j.state, j.run_at
), pending AS MATERIALIZED (
    SELECT type, CASE WHEN isfinite(run_at) THEN greatest(0, extract(epoch FROM run_at - now()))::float8
                      ELSE 'infinity' END AS delay FROM counted_down WHERE state = 1
), taken AS MATERIALIZED (
    SELECT gone.id, coalesce(gone.chain_id, gone.id) AS chain_id FROM gone WHERE gone.taken
), note AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $4::text, 'd', due.delay, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types, min(delay) AS delay FROM pending WHERE delay <= 3600) AS due
    WHERE $4::text IS NOT NULL AND due.types IS NOT NULL
    UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $4::text, 'f', json_agg(chain_id))::text)::text
    FROM (SELECT chain_id, (row_number() OVER () - 1) / 150 AS part
          FROM (SELECT chain_id FROM failed UNION ALL SELECT chain_id FROM taken) AS ends) AS parts
    WHERE $4::text IS NOT NULL
      AND EXISTS (SELECT FROM @schema@.subscriber s WHERE s.expires_at > now() AND s.id::text <> $4::text)
    GROUP BY part
)
SELECT (SELECT count(*) FROM told), ARRAY(SELECT DISTINCT type FROM pending), (SELECT min(delay) FROM pending),
       ARRAY(SELECT chain_id FROM failed), ARRAY(SELECT id FROM taken), ARRAY(SELECT chain_id FROM taken),
       EXISTS (SELECT FROM passed_on), (SELECT count(*) FROM note WHERE done IS NOT NULL)"""

_LEFT = """coalesce((SELECT true FROM @schema@.blocker b WHERE b.chain_id = e.chain_id AND NOT b.resolved LIMIT 1), false)"""
_REST = f"""UPDATE @schema@.chain_end e SET untold = {_LEFT}
WHERE e.chain_id = ANY($1::uuid[]) AND e.untold <> {_LEFT}"""

# Nothing stays of chains that were taken along. Of one with more steps than that, another delete removes the others.
_TAKEN = "DELETE FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[])"
_TAKEN_STEPS = """DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(
    SELECT unnest($1::uuid[]) UNION ALL
    (SELECT s.id FROM @schema@.archive s WHERE s.chain_id = ANY($1::uuid[]) LIMIT $2::integer)))"""


def resolve_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "resolve_lock": _LOCK.replace("@skip@", "").replace("@held@", "NULL"),
        "resolve_lock_free": _LOCK.replace("@skip@", " OF j SKIP LOCKED").replace("@held@", _HELD),
        "resolve_tell": _TELL,
        "resolve_rest": _REST,
        "resolve_taken": _TAKEN,
        "resolve_taken_steps": _TAKEN_STEPS,
    }
    return {name: schema.render(template) for name, template in templates.items()}


@dataclass(slots=True)
class Resolved:
    """What was told, by one or several calls.

    Attributes:
        told: Ends that were counted.
        types: Types with jobs that became pending.
        delay: Seconds until the first of them is due; infinite without any.
        failed: Chains that have failed with it.
        deleted: Chains that were removed with it.
        more: Whether there may be more to tell: beyond the bound, or those that wait for what has failed with it.
    """

    told: int = 0
    types: set[str] = field(default_factory=set[str])
    delay: float = float("inf")
    failed: set[UUID] = field(default_factory=set[UUID])
    deleted: set[UUID] = field(default_factory=set[UUID])
    more: bool = False


async def resolve(
    connection: Connection,
    statements: dict[str, str],
    chains: Collection[UUID],
    into: Resolved,
    *,
    origin: str | None,
    limit: int | None = None,
    again: bool = False,
) -> None:
    """Tell those that wait for these chains, within the connection's open transaction.

    Arguments:
        connection: In a transaction that has written or locked the chains' rows in `chain_end`, and, where it has ended the
            chains itself, has done so in an earlier statement.
        statements: Those of this module, and maybe others.
        chains: Their ids.
        into: Where what is done is added.
        origin: Who tells other processes; None if nobody is to be told.
        limit: Blocker rows at most; `MOST_TOLD` without.
        again: Whether they may be marked as untold by now.
    """
    if not chains:
        return
    ids, limit = list(chains), MOST_TOLD if limit is None else limit
    _, jobs, ordinals, of_chains, held = await _lock(connection, statements, ids, limit)
    cut = jobs is not None and len(jobs) >= limit
    if jobs is not None:
        edges: Sequence[tuple[UUID, int, UUID]] = list(zip(jobs, ordinals, of_chains, strict=True))
        if held is not None:
            edges = [edge for edge, busy in zip(edges, held, strict=True) if not busy]
        if edges:
            await _tell(connection, statements, edges, into, origin)
    if again or cut or (held is not None and any(held)):
        await connection.fetch(statements["resolve_rest"], ids)
    into.more = into.more or cut


async def _lock(connection: Connection, statements: dict[str, str], ids: list[UUID], limit: int) -> Any:
    """Lock the jobs that wait; those that somebody holds are waited for briefly, and then left alone."""
    await connection.execute(_SAVEPOINT)
    try:
        (row,) = await connection.fetch(statements["resolve_lock"], ids, limit)
    except Exception as error:
        if sqlstate(error) != _LOCKED:  # whatever the driver
            raise
        await connection.execute(_ROLL_BACK)
        (row,) = await connection.fetch(statements["resolve_lock_free"], ids, limit)
    await connection.execute(_RELEASE)
    return row


async def _tell(
    connection: Connection,
    statements: dict[str, str],
    edges: Sequence[tuple[UUID, int, UUID]],
    into: Resolved,
    origin: str | None,
) -> None:
    arguments = [edge[0] for edge in edges], [edge[1] for edge in edges], [edge[2] for edge in edges], origin
    ((told, types, delay, failed, taken, deleted, passed_on, _),) = await connection.fetch(
        statements["resolve_tell"], *arguments
    )
    into.told += told
    into.types |= set(types)
    into.delay = min(into.delay, float("inf") if delay is None else delay)
    into.failed |= set(failed)
    into.deleted |= set(deleted)
    into.more = into.more or passed_on
    if taken:
        await connection.fetch(statements["resolve_taken"], taken)
    if continued := [chain for chain in deleted if chain not in set(taken)]:
        await _remove_steps(connection, statements, continued)


async def _remove_steps(connection: Connection, statements: dict[str, str], chains: list[UUID]) -> None:
    """Remove what is archived of chains that were taken along. A worker's role needn't have the right to; then it stays."""
    await connection.execute("SAVEPOINT aioqueue_steps")
    try:
        await connection.fetch(statements["resolve_taken_steps"], chains, MOST_TOLD)
    except Exception as error:
        if sqlstate(error) != _NOT_ALLOWED:
            raise
        await connection.execute("ROLLBACK TO SAVEPOINT aioqueue_steps")
    await connection.execute("RELEASE SAVEPOINT aioqueue_steps")
