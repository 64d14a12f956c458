"""Telling those that wait for chains that have ended: within the open transaction of whoever has locked how they ended.

Two statements do it. The first one looks which of them there are, a bounded number, and locks the jobs in the order of their
ids; the second one, whose snapshot sees all that was committed before those locks, counts the ends for each job, and makes it
pending, fails it or removes it. One level at a time: how the chains of those that fail have ended is stored as untold, for
`Store.tend`. What somebody holds for longer than a moment stays untold as well, and so does what a row refuses, such as by a
trigger: whoever tells on his way must not fail for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import LOCKED, NOT_ALLOWED, row_error, sqlstate
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._rows_beside import without_beside
from aioqueue.postgres._settle_archive import archive
from aioqueue.postgres._webhooks_ends import dropped_deliveries, store_deliveries, store_deliveries_statements
from aioqueue.store_rules._causes import BLOCKER_FAILED, WAITED_FOR
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._event_log import EventKind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["MOST_TOLD", "Resolved", "resolve", "resolve_statements"]

MOST_TOLD = 2_000
"""Blocker rows that one transaction resolves at most."""

_SAVEPOINT = f"SAVEPOINT aioqueue_waiting; {WAIT_BRIEFLY}"
_ROLL_BACK = "ROLLBACK TO SAVEPOINT aioqueue_waiting"
_RELEASE = "RELEASE SAVEPOINT aioqueue_waiting"

_LOCK = """WITH edge AS MATERIALIZED (
    SELECT waiting.job_id, waiting.ordinal, ended.chain_id
    FROM unnest($1::uuid[]) AS ended(chain_id)
    CROSS JOIN LATERAL (
        SELECT b.job_id, b.ordinal FROM @schema@.blocker b
        WHERE b.chain_id = ended.chain_id AND NOT b.resolved AND NOT b.job_id = ANY($3::uuid[])
        LIMIT $2::integer) AS waiting
    LIMIT $2::integer
), locked AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT job_id FROM edge)) ORDER BY j.id FOR UPDATE
)
SELECT (SELECT count(*) FROM locked), array_agg(edge.job_id), array_agg(edge.ordinal), array_agg(edge.chain_id)
FROM edge"""
# Looks beyond the jobs that somebody holds: they may be more than a portion. It waits for none, so their order doesn't matter.
_LOCK_FREE = """WITH edge AS MATERIALIZED (
    SELECT waiting.job_id, waiting.ordinal, ended.chain_id
    FROM unnest($1::uuid[]) AS ended(chain_id)
    CROSS JOIN LATERAL (
        SELECT b.job_id, b.ordinal FROM @schema@.blocker b
        LEFT JOIN LATERAL (
            SELECT j.id FROM @schema@.job j WHERE j.id = b.job_id FOR UPDATE OF j SKIP LOCKED) AS locked ON true
        WHERE b.chain_id = ended.chain_id AND NOT b.resolved AND NOT b.job_id = ANY($3::uuid[])
          AND (locked.id IS NOT NULL OR (SELECT true FROM @schema@.job j WHERE j.id = b.job_id LIMIT 1) IS NULL)
        LIMIT $2::integer) AS waiting
    LIMIT $2::integer
)
SELECT count(*), array_agg(edge.job_id), array_agg(edge.ordinal), array_agg(edge.chain_id) FROM edge"""

_ENTRY = f"""json_build_object('attempt', 0, 'at', clock_timestamp(), 'type', '{BLOCKER_FAILED}',
                       'message', '{WAITED_FOR}' || coalesce(gone.cause, 'a chain that is gone'), 'traceback', '')"""
_LOGGED = logged(
    f"""SELECT '{EventKind.UNBLOCKED}', id, chain, type, attempt, claims, delay, NULL AS error FROM pending
    UNION ALL SELECT '{EventKind.FAILED}', id, chain_id, type, attempt, claims, NULL, error FROM failed
    UNION ALL SELECT '{EventKind.DELETED}', gone.id, coalesce(gone.chain_id, gone.id), gone.type, gone.attempt,
           gone.claims, NULL, NULL FROM gone WHERE gone.taken""",
    "delay",
    "error",
)
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
        SELECT e.state, e.cause, e.take_along AND told.ordinal <> {TAKEN_OVER_ORDINAL} AS take_along
        FROM @schema@.chain_end e WHERE e.chain_id = told.chain_id OFFSET 0) AS e
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
    RETURNING id, coalesce(chain_id, id) AS chain_id, type, attempt, claims, errors[array_upper(errors, 1)]::text AS error,
              webhook
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
    RETURNING j.id, coalesce(j.chain_id, j.id) AS chain, j.type, j.attempt, j.claims, j.state, j.run_at
), pending AS MATERIALIZED (
    SELECT id, chain, attempt, claims, type,
           CASE WHEN isfinite(run_at) THEN greatest(0, extract(epoch FROM run_at - now()))::float8 ELSE 'infinity' END AS delay
    FROM counted_down WHERE state = 1
), taken AS MATERIALIZED (
    SELECT gone.id, coalesce(gone.chain_id, gone.id) AS chain_id FROM gone WHERE gone.taken
), {_LOGGED}, note AS MATERIALIZED (
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
       EXISTS (SELECT FROM passed_on), ARRAY(SELECT id FROM failed WHERE webhook IS NOT NULL),
       (SELECT count(*) FROM note WHERE done IS NOT NULL)"""

