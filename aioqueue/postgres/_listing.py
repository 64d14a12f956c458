"""Listings: pages of bounded cost, newest id first, over live and archived jobs in one snapshot.

A page is merged from sources, each a range of one index read downwards, with a bound. Where a source was cut by its
bound, nothing below its last row is shown: the page ends there, and the next one goes on from there. So a page may
have fewer rows than asked for, or none, and still have a successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._listing_blockers import blockers_statements, list_blockers, list_dependents
from aioqueue.postgres._listing_chain import chain_statements, fetch_ends, list_chain
from aioqueue.postgres._listing_find import find, find_statements
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS, job_snapshot
from aioqueue.store_rules._cursors import read_cursor, write_cursor
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._listing import IdPage, JobFilter, ListOrder, Page

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections_driver import Reader, Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job

__all__ = ["Listings", "PageQuery", "listing_statements", "narrow_query"]

WALK = 5_000
"""Rows that one page looks at, at most, in a source that has to be filtered row by row."""

_NEWEST = UUID(int=2**128 - 1)
_ARCHIVED_STATES = {JobState.COMPLETED: 4, JobState.CONTINUED: 5, JobState.FAILED: 6, JobState.CANCELLED: 7}
_LIVE_CONDITIONS = {
    JobState.BLOCKED: "j.state = 0",
    JobState.SCHEDULED: "(j.state = 1 AND j.run_at > statement_timestamp())",
    JobState.READY: "(j.state = 1 AND j.run_at <= statement_timestamp())",
    JobState.RUNNING: "j.state = 2",
}
_FETCH = f"""SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = ANY($1::uuid[])
UNION ALL SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.id = ANY($1::uuid[])"""
_ALL_TYPES = """archived_type AS (
    (SELECT a.type FROM @schema@.archive a ORDER BY a.type LIMIT 1)
    UNION ALL
    SELECT (SELECT a.type FROM @schema@.archive a WHERE a.type > t.type ORDER BY a.type LIMIT 1)
    FROM archived_type t WHERE t.type IS NOT NULL
)"""


def listing_statements(schema: Schema) -> dict[str, str]:
    """The statements of this module that are always the same, by name. Those for pages are put together for each filter."""
    return {
        "fetch": schema.render(_FETCH),
        **chain_statements(schema),
        **blockers_statements(schema),
        **find_statements(schema),
    }


class Listings:
    """Shows jobs: those with these ids, or pages of all.

    Arguments:
        reader: Where it asks.
        schema: Where the tables are.
    """

    def __init__(self, reader: Reader, schema: Schema) -> None:
        self._reader = reader
        self._schema = schema
        self._statements = listing_statements(schema)

    async def fetch(self, ids: Sequence[UUID]) -> list[Job | None]:
        """Show these jobs, as `aioqueue.abc.Store.fetch` says."""
        rows = await self._reader.read(self._statements["fetch"], list(ids))
        # The live one wins, should both be there.
        found = {row[0]: row for row in reversed(rows)}
        return [job_snapshot(found[job_id]) if job_id in found else None for job_id in ids]

    async def fetch_ends(self, ids: Sequence[UUID]) -> list[Job | None]:
        """Show the live or last steps of these jobs' chains, as `aioqueue.abc.Store.fetch_ends` says."""
        return await fetch_ends(self._reader, self._statements["fetch_ends"], ids)

    async def chain(self, chain_id: UUID, limit: int, cursor: str | None) -> Page:
        """Show one page of a chain's steps, as `aioqueue.abc.Store.list_chain` says."""
        return await list_chain(self._reader, self._statements["list_chain"], chain_id, limit, cursor)

    async def blockers(self, job_id: UUID, limit: int, after: int) -> list[Blocker]:
        """Show what a job waits for, as `aioqueue.abc.Store.list_blockers` says."""
        return await list_blockers(self._reader, self._statements["list_blockers"], job_id, limit, after)

    async def dependents(self, chain_id: UUID, limit: int) -> list[Blocker]:
        """Show who waits for a chain, as `aioqueue.abc.Store.list_dependents` says."""
        return await list_dependents(self._reader, self._statements["list_dependents"], chain_id, limit)

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """Show the live or last step of the chain with this key, as `aioqueue.abc.Store.find` says."""
        return await find(self._reader, self._statements["find"], types, key)

    async def ids(self, where: JobFilter, limit: int, cursor: str | None) -> IdPage:
        """Show one page of ids, as `aioqueue.abc.Store.list_ids` says."""
        page = await self.page(where, limit, cursor)
        return IdPage(tuple(job.id for job in page.jobs), page.cursor)

    async def page(self, where: JobFilter, limit: int, cursor: str | None) -> Page:
        """Show one page, as `aioqueue.abc.Store.list` says."""
        narrow = False
        if (question := narrow_query(self._schema, where)) is not None:
            sql, arguments = question
            narrow = (await self._reader.read(sql, *arguments))[0][0] <= WALK
        query = PageQuery(self._schema, where, limit, cursor, narrow=narrow)
        return _read_page(await self._reader.read(query.sql, *query.arguments), limit)


