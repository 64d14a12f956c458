"""Taking the place of a job that has the same unique key: in its row while it waits, otherwise by taking its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.postgres._events_log import ENQUEUED, logged
from aioqueue.postgres._insert_columns import CLOCK, GIVEN, job_columns, unnested
from aioqueue.postgres._insert_rows import frees_at_start
from aioqueue.postgres._insert_sequences import sequence_columns
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._resolve import Resolved
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Holder", "let_go", "lock_holders", "replace_jobs", "replace_statements"]

# After a wait the conditions are looked at again: what has ended, gone on or freed its key meanwhile isn't returned.
_LOCK = """SELECT j.unique_key, j.id, coalesce(j.chain_id, j.id), j.state, j.position, j.claims FROM @schema@.job j
WHERE j.unique_key = ANY($1::uuid[]) AND (j.claims = 0 OR NOT j.until_started) ORDER BY j.id FOR UPDATE"""
_LET_GO = "UPDATE @schema@.job j SET unique_key = NULL WHERE j.id = ANY($1::uuid[])"
_LOGGED = logged(f"SELECT {ENQUEUED.format(state='state')}, id, chain, type, attempt, claims FROM replaced")
_REPLACE = f"""WITH {CLOCK}, given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], {unnested(2)}, $18::text[], $19::float8[], $20::boolean[], $21::integer[], $23::boolean[])
        AS given(holder, {GIVEN}, key, max_delay, until_started, waits, in_sequence)
), dropped AS (
    DELETE FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[]) AND b.ordinal <> {TAKEN_OVER_ORDINAL}
), undone AS (
    DELETE FROM @schema@.phase p WHERE p.job_id = ANY($1::uuid[])
), unseen AS (
    DELETE FROM @schema@.progress p WHERE p.job_id = ANY($1::uuid[])
), wanted AS MATERIALIZED (
    SELECT given.*, given.waits + (SELECT count(*) FROM @schema@.blocker b WHERE b.job_id = given.holder
                                   AND b.ordinal = {TAKEN_OVER_ORDINAL} AND NOT b.resolved)::integer AS open,
           old.gates IS NOT NULL AS had_gates,
           greatest(clock.now, least(coalesce(given.run_at, clock.now + given.delay * interval '1 second', clock.now),
                                     old.created_at + given.max_delay * interval '1 second')) AS at
    FROM given CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT j.created_at, j.gates FROM @schema@.job j WHERE j.id = given.holder OFFSET 0) AS old
), replaced AS (
    UPDATE @schema@.job j
    SET type = wanted.type, priority = wanted.priority, run_at = wanted.at,
        expires_at = wanted.at + wanted.expires * interval '1 second', max_attempts = wanted.max_attempts,
        timeout = wanted.timeout, trace = wanted.trace, tags = coalesce(wanted.tags::text[], '{{}}'),
        retry = wanted.retry::json, metadata = coalesce(wanted.metadata::json, '{{}}'), payload = wanted.payload::json,
        key = wanted.key, until_started = wanted.until_started, attempt = 0, reschedules = 0, started_at = NULL,
        open_blockers = wanted.open, state = CASE WHEN wanted.open > 0 THEN 0 ELSE 1 END,
        marked = j.marked OR wanted.open > 0 OR wanted.webhook IS NOT NULL, keep = wanted.keep, webhook = wanted.webhook,
        origin = wanted.origin, gate = NULL, gates = CASE WHEN wanted.in_sequence THEN '{{}}'::text[] END
    FROM wanted WHERE j.id = wanted.holder
    RETURNING j.id, coalesce(j.chain_id, j.id) AS chain, j.type, j.attempt, j.claims, j.state, wanted.had_gates,
              greatest(0, extract(epoch FROM j.run_at - (SELECT now FROM clock)))::float8 AS delay
), {_LOGGED}, note AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $22::text, 'd', due.delay, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types, min(delay) AS delay FROM replaced WHERE state = 1 AND delay <= 3600) AS due
    WHERE $22::text IS NOT NULL AND due.types IS NOT NULL
)
SELECT id, type, state, delay, chain, had_gates FROM replaced
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL FROM note WHERE done IS NOT NULL"""
# Whoever stays in a sequence keeps its place, and isn't returned.
_REJOIN = """SELECT given.chain
FROM unnest($1::uuid[], $2::text[], $3::boolean[], $4::boolean[]) AS given(chain, sequence, strict, block)
WHERE @schema@.rejoin_sequence(given.chain, given.sequence, given.strict, given.block)"""


class Holder(NamedTuple):
    """A live job that has a unique key.

    Attributes:
        job_id: Its own id.
        chain_id: Its chain's.
        waits: Whether it's the first of its chain, and isn't running: another one may take its place.
        claimed: Whether it has been started before: then it has no key as one that keeps it until a start.
    """

    job_id: UUID
    chain_id: UUID
    waits: bool
    claimed: bool = False


def replace_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "replace_lock": schema.render(_LOCK),
        "replace_let_go": schema.render(_LET_GO),
        "replace": schema.render(_REPLACE),
        "replace_rejoin": schema.render(_REJOIN),
    }


async def lock_holders(connection: Connection, statements: dict[str, str], hashes: Collection[UUID]) -> dict[UUID, Holder]:
    """Lock those that have these keys; returns them by the keys' hashes."""
    rows = await connection.fetch(statements["replace_lock"], list(hashes))
    waiting = {StoredState.HELD, StoredState.PENDING}
    return {row[0]: Holder(row[1], row[2], row[3] in waiting and row[4] == 0, row[5] > 0) for row in rows}


