"""Listings: jobs by id, and pages of bounded cost in some order, over live and archived jobs in one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._listing_blockers import blockers_statements, list_blockers, list_dependents
from aioqueue.postgres._listing_chain import chain_statements, fetch_ends, list_chain
from aioqueue.postgres._listing_find import find, find_statements
from aioqueue.postgres._listing_page import PageQuery
from aioqueue.postgres._progress_read import BESIDE, fetch_logs, fetch_phases, progress_read_statements, whole_snapshot
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Reader
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import IdPage, JobFilter, ListOrder, Page
    from aioqueue.vocabulary._phases import Phase

__all__ = ["Listings", "listing_statements"]

_FETCH = f"""SELECT {LIVE_COLUMNS}, {BESIDE} FROM @schema@.job j WHERE j.id = ANY($1::uuid[])
UNION ALL SELECT {ARCHIVED_COLUMNS}, {BESIDE} FROM @schema@.archive j WHERE j.id = ANY($1::uuid[])"""


def listing_statements(schema: Schema) -> dict[str, str]:
    """The statements of this module that are always the same, by name. Those for pages are put together for each filter."""
    return {
        "fetch": schema.render(_FETCH),
        **chain_statements(schema),
        **blockers_statements(schema),
        **find_statements(schema),
        **progress_read_statements(schema),
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
        return [whole_snapshot(found[job_id]) if job_id in found else None for job_id in ids]

    async def fetch_ends(self, ids: Sequence[UUID]) -> list[Job | None]:
        """Show the live or last steps of these jobs' chains, as `aioqueue.abc.Store.fetch_ends` says."""
        return await fetch_ends(self._reader, self._statements["fetch_ends"], ids)

    async def phases(self, job_id: UUID) -> Sequence[Phase]:
        """Show a job's phases, as `aioqueue.abc.Operable.fetch_phases` says."""
        return await fetch_phases(self._reader, self._statements["fetch_phases"], job_id)

    async def logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """Show what a job's handler has logged, as `aioqueue.abc.Operable.fetch_logs` says."""
        return await fetch_logs(self._reader, self._statements["fetch_logs"], job_id)

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

    async def page(self, where: JobFilter, limit: int, cursor: str | None, order: ListOrder) -> Page:
        """Show one page, as `aioqueue.abc.Store.list` says."""
        query = PageQuery(self._schema, where, limit, cursor, order=order)
        return query.read(await self._reader.read(query.sql, *query.arguments))

    async def ids(self, where: JobFilter, limit: int, cursor: str | None) -> IdPage:
        """Show one page of ids, as `aioqueue.abc.Store.list_ids` says."""
        query = PageQuery(self._schema, where, limit, cursor, only_ids=True)
        return query.read_ids(await self._reader.read(query.sql, *query.arguments))