class _Arguments:
    """Numbers a statement's parameters as they come up."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any, sql_type: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{sql_type}"


def _pending_condition(states: frozenset[JobState]) -> str | None:
    """How ready and scheduled jobs are asked for in the ready index; None if neither is."""
    pending = states & {JobState.READY, JobState.SCHEDULED}
    if not states or len(pending) == 2:
        return ""
    if not pending:
        return None
    return " AND j.run_at <= statement_timestamp()" if JobState.READY in pending else " AND j.run_at > statement_timestamp()"


def _candidates(where: JobFilter, arguments: _Arguments, bound: int) -> str | None:
    """Ids of live jobs by their types and states, by way of the partial indexes; None where these don't help."""
    pending = _pending_condition(where.states)
    parts: list[str] = []
    if pending is not None:
        if not where.types:
            return None
        types, priorities = lanes_of(sorted(where.types))
        parts.append(
            f"""SELECT lane_job.id FROM unnest({arguments.add(types, "text[]")}, {arguments.add(priorities, "smallint[]")})
                    AS lane(type, priority)
                CROSS JOIN LATERAL (SELECT j.id FROM @schema@.job j WHERE j.state = 1 AND j.type = lane.type
                    AND j.priority = lane.priority{pending} LIMIT {bound}) AS lane_job"""
        )
    if not where.states or JobState.RUNNING in where.states:
        parts.append(f"(SELECT j.id FROM @schema@.job j WHERE j.state = 2 LIMIT {bound})")
    if not where.states or JobState.BLOCKED in where.states:
        parts.append(f"(SELECT j.id FROM @schema@.job j WHERE j.state = 0 LIMIT {bound})")
    return " UNION ALL ".join(parts)


def narrow_query(schema: Schema, where: JobFilter) -> tuple[str, list[Any]] | None:
    """Ask how many live jobs the partial indexes have for this filter, up to `WALK` + 1.

    Returns:
        None where they don't help, or aren't needed.
    """
    if where.key is not None or where == JobFilter() or (where.states and not where.states & _LIVE_CONDITIONS.keys()):
        return None
    arguments = _Arguments()
    candidates = _candidates(where, arguments, WALK + 1)
    if candidates is None:
        return None
    return schema.render(
        f"SELECT count(*) FROM (SELECT FROM ({candidates}) AS each LIMIT {WALK + 1}) AS candidate"
    ), arguments.values