_LEFT = """coalesce((SELECT true FROM @schema@.blocker b WHERE b.chain_id = e.chain_id AND NOT b.resolved LIMIT 1), false)"""
# Those with some left go to the end of the queue: it may be that somebody holds these, and others wait behind them.
_REST = f"""UPDATE @schema@.chain_end e
SET untold = rest.some, ended_at = CASE WHEN rest.some THEN clock_timestamp() ELSE e.ended_at END
FROM (SELECT e.chain_id, {_LEFT} AS some FROM @schema@.chain_end e WHERE e.chain_id = ANY($1::uuid[]) OFFSET 0) AS rest
WHERE e.chain_id = rest.chain_id AND (e.untold OR rest.some)"""

# Nothing stays of chains that were taken along. Of one with more steps than that, another delete removes the others.
_TAKEN = f"""WITH {dropped_deliveries("SELECT unnest($2::uuid[])")}, {without_beside("SELECT unnest($1::uuid[])")}
DELETE FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[])"""
_TAKEN_STEPS = f"""WITH step AS MATERIALIZED (
    SELECT unnest($1::uuid[]) AS id UNION ALL
    (SELECT s.id FROM @schema@.archive s WHERE s.chain_id = ANY($1::uuid[]) LIMIT $2::integer)
), gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM step))
    RETURNING a.id, a.chain_id, a.type, a.attempt, a.claims
), {without_beside("SELECT id FROM step")},
{logged(f"SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM gone")}
SELECT count(*) FROM gone"""


def resolve_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "resolve_lock": _LOCK,
        "resolve_lock_free": _LOCK_FREE,
        "resolve_tell": _TELL,
        "resolve_rest": _REST,
        "resolve_taken": _TAKEN,
        "resolve_taken_steps": _TAKEN_STEPS,
    }
    return {name: schema.render(template) for name, template in templates.items()} | store_deliveries_statements(schema)


