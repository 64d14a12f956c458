"""Retrying: what has failed or was cancelled lives again, and waits again for what lives again.

The ends are locked first; then comes what they wait for, in the order in which inserting takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioqueue.errors import StoreContended
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._insert_edges import blocker_statements
from aioqueue.postgres._resolve_ends import ends_statements, error_of, store_found_ends
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.store_rules._causes import BLOCKER_FAILED
from aioqueue.store_rules._revival import blockers_first
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Revived", "retry", "retry_statements"]

_MOST_LOOKS = 20
"""How often a chain is looked for that goes on at that moment."""

_MOST_DEPENDENTS = 1_000
"""Jobs of one level that live again with one statement."""

_FIND = f"""WITH {ENDS}, wanted AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT last FROM ends)) AND a.state + 0 IN (6, 7)
    ORDER BY a.id FOR UPDATE
)
SELECT ends.asked, ends.id, wanted.id, (SELECT j.state FROM @schema@.job j WHERE j.id = ends.live), ends.last IS NOT NULL
FROM ends LEFT JOIN wanted ON wanted.id = ends.last"""
_EDGES = """SELECT b.job_id, b.ordinal, b.chain_id, b.settled FROM @schema@.blocker b
WHERE b.job_id = ANY($1::uuid[]) ORDER BY b.job_id, b.ordinal"""
# How others were told that they have ended stays for those that haven't been started since.
_ENDED = """SELECT e.chain_id, e.state FROM @schema@.chain_end e WHERE e.chain_id = ANY($1::uuid[])
ORDER BY e.chain_id FOR UPDATE"""

_LOGGED = logged(
    f"""SELECT CASE WHEN state = 0 THEN '{EventKind.BLOCKED}' ELSE '{EventKind.RETRYING}' END, id, chain_id, type, attempt,
           claims, 0::float8 FROM revived""",
    "delay",
)
# Inserted first, deleted second: where a unique key is held by now, the archive's row stays.
_REVIVE = f"""WITH wanted AS MATERIALIZED (
    SELECT a.*, given.open FROM unnest($1::uuid[], $2::integer[]) AS given(id, open)
    CROSS JOIN LATERAL (SELECT a.* FROM @schema@.archive a WHERE a.id = given.id AND a.state + 0 IN (6, 7) OFFSET 0) AS a
), revived AS (
    INSERT INTO @schema@.job (id, type, priority, run_at, state, open_blockers, marked, claims, max_attempts, timeout, chain_id,
                              position, key, unique_key, created_at, trace, tags, retry, metadata, payload, errors, keep,
                              webhook, origin, gates)
    SELECT id, type, least(greatest(priority, 1), 4), clock_timestamp(), CASE WHEN open > 0 THEN 0 ELSE 1 END,
           greatest(open, 0),
           open IS NOT NULL OR webhook IS NOT NULL OR coalesce((SELECT true FROM @schema@.blocker b
                                         WHERE b.chain_id = coalesce(wanted.chain_id, wanted.id) LIMIT 1), false),
           claims, max_attempts, timeout, chain_id, position, key, unique_key, created_at, trace, tags, retry, metadata,
           payload, errors, keep, webhook, origin,
           CASE WHEN EXISTS (SELECT FROM @schema@.gate_past_member m WHERE m.chain_id = coalesce(wanted.chain_id, wanted.id))
                  OR EXISTS (SELECT FROM @schema@.gate_member m WHERE m.chain_id = coalesce(wanted.chain_id, wanted.id))
                THEN '{{}}'::text[] END
    FROM wanted ORDER BY unique_key NULLS FIRST, id
    ON CONFLICT DO NOTHING RETURNING id, type, state, coalesce(chain_id, id) AS chain_id, attempt, claims
), {_LOGGED}, gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM revived)) RETURNING a.id
), begun AS (
    UPDATE @schema@.chain_end e SET untold = false WHERE e.chain_id = ANY(ARRAY(SELECT chain_id FROM revived)) AND e.untold
), past AS (
    DELETE FROM @schema@.gate_past_member m WHERE m.chain_id = ANY(ARRAY(SELECT chain_id FROM revived))
    RETURNING m.chain_id, m.sequence, m.number, m.strict, m.block
), member AS (
    INSERT INTO @schema@.gate_member (chain_id, sequence, number, strict, block) SELECT * FROM past ON CONFLICT DO NOTHING
), let_go AS (
    UPDATE @schema@.gate_member m SET failed = false
    WHERE m.chain_id = ANY(ARRAY(SELECT chain_id FROM revived)) AND m.failed RETURNING m.sequence
), mark AS (
    INSERT INTO @schema@.gate_mark (gate) SELECT 'sequence=' || sequence FROM let_go
), not_asked AS (
    DELETE FROM @schema@.cancel_request r WHERE r.chain_id = ANY(ARRAY(SELECT chain_id FROM revived))
)
SELECT id, chain_id, type, state FROM revived"""
_WAIT_AGAIN = """UPDATE @schema@.blocker b SET resolved = b.chain_id <> ALL($2::uuid[])
WHERE b.job_id = ANY($1::uuid[]) AND b.resolved <> (b.chain_id <> ALL($2::uuid[]))"""
# Those that are blocked still would have been told of the end that doesn't count any more: behind them others have failed.
_DEPENDENTS = """WITH waiting AS MATERIALIZED (
    SELECT b.job_id AS id, bool_and(b.resolved) AS told FROM @schema@.blocker b
    WHERE b.chain_id = ANY($1::uuid[]) AND NOT b.settled GROUP BY b.job_id
), failed AS MATERIALIZED (
    SELECT a.id, coalesce(a.chain_id, a.id) AS chain_id, a.errors FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT id FROM waiting)) AND a.state + 0 = 6 ORDER BY a.id FOR UPDATE
)
SELECT id, chain_id, errors[array_upper(errors, 1)]::text FROM failed
UNION ALL
SELECT NULL, coalesce(j.chain_id, j.id), NULL FROM @schema@.job j
WHERE j.id = ANY(ARRAY(SELECT id FROM waiting WHERE NOT told)) AND j.state + 0 = 0"""

_FORGET = """WITH unseen AS (DELETE FROM @schema@.progress p WHERE p.job_id = ANY($1::uuid[]))
DELETE FROM @schema@.phase p WHERE p.job_id = ANY($1::uuid[])"""


def retry_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "retry_find": _FIND,
        "retry_edges": _EDGES,
        "retry_ended": _ENDED,
        "retry_revive": _REVIVE,
        "retry_wait_again": _WAIT_AGAIN,
        "retry_dependents": _DEPENDENTS,
        "retry_forget": _FORGET,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **blocker_statements(schema),
        **ends_statements(schema),
    }


class _Edge(NamedTuple):
    job_id: UUID
    ordinal: int
    chain_id: UUID
    settled: bool


@dataclass(slots=True)
class Revived:
    """What lives again.

    Attributes:
        chains: Its chains, by job.
        types: The types of those that are pending.
    """

    chains: dict[UUID, UUID] = field(default_factory=dict[UUID, UUID])
    types: set[str] = field(default_factory=set[str])


async def retry(
    connection: Connection, statements: dict[str, str], ids: Sequence[UUID], *, cascade: bool, from_start: bool
) -> tuple[list[Changed], Revived]:
    """Let failed and cancelled jobs live again, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        ids: Of any steps.
        cascade: Whether those live again that failed through them, too.
        from_start: Whether what the given ones have done is forgotten.

    Raises:
        StoreContended, asyncpg.PostgresError: Such as where somebody's open transaction holds a row.
    """
    revived = Revived()
    found = {row[0]: row for row in await connection.fetch(statements["retry_find"], list(ids))}
    wanted = {row[2]: row[1] for row in found.values() if row[2] is not None}
    left = await _revive(connection, statements, wanted, revived)
    if from_start and revived.chains:
        await connection.execute(statements["retry_forget"], list(revived.chains))
    level = set(revived.chains.values())
    blocked: set[UUID] = set()
    while cascade and level:
        before = set(revived.chains)
        rows = await connection.fetch(statements["retry_dependents"], list(level))
        failed = {row[0]: row[1] for row in rows if (error := error_of(row[2])) is not None and error.type == BLOCKER_FAILED}
        await _revive(connection, statements, failed, revived)
        level = {row[1] for row in rows if row[0] is None} - blocked - set(revived.chains.values())
        blocked |= level
        level |= {revived.chains[job_id] for job_id in set(revived.chains) - before}
    return [_became(found[each], revived, left) for each in ids], revived


def _became(row: Sequence[object], revived: Revived, left: Collection[UUID]) -> Changed:
    _, _, job_id, live, archived = row
    if job_id in revived.chains:
        return Changed.DONE
    if job_id is not None:
        # Whoever was found, and locked, meets nothing in its way but its key.
        return Changed.BLOCKER_FAILED if job_id in left else Changed.KEY_HELD
    if live == StoredState.RUNNING:
        return Changed.RUNNING
    if live is None and not archived:
        return Changed.NOT_FOUND
    return Changed.WRONG_STATE


async def _revive(connection: Connection, statements: dict[str, str], jobs: Mapping[UUID, UUID], revived: Revived) -> set[UUID]:
    """Let these live again, given with their chains, but those of which a blocker has failed for good; those are returned.

    Some may wait for others of them, which come first; and they're tried again as long as some live again.
    """
    rows = await connection.fetch(statements["retry_edges"], list(jobs)) if jobs else ()
    edges: dict[UUID, list[_Edge]] = {}
    for row in rows:
        edges.setdefault(row[0], []).append(_Edge(*row))
    await _let_live(connection, statements, {job_id: [] for job_id in jobs if job_id not in edges}, set(), revived)
    job_of = {jobs[job_id]: job_id for job_id in edges}
    levels = blockers_first({chain: {edge.chain_id for edge in edges[job_id]} for chain, job_id in job_of.items()})
    tried = 0
    while edges and tried != len(edges):
        tried = len(edges)
        for level in levels:
            asked = {job_of[chain]: edges[job_of[chain]] for chain in level if job_of[chain] in edges}
            if not asked:
                continue
            live, ended = await _look(connection, statements, {edge.chain_id for each in asked.values() for edge in each})
            able = {
                job_id: each
                for job_id, each in asked.items()
                if all(edge.chain_id in live or edge.settled or ended.get(edge.chain_id) == ChainEnd.COMPLETED for edge in each)
            }
            await _let_live(connection, statements, able, live, revived)
            edges = {job_id: each for job_id, each in edges.items() if job_id not in able}
    return set(edges)


async def _let_live(
    connection: Connection,
    statements: dict[str, str],
    jobs: dict[UUID, list[_Edge]],
    live: Collection[UUID],
    revived: Revived,
) -> None:
    """Let these live again, blocked by those of their edges whose chains are live."""
    ids = sorted(jobs)
    for portion in (ids[start : start + _MOST_DEPENDENTS] for start in range(0, len(ids), _MOST_DEPENDENTS)):
        waits = [sum(edge.chain_id in live for edge in jobs[each]) if jobs[each] else None for each in portion]
        rows = await connection.fetch(statements["retry_revive"], portion, waits)
        if waiting := [row[0] for row in rows if jobs[row[0]]]:
            await connection.execute(statements["retry_wait_again"], waiting, list(live))
        revived.chains.update((row[0], row[1]) for row in rows)
        revived.types |= {row[2] for row in rows if row[3] == StoredState.PENDING}


async def _look(
    connection: Connection, statements: dict[str, str], chains: Collection[UUID]
) -> tuple[set[UUID], dict[UUID, int]]:
    """Mark those of the chains that are live, and lock how the others have ended; of those that are gone there's nothing."""
    live: set[UUID] = set()
    ended: dict[UUID, int] = {}
    asked = sorted(chains)
    missing: set[UUID] = set()
    for _ in range(_MOST_LOOKS):
        rows = await connection.fetch(statements["blockers_mark"], asked)
        live |= {row[0] for row in rows if row[2]}
        asked = [each for each in asked if each not in live]
        if asked:
            await store_found_ends(connection, statements, asked)
            ended.update((row[0], row[1]) for row in await connection.fetch(statements["retry_ended"], asked))
            # Looked for twice: one that goes on at that moment is in neither place.
            asked = [each for each in asked if each not in ended and each not in missing]
            missing.update(asked)
        if not asked:
            return live, ended
    raise StoreContended("a chain goes on so quickly that nothing can be made to wait for it")
