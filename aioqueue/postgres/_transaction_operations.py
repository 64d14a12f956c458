"""Looking and operating within an open transaction: one of the store's own, or one of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_source import PLANNER_SETTINGS
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert_waits import only_looking, waiting_briefly, whole_or_nothing
from aioqueue.postgres._listing import Listings
from aioqueue.postgres._operate_due import DueTime
from aioqueue.postgres._stats import read_stats
from aioqueue.postgres._stats_workers import read_leases, read_standing
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._operate import Operator
    from aioqueue.postgres._operate_apart import Changes
    from aioqueue.postgres._operate_cancel import Cancelled
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._phases import Phase
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["Operations"]

T = TypeVar("T", "Changes", "Cancelled")

# In UTC, as psycopg can't read the last times that there are in other time zones.
_SETTINGS = (*PLANNER_SETTINGS, "timezone = 'UTC'")


class Operations:
    """See `aioqueue.vocabulary._store_operating.Operable`. A verb that raises leaves the transaction as it was.

    Arguments:
        lend: Gives the connection for the time of one verb, in the transaction.
        operator: Gives what changes jobs on a connection; that tells other processes as is right for this one.
        schema: Where the tables are.
        description: The server without a password, for errors.
        tell: Called with what has happened, which is so once the transaction is committed; None where the server tells.
    """

    def __init__(
        self,
        lend: Callable[[], AbstractAsyncContextManager[Connection]],
        operator: Callable[[], Operator],
        schema: Schema,
        description: str,
        tell: Callable[[Notification], object] | None,
    ) -> None:
        self._lend = lend
        self._operator = operator
        self._schema = schema
        self._description = description
        self._tell = tell
        self._listings = Listings(self, schema)

    async def read(self, sql: str, /, *arguments: Any) -> Sequence[Row]:
        """Run one query that changes nothing, as our own sessions would: see `Reader`."""
        with translated(self._description):
            async with self._lend() as connection, only_looking(connection, _SETTINGS):
                return await connection.fetch(sql, *arguments)

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch`."""
        return await self._listings.fetch(ids)

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch_ends`."""
        return await self._listings.fetch_ends(ids)

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """See `aioqueue.abc.Store.list_chain`."""
        return await self._listings.chain(chain_id, limit, cursor)

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_blockers`."""
        return await self._listings.blockers(job_id, limit, after)

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_dependents`."""
        return await self._listings.dependents(chain_id, limit)

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """See `aioqueue.abc.Store.list`."""
        return await self._listings.page(where, limit, cursor, order)

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.Store.list_ids`."""
        return await self._listings.ids(where, limit, cursor)

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """See `aioqueue.abc.Store.find`."""
        return await self._listings.find(types, key)

    async def stats(self) -> Stats:
        """See `aioqueue.abc.Store.stats`."""
        return await read_stats(self, self._schema)

    async def leases(self) -> Sequence[LeaseFacts]:
        """See `aioqueue.abc.Store.leases`."""
        return await read_leases(self, self._schema)

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """See `aioqueue.abc.Store.standing`."""
        return await read_standing(self, self._schema, job_id, types)

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.retry`."""
        return await self._change(
            lambda connection, apart: self._operator().retry_in(
                connection, ids, cascade=cascade, from_start=from_start, apart=apart
            )
        )

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """See `aioqueue.abc.Operable.fetch_phases`."""
        return await self._listings.phases(job_id)

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """See `aioqueue.abc.Operable.fetch_logs`."""
        return await self._listings.logs(job_id)

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.reschedule`."""
        when = DueTime(run_at, delay)
        return await self._change(lambda connection, apart: self._operator().reschedule_in(connection, ids, when, apart=apart))

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.run_now`."""
        return await self._change(lambda connection, apart: self._operator().run_now_in(connection, ids, apart=apart))

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """See `aioqueue.abc.Store.cancel`. None is left out: a row that somebody holds is an error."""
        done = await self._done(lambda connection: self._operator().cancel_in(connection, ids, reason))
        return [done.results[each] for each in ids]

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.delete`. All of it is this transaction."""

        async def delete(connection: Connection, apart: bool) -> Changes:  # noqa: FBT001 - called as the other verbs' lambdas are
            changes = await self._operator().delete_in(connection, ids, cascade=cascade, apart=apart)
            await self._operator().remove_rest_in(connection, changes.more)
            return changes

        return await self._change(delete)

    async def _change(self, change: Callable[[Connection, bool], Awaitable[Changes]]) -> Sequence[Changed]:
        """Change all of them together; on a connection of our own those that somebody holds are left out, if that's refused."""

        async def changed(*, apart: bool) -> Sequence[Changed]:
            return (await self._done(lambda connection: change(connection, apart))).results

        try:
            return await changed(apart=False)
        except StoreContended:
            if self._tell is None:
                raise
            return await changed(apart=True)

    async def _done(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """Change something, and tell of it."""
        # On a connection of the user's rows are waited for as long as its own statements do.
        undone = whole_or_nothing if self._tell is None else waiting_briefly
        with translated(self._description):
            async with self._lend() as connection, undone(connection):
                done = await change(connection)
        if self._tell is not None:
            self._tell(done.told)
        return done
