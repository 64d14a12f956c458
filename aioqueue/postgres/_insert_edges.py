"""Blockers of new jobs: chains are marked, or found to have ended, and edges are stored, within an open transaction.

Inserting uses it, and so does whatever stores jobs by ending others. The order of locks: unique keys by their hashes (the
new jobs), live jobs by their ids (the marks), how chains have ended, blocker rows.

Each step of `find_chains` is a statement of its own, whose snapshot is newer than the waits of the one before: a chain that
ends while its live step is waited for is found by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import BlockerNotFound, StoreContended
from aioqueue.postgres._insert_columns import as_text
from aioqueue.postgres._resolve_ends import ends_statements, store_found_ends
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._blockers import NewBlocker

__all__ = [
    "Edge",
    "Found",
    "add_edges",
    "blocker_statements",
    "chains_in_cycles",
    "edges_of",
    "find_chains",
    "lead_on",
    "lock_cycles",
]

_MOST_LOOKS = 20
"""How often a chain is looked for that goes on at that moment, and so is neither found live nor ended."""

# Written also where it's set: a snapshot from before the row's next change must meet an error, and not miss the mark. That a
# live chain has ended can only be left over: from one with the same id that was deleted.
_MARK = """WITH chain AS MATERIALIZED (
    SELECT given.id AS asked,
           coalesce((SELECT coalesce(j.chain_id, j.id) FROM @schema@.job j WHERE j.id = given.id),
                    (SELECT coalesce(a.chain_id, a.id) FROM @schema@.archive a WHERE a.id = given.id LIMIT 1), given.id) AS id
    FROM unnest($1::uuid[]) AS given(id)
), live AS MATERIALIZED (
    SELECT coalesce((SELECT j.id FROM @schema@.job j WHERE j.chain_id = chain.id),
                    (SELECT j.id FROM @schema@.job j WHERE j.id = chain.id)) AS id
    FROM chain
), locked AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM live)) ORDER BY j.id FOR NO KEY UPDATE
), marked AS (
    UPDATE @schema@.job j SET marked = true WHERE j.id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING coalesce(j.chain_id, j.id) AS id
), left_over AS (
    DELETE FROM @schema@.chain_end e WHERE e.chain_id = ANY(ARRAY(SELECT id FROM marked)) AND (e.untold OR e.state = 8)
)
SELECT chain.asked, chain.id, chain.id IN (SELECT id FROM marked) FROM chain"""

# How those have ended whose steps were purged; and of which of the chains there is anything.
_LEFT = """WITH purged AS MATERIALIZED (
    SELECT e.chain_id AS id FROM @schema@.chain_end e
    WHERE e.chain_id = ANY($1::uuid[]) AND e.state <> 8
      AND NOT EXISTS (SELECT FROM @schema@.job j WHERE j.id = e.chain_id)
      AND NOT EXISTS (SELECT FROM @schema@.job j WHERE j.chain_id = e.chain_id)
      AND NOT EXISTS (SELECT FROM @schema@.archive a WHERE a.id = e.chain_id)
      AND NOT EXISTS (SELECT FROM @schema@.archive a WHERE a.chain_id = e.chain_id)
    ORDER BY e.chain_id FOR UPDATE
)
SELECT given.id, given.id IN (SELECT id FROM purged),
       EXISTS (SELECT FROM @schema@.job j WHERE j.id = given.id)
       OR EXISTS (SELECT FROM @schema@.job j WHERE j.chain_id = given.id)
       OR EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id)
       OR EXISTS (SELECT FROM @schema@.archive a WHERE a.chain_id = given.id)