class PageQuery:
    """The statement for one page.

    Arguments:
        schema: Where the tables are.
        where: The filter.
        limit: Rows of the page.
        cursor: Where it begins.
        narrow: Whether the partial indexes have few live jobs for the filter, so that all of them are looked at.

    Raises:
        ValueError: The cursor isn't one of ours.
    """

    def __init__(self, schema: Schema, where: JobFilter, limit: int, cursor: str | None, *, narrow: bool) -> None:
        self._where = where
        self._arguments = _Arguments()
        self.limit = limit
        before = _NEWEST if cursor is None else read_cursor(ListOrder.NEWEST, cursor)[0]
        self._before = self._arguments.add(before, "uuid")
        self._rows = self._arguments.add(limit + 1, "integer")
        self._walk = ""
        recursive = ""
        sources: list[str] = []
        if not where.states or where.states & _LIVE_CONDITIONS.keys():
            sources.append(self._live(narrow=narrow))
        archived_states = sorted(_ARCHIVED_STATES[state] for state in where.states if state in _ARCHIVED_STATES)
        if not where.states or archived_states:
            source, recursive = self._archived(archived_states)
            sources.append(source)
        self.sql = schema.render(self._statement(recursive, sources))
        self.arguments = self._arguments.values

    def _statement(self, recursive: str, sources: Sequence[str]) -> str:
        return f"""WITH RECURSIVE {recursive}{"," if recursive else ""} sources AS MATERIALIZED (
    {" UNION ALL ".join(sources)}
), edge AS MATERIALIZED (
    SELECT id FROM sources WHERE last ORDER BY id DESC LIMIT 1
), chosen AS MATERIALIZED (
    SELECT id, live FROM sources WHERE passes AND id >= coalesce((SELECT id FROM edge), '00000000-0000-0000-0000-000000000000')
    ORDER BY id DESC LIMIT {self._rows}
)
SELECT (SELECT id FROM edge) AS edge, page.*
FROM (SELECT) AS once LEFT JOIN (
    SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE live))
    UNION ALL
    SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE NOT live))
) AS page ON true
ORDER BY page.id DESC"""

    def _source(self, table: str, columns: Sequence[str], values: Sequence[str], *, passes: Sequence[str], live: bool) -> str:
        """A range of the index on these columns and id, downwards; filtered row by row by `passes`, within a bound.

        The range is a comparison of rows, and the order names all columns: no other index can give that, so that the
        planner doesn't come to think that walking along the ids and filtering is cheaper.
        """
        if passes and not self._walk:
            self._walk = self._arguments.add(max(WALK, self.limit + 1), "integer")
        bound = self._walk if passes else self._rows
        least = f" AND ({', '.join(columns)}) >= ({', '.join(values)})" if columns else ""
        return f"""SELECT id, {str(live).lower()} AS live, passes, row_number() OVER (ORDER BY id DESC) = {bound} AS last
    FROM (SELECT j.id, {" AND ".join(passes) or "true"} AS passes FROM @schema@.{table} j
          WHERE ({", ".join([*columns, "j.id"])}) < ({", ".join([*values, self._before])}){least}
          ORDER BY {", ".join(f"{column} DESC" for column in [*columns, "j.id"])} LIMIT {bound}) AS found"""

    def _tag(self) -> list[str]:
        return [f"{self._arguments.add(self._where.tag, 'text')} = ANY(j.tags)"] if self._where.tag is not None else []

    def _types(self) -> list[str]:
        return [f"j.type = ANY({self._arguments.add(sorted(self._where.types), 'text[]')})"] if self._where.types else []

    def _live(self, *, narrow: bool) -> str:
        where = self._where
        conditions = [text for state, text in _LIVE_CONDITIONS.items() if state in where.states]
        passes = [*self._types(), *self._tag(), *([f"({' OR '.join(conditions)})"] if conditions else [])]
        if where.key is not None:
            return self._source("job", ["j.key"], [self._arguments.add(where.key, "text")], passes=passes, live=True)
        candidates = _candidates(where, self._arguments, WALK * 4) if narrow else None
        if candidates is None:
            return self._source("job", [], [], passes=passes, live=True)
        return f"""SELECT j.id, true AS live, {" AND ".join(passes) or "true"} AS passes, false AS last
    FROM @schema@.job j WHERE j.id = ANY(ARRAY({candidates})) AND j.id < {self._before}"""

    def _archived(self, states: Sequence[int]) -> tuple[str, str]:
        where = self._where
        if where.key is not None:
            passes = [*self._types(), *self._tag()]
            if states:
                passes.append(f"j.state = ANY({self._arguments.add(states, 'smallint[]')})")
            key = self._arguments.add(where.key, "text")
            return self._source("archive", ["j.key"], [key], passes=passes, live=False), ""
        if not where.types and not states:
            return self._source("archive", [], [], passes=self._tag(), live=False), ""
        recursive = "" if where.types else _ALL_TYPES
        types = f"unnest({self._arguments.add(sorted(where.types), 'text[]')}) AS t(type)" if where.types else "archived_type t"
        every = states or sorted(_ARCHIVED_STATES.values())
        range_ = self._source("archive", ["j.type", "j.state"], ["t.type", "s.state"], passes=self._tag(), live=False)
        return (
            f"""SELECT lane.* FROM {types} CROSS JOIN unnest({self._arguments.add(every, "smallint[]")}) AS s(state)
    CROSS JOIN LATERAL ({range_}) AS lane WHERE t.type IS NOT NULL""",
            recursive,
        )


def _read_page(rows: Sequence[Row], limit: int) -> Page:
    """Make the page of a `PageQuery`'s rows."""
    edge = rows[0][0]
    jobs = [job_snapshot(row[1:]) for row in rows if row[1] is not None]
    if len(jobs) > limit:
        jobs = jobs[:limit]
        return Page(tuple(jobs), write_cursor(ListOrder.NEWEST, jobs[-1].id))
    return Page(tuple(jobs), None if edge is None else write_cursor(ListOrder.NEWEST, UUID(int=edge.int)))