_Edge: TypeAlias = "tuple[UUID, int, UUID]"
"""A job, the place among its blockers, and the chain."""


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
        deliveries: Whether there is something to be sent of chains that have failed with it.
    """

    told: int = 0
    types: set[str] = field(default_factory=set[str])
    delay: float = float("inf")
    failed: set[UUID] = field(default_factory=set[UUID])
    deleted: set[UUID] = field(default_factory=set[UUID])
    more: bool = False
    deliveries: bool = False

    def add(self, other: Resolved) -> None:
        self.told += other.told
        self.types |= other.types
        self.delay = min(self.delay, other.delay)
        self.failed |= other.failed
        self.deleted |= other.deleted
        self.more = self.more or other.more
        self.deliveries = self.deliveries or other.deliveries


async def resolve(
    connection: Connection,
    statements: dict[str, str],
    chains: Collection[UUID],
    into: Resolved,
    *,
    origin: str | None,
    limit: int | None = None,
    marked_untold: bool = False,
    passed_over: Collection[UUID] = (),
    refused: dict[UUID, StoreError] | None = None,
) -> None:
    """Tell those that wait for these chains, within the connection's open transaction.

    What can't be told now stays untold, for `Store.tend`: since somebody holds it, or since a row refuses it.

    Arguments:
        connection: In a transaction that has written or locked the chains' rows in `chain_end`, and, where it has ended the
            chains itself, has done so in an earlier statement.
        statements: Those of this module, and maybe others.
        chains: Their ids.
        into: Where what is done is added.
        origin: Who tells other processes; None if nobody is to be told.
        limit: Blocker rows at most; `MOST_TOLD` without.
        marked_untold: Whether rows of these chains in `chain_end` may say already that some are to be told. Such a mark is
            taken away where nobody is left; a row that this transaction has stored itself has none.
        passed_over: Jobs that aren't told.
        refused: Where jobs are put that refuse to be told, and why; the others are told. Without, nobody is told then.
    """
    if not chains:
        return
    ids, limit = list(chains), MOST_TOLD if limit is None else limit
    await connection.execute(_SAVEPOINT)
    (_, jobs, ordinals, of_chains), all_free = await _lock(connection, statements, ids, limit, passed_over)
    edges: list[_Edge] = [] if jobs is None else list(zip(jobs, ordinals, of_chains, strict=True))
    cut = len(edges) >= limit

    async def tell(some: Sequence[_Edge]) -> None:
        await _tell(connection, statements, some, into, origin)

    whole = True
    if edges and refused is not None:
        undone = await in_halves(connection, edges, tell)
        refused.update({edge[0]: why for edge, why in undone if why is not None})
        whole = not undone
    elif edges:
        try:
            await tell(edges)
        except Exception as error:  # whatever the driver
            if row_error(error) is None:
                raise
            await connection.execute(_ROLL_BACK)
            whole, into.more = False, True
    await connection.execute(_RELEASE)
    if marked_untold or cut or not (whole and all_free):
        await connection.fetch(statements["resolve_rest"], ids)
    into.more = into.more or cut


async def _lock(
    connection: Connection, statements: dict[str, str], ids: list[UUID], limit: int, passed_over: Collection[UUID]
) -> tuple[Any, bool]:
    """Lock the jobs that wait; those that somebody holds are waited for briefly, and then left alone.

    Returns:
        The row that says which, and whether nobody holds any.
    """
    arguments = ids, limit, list(passed_over)
    try:
        return (await connection.fetch(statements["resolve_lock"], *arguments))[0], True
    except Exception as error:  # whatever the driver
        if sqlstate(error) != LOCKED:
            raise
    await connection.execute(_ROLL_BACK)
    return (await connection.fetch(statements["resolve_lock_free"], *arguments))[0], False


async def _tell(
    connection: Connection,
    statements: dict[str, str],
    edges: Sequence[_Edge],
    into: Resolved,
    origin: str | None,
) -> None:
    arguments = [edge[0] for edge in edges], [edge[1] for edge in edges], [edge[2] for edge in edges], origin
    ((told, types, delay, failed, taken, deleted, passed_on, hooked, _),) = await connection.fetch(
        statements["resolve_tell"], *arguments
    )
    if taken:
        await connection.fetch(statements["resolve_taken"], taken, deleted)
    if continued := [chain for chain in deleted if chain not in set(taken)]:
        await _remove_steps(connection, statements, continued)
    if hooked:
        await store_deliveries(connection, statements, hooked, origin=origin)
        into.deliveries = True
    into.told += told
    into.types |= set(types)
    into.delay = min(into.delay, float("inf") if delay is None else delay)
    into.failed |= set(failed)
    into.deleted |= set(deleted)
    into.more = into.more or passed_on


async def _remove_steps(connection: Connection, statements: dict[str, str], chains: list[UUID]) -> None:
    """Remove what is archived of chains that were taken along. A worker's role needn't have the right to; then it stays."""
    await connection.execute("SAVEPOINT aioqueue_steps")
    try:
        await connection.fetch(statements["resolve_taken_steps"], chains, MOST_TOLD)
    except Exception as error:  # whatever the driver
        if sqlstate(error) != NOT_ALLOWED:
            raise
        await connection.execute("ROLLBACK TO SAVEPOINT aioqueue_steps")
    await connection.execute("RELEASE SAVEPOINT aioqueue_steps")