FROM unnest($1::uuid[]) AS given(id)"""

# Rows of a job with the same id that was deleted by SQL may be there, also more of them.
_ADD = """WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::boolean[], $5::text[])
        AS given(job_id, ordinal, chain_id, settled, places)
), left_over AS (
    DELETE FROM @schema@.blocker b USING (SELECT g.job_id, max(g.ordinal) AS last FROM given g GROUP BY g.job_id) AS added
    WHERE b.job_id = added.job_id AND b.ordinal > added.last@kept@
)
INSERT INTO @schema@.blocker (job_id, ordinal, chain_id, settled, places)
SELECT given.job_id, given.ordinal, given.chain_id, given.settled, given.places::json FROM given
ON CONFLICT (job_id, ordinal) DO UPDATE
SET chain_id = excluded.chain_id, settled = excluded.settled, places = excluded.places, resolved = false"""

# Waits no longer than the transaction waits for rows.
_LOCK_CYCLES = "SELECT pg_catalog.pg_advisory_xact_lock(@key@)::text"
_EDGES = """(
        SELECT b.chain_id
        FROM (SELECT j.id FROM @schema@.job j WHERE j.chain_id = @chain@ AND j.state + 0 = 0
              UNION ALL SELECT j.id FROM @schema@.job j WHERE j.id = @chain@ AND j.state + 0 = 0) AS live
        CROSS JOIN LATERAL (
            SELECT b.chain_id FROM @schema@.blocker b WHERE b.job_id = live.id AND NOT b.resolved OFFSET 0) AS b
    ) AS edge"""
_CYCLES = f"""WITH RECURSIVE reached(start, id) AS (
    SELECT given.id, edge.chain_id
    FROM unnest($1::uuid[]) AS given(id) CROSS JOIN LATERAL {_EDGES.replace("@chain@", "given.id")}
    UNION
    SELECT reached.start, edge.chain_id FROM reached CROSS JOIN LATERAL {_EDGES.replace("@chain@", "reached.id")}
)
SELECT DISTINCT start FROM reached WHERE id = start"""
# Whether one of the chains that these jobs wait for, but for the new ones among them, waits for anything itself.
_LEAD_ON = f"""WITH waited AS MATERIALIZED (
    SELECT DISTINCT b.chain_id AS id FROM @schema@.blocker b
    WHERE b.job_id = ANY($1::uuid[]) AND b.chain_id <> ALL($2::uuid[]) AND NOT b.resolved
)
SELECT EXISTS (SELECT FROM waited CROSS JOIN LATERAL {_EDGES.replace("@chain@", "waited.id")})"""


def blocker_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "blockers_mark": _MARK,
        "blockers_left": _LEFT,
        "blockers_add": _ADD.replace("@kept@", ""),
        "blockers_add_kept": _ADD.replace("@kept@", f" AND b.ordinal <> {TAKEN_OVER_ORDINAL}"),
        "blockers_lead_on": _LEAD_ON,
        "blockers_lock_cycles": _LOCK_CYCLES.replace("@key@", str(schema.cycles_lock)),
        "blockers_cycles": _CYCLES,
    }
    return {name: schema.render(template) for name, template in templates.items()} | ends_statements(schema)


class Edge(NamedTuple):
    """A job that waits for a chain, as it's stored."""

    job_id: UUID
    ordinal: int
    chain_id: UUID
    settled: bool
    places: bytes


class Found(NamedTuple):
    """The chains of some ids.

    Attributes:
        chains: The chain of each id that was asked for.
        ended: Those of them that have ended: how is stored in `chain_end`, and locked. The others are marked.
    """

    chains: dict[UUID, UUID]
    ended: set[UUID]