async def let_go(connection: Connection, statements: dict[str, str], ids: Collection[UUID]) -> None:
    """Take the unique keys from these jobs, which are locked: until the transaction ends nobody but it can have them."""
    await connection.execute(statements["replace_let_go"], list(ids))


async def replace_jobs(
    connection: Connection,
    statements: dict[str, str],
    jobs: Mapping[UUID, NewJob],
    taken_over: Collection[UUID],
    origin: str | None,
    into: Resolved,
) -> dict[UUID, UUID]:
    """Let waiting jobs, which are locked or new, become others; what they wait for from now on is still to be stored.

    Arguments:
        connection: In a transaction that has locked or stored them by an earlier statement.
        statements: Those of this module, and maybe others.
        jobs: What they become, by their own ids.
        taken_over: Those of them that will wait for the chain from which they have taken their keys.
        origin: Who tells other processes; None if nobody is to be told.
        into: Where is added which of them are pending.

    Returns:
        The chains that have come into a sequence by it, by the ids of the jobs that were given.
    """
    rows = await connection.fetch(
        statements["replace"],
        list(jobs),
        *job_columns(list(jobs.values())),
        [job.key for job in jobs.values()],
        [job.max_delay for job in jobs.values()],
        [frees_at_start(job) for job in jobs.values()],
        [len(job.blockers) + (job_id in taken_over) for job_id, job in jobs.items()],
        origin,
        [job.sequence is not None for job in jobs.values()],
    )
    for _, type_, state, delay, _, _ in rows:
        if state == StoredState.PENDING:
            into.types.add(type_)
            into.delay = min(into.delay, delay)
    chains = {row[0]: row[4] for row in rows if row[0] is not None and (row[5] or jobs[row[0]].sequence is not None)}
    if moved := [job_id for job_id in jobs if job_id in chains]:
        jobs_of = {chains[job_id]: jobs[job_id].id for job_id in moved}
        become = [jobs[job_id] for job_id in moved]
        *columns, _ = sequence_columns(become, become)
        joined = await connection.fetch(statements["replace_rejoin"], [chains[job_id] for job_id in moved], *columns)
        return {jobs_of[row[0]]: row[0] for row in joined}
    return {}