async def find_chains(
    connection: Connection, statements: dict[str, str], ids: Collection[UUID], *, named: Collection[UUID]
) -> Found:
    """Mark the live steps of these chains, so that whoever ends them tells those that wait, or find out how they have ended.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly: see `WAIT_BRIEFLY`. Above READ COMMITTED a chain
            that has changed since it began is a serialization failure.
        statements: Those of this module, and maybe others.
        ids: Of any steps.
        named: Those of them that a caller has asked for. The others had keys that others asked for, a moment ago.

    Raises:
        BlockerNotFound: One of those that were asked for isn't there.
        StoreContended: Another one isn't there any more, or one goes on from step to step all the time.
        asyncpg.PostgresError: Such as where somebody's open transaction holds a row.
    """
    chains: dict[UUID, UUID] = {}
    ended: set[UUID] = set()
    asked = sorted(set(ids))
    gone: set[UUID] = set()
    for _ in range(_MOST_LOOKS):
        if not asked:
            break
        rows = await connection.fetch(statements["blockers_mark"], asked)
        chains.update((row[0], row[1]) for row in rows)
        asked = [row[0] for row in rows if not row[2]]
        missing = sorted({chains[each] for each in asked})
        if missing:
            found, unknown = await _find_ends(connection, statements, missing)
            ended |= found
            asked = [each for each in asked if chains[each] not in found]
            for each in asked:
                # Looked for twice: one that comes to life again at that moment is in neither place.
                if chains[each] in unknown & gone:
                    if each not in named:
                        raise StoreContended(f"the chain of job {each} was deleted while another was to wait for it")
                    raise BlockerNotFound(
                        f"there is no job {each} to wait for: it was never committed, or was deleted", blocker_id=each
                    )
            gone = unknown
    if asked:
        raise StoreContended(f"the chain of job {asked[0]} goes on so quickly that nothing can be made to wait for it")
    return Found(chains, ended)


async def _find_ends(connection: Connection, statements: dict[str, str], chains: Sequence[UUID]) -> tuple[set[UUID], set[UUID]]:
    """Store how these chains have ended; returns those that have, and those of which there is nothing."""
    ended = await store_found_ends(connection, statements, chains)
    left = [each for each in chains if each not in ended]
    rows = await connection.fetch(statements["blockers_left"], left) if left else ()
    return ended | {row[0] for row in rows if row[1]}, {row[0] for row in rows if not (row[1] or row[2])}


def edges_of(job_id: UUID, blockers: Iterable[NewBlocker], chains: Mapping[UUID, UUID]) -> list[Edge]:
    """What is stored of a job's blockers.

    Arguments:
        job_id: The job's.
        blockers: As they were given.
        chains: What their ids stand for; those that aren't there stand for themselves.
    """
    return [
        Edge(job_id, ordinal, chains.get(each.chain_id, each.chain_id), each.settled, each.places)
        for ordinal, each in enumerate(blockers)
    ]


async def add_edges(connection: Connection, statements: dict[str, str], edges: Sequence[Edge], *, kept: bool = False) -> None:
    """Store edges of jobs that are blocked by as many of them.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        edges: What is stored.
        kept: Whether the jobs wait furthermore for those from which they have taken their keys over.

    Raises:
        RowRejected, asyncpg.PostgresError: The places aren't JSON.
    """
    for portion in in_portions(edges, lambda edge: len(edge.places)):
        arguments = (
            [edge.job_id for edge in portion],
            [edge.ordinal for edge in portion],
            [edge.chain_id for edge in portion],
            [edge.settled for edge in portion],
            [as_text(edge.places) for edge in portion],
        )
        await connection.execute(statements["blockers_add_kept" if kept else "blockers_add"], *arguments)


async def lead_on(connection: Connection, statements: dict[str, str], jobs: Collection[UUID], new: Collection[UUID]) -> bool:
    """Whether a chain that was marked for these jobs waits for others itself, so that the jobs' edges may close a circle.

    Arguments:
        connection: In a transaction that has marked what the jobs wait for, by an earlier statement.
        statements: Those of this module, and maybe others.
        jobs: Their edges are stored by now.
        new: Those of them that nobody else can know of.
    """
    ((found,),) = await connection.fetch(statements["blockers_lead_on"], list(jobs), list(new))
    return bool(found)


async def lock_cycles(connection: Connection, statements: dict[str, str]) -> None:
    """Let nobody else add edges between chains that are there already, until the transaction ends.

    It comes before `chains_in_cycles`, as a statement of its own: two that would close a cycle together see each other then.
    """
    await connection.fetch(statements["blockers_lock_cycles"])


async def chains_in_cycles(connection: Connection, statements: dict[str, str], chains: Collection[UUID]) -> set[UUID]:
    """Those of these chains that wait for themselves, by way of whatever others; their edges are stored by now."""
    rows = await connection.fetch(statements["blockers_cycles"], list(chains))
    return {row[0] for row in rows}
