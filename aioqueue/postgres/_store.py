"""The store on PostgreSQL: see `aioqueue.abc.Store` for what each method promises."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.abc import Changed, Due, JobFilter, LeaseSession, Listener, Notification, Page, Stats
from aioqueue.errors import StoreContended, StoreUnavailable
from aioqueue.postgres import _foreign, _migrations
from aioqueue.postgres._connections_closing import close_connection
from aioqueue.postgres._connections_source import in_transaction
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert import insert_arguments, insert_on, job_size
from aioqueue.postgres._lease import PostgresLeaseSession
from aioqueue.postgres._lease_rights import MISSING_RIGHTS, WORKER, refuse_missing, rights_arguments
from aioqueue.postgres._listing import WALK, PageQuery, narrow_query, read_page
from aioqueue.postgres._notifications import due_note, inserted_types
from aioqueue.postgres._opened import Opened
from aioqueue.postgres._operate import changes
from aioqueue.postgres._options import Options, read_options
from aioqueue.postgres._rows import job_snapshot
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.postgres._statements import all_statements
from aioqueue.postgres._stats import read_stats
from aioqueue.postgres._transaction import TransactionBlock
from aioqueue.store_rules._life import StoreLife
from aioqueue.vocabulary._job import Claim, ClaimedJob, Inserted, Job, NewJob, Settlement, SettleResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from uuid import UUID

    from aioqueue.abc import StoreTransaction
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._settle import Settled

__all__ = ["PostgresStore", "make_store"]

T = TypeVar("T")

# Whoever waits for somebody's open transaction (it holds the same unique key, or a job's row) waits without a connection of
# ours: the few that there are serve every other operation too.
_WAIT_BRIEFLY = "SET LOCAL lock_timeout = '100ms'"
_CONTENDED_SECONDS = 0.2


def make_store(url: str, **options: Any) -> PostgresStore:
    """Make a store that isn't open yet.

    Arguments:
        url: `postgresql://user:password@host:port/database`, also as `postgres://` and `postgresql+asyncpg://`. The
            options below, but for the objects, may stand in its query; the rest of the query is asyncpg's.
        options:
            schema: Name of the schema with the tables; `aioqueue` by default.
            timeout: Seconds that connecting, or one statement, may take; 60 by default.
            pool: An asyncpg pool, which serves `client.transaction()`; all other connections connect as it does.
            connect: An async function without arguments that opens an asyncpg connection. It's called in the client's event
                loop, and for leases in that of a worker's lease thread, unless `lease_connect` is given.
            lease_connect: The same for a worker's lease thread, where `connect` uses something that belongs to the client's
                event loop.
            listen_url: Where to listen for notifications, if not at `url`, such as past a PgBouncer.
            notify: False turns notifications off: jobs are found by polling.
            pgbouncer: True for a PgBouncer in transaction mode without prepared statements.
            prepared_statements: False does the same.
            statement_cache_size: asyncpg's setting of that name; 0 is `prepared_statements=False`.
            pool_size: How many `client.transaction()` blocks may be open at once; 4 by default, or as many as a `pool` has.

    Raises:
        ConfigurationError: The URL or an option can't be used.
    """
    return PostgresStore(read_options(url, options))


class PostgresStore:
    """See `aioqueue.abc.Store`, and `make_store` for the options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._schema = options.schema
        self._source = options.source
        self._statements = all_statements(options.schema)
        self._identity = uuid.uuid4()
        self._origin = str(self._identity) if options.notify else None
        self._life: StoreLife[Opened] = StoreLife(self.description)

    @property
    def description(self) -> str:
        """See `aioqueue.abc.Store.description`."""
        return f"{self._source.description} (schema {self._schema.quoted})"

    @property
    def troubles(self) -> Mapping[str, str]:
        """See `aioqueue.abc.Store.troubles`."""
        return {} if (opened := self._life.opened) is None else opened.troubles

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """See `aioqueue.abc.Store.open`."""
        await self._life.open(lambda: Opened(self._options, self._statements, self._identity))

    async def close(self) -> None:
        """See `aioqueue.abc.Store.close`."""
        await self._life.close()

    async def migrate(self) -> Sequence[str]:
        """See `aioqueue.abc.Store.migrate`."""
        async with self._apart() as connection:
            return await _migrations.migrate(connection, self._schema, _migrations.known_migrations())

    async def pending_migrations(self) -> Sequence[str]:
        """Names of the migrations that `migrate` would run. Works before `open`."""
        async with self._apart() as connection, in_transaction(connection, self._source):
            pending = await _migrations.pending(connection, self._schema, _migrations.known_migrations())
        return [migration.name for migration in pending]

    @asynccontextmanager
    async def _apart(self) -> AsyncGenerator[Connection, None]:
        """A connection for one call, within the store's deadline, whether the store is open or not."""
        connection = await self._source.open()
        deadline = asyncio.timeout(self._source.timeout)
        try:
            async with deadline:
                yield connection
        except Exception as error:
            if deadline.expired():
                raise StoreUnavailable(
                    f"{self.description}: not done within {self._source.timeout:g} s, and rolled back: "
                    "what takes longer, or waits for longer, needs a larger timeout="
                ) from error
            with translated(self._source.description):
                raise
        finally:
            await close_connection(connection)

    def migration_sql(self) -> str:
        """Everything that `migrate` would run on an empty database, as one script for psql."""
        return _migrations.migration_sql(self._schema, _migrations.known_migrations())

    @property
    def _opened(self) -> Opened:
        return self._life.here()

    def _tell(self, notification: Notification) -> None:
        if (opened := self._life.opened) is not None and (notification.types or notification.finished or notification.leases):
            opened.listeners.tell(notification)

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        """See `aioqueue.abc.Store.insert`."""
        pool = self._opened.operations
        if tx is not None:
            return await _foreign.insert(tx, self._schema.name, jobs, repeated=repeated)
        if not jobs:
            return []
        if repeated or any(job.unique for job in jobs) or len(next(in_portions(jobs, job_size))) < len(jobs):
            async with pool.transaction() as connection:
                await connection.execute(_WAIT_BRIEFLY)
                results: Sequence[Inserted] = await self.insert_in(connection, jobs, repeated=repeated)
        else:
            rows = await pool.fetch(self._statements["insert"], *insert_arguments(jobs), self._note(jobs))
            results = _results(jobs, rows)
        created = [job for job, result in zip(jobs, results, strict=True) if result.created]
        self._tell(inserted_types(created if len(created) < len(jobs) else jobs))
        return results

    def statement(self, jobs: Sequence[NewJob], *, placeholder: _foreign.Placeholder = "%s") -> tuple[str, tuple[str]]:
        """See `_foreign.statement`."""
        return _foreign.statement(self._schema.name, jobs, placeholder=placeholder)

    async def insert_in(self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Inserted]:
        """Store jobs within an open transaction of ours."""
        with translated(self._source.description):
            return await insert_on(connection, self._statements, jobs, repeated=repeated, note=self._note(jobs))

    def _note(self, jobs: Sequence[NewJob]) -> str | None:
        if self._origin is None or not jobs:
            return None
        told = inserted_types(jobs)
        return due_note(told.types or (), told.delay, self._origin)

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """See `aioqueue.abc.Store.transaction`."""
        return TransactionBlock(self._opened.users, self.insert_in, self._tell_of, self.description)

    def _tell_of(self, jobs: Sequence[NewJob]) -> None:
        self._tell(inserted_types(jobs))

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(self, worker: str, duration: float, *, extra: bool = False) -> int:
        """See `aioqueue.abc.Store.open_lease`."""
        opened = self._opened
        missing = await opened.work.fetch(MISSING_RIGHTS, *rights_arguments(self._schema, WORKER))
        refuse_missing(missing, self._schema, self.description, "a worker")
        return await opened.ownership.open(worker, duration, extra=extra)

    def lease_session(self, *, timeout: float = 10.0) -> LeaseSession:
        """See `aioqueue.abc.Store.lease_session`."""
        _ = self._opened
        return PostgresLeaseSession(
            self._options.lease_source, self._schema, self._statements, timeout, self._options.lease_option
        )

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        """See `aioqueue.abc.Store.claim`."""
        return await self._opened.claims.claim(lease_id, types, limit, leases=leases)

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        """See `aioqueue.abc.Store.settle`."""
        opened = self._opened
        if not settlements:
            return []
        done: Settled = await opened.settler.settle(settlements, orphaned=orphaned)
        self._tell(
            Notification(
                types=frozenset(each.type for each in done.returned),
                delay=min((each.delay for each in done.returned), default=0.0),
                finished=frozenset(done.finished),
                leases=frozenset(done.ended),
            )
        )
        return done.results

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """See `aioqueue.abc.Store.release`."""
        ownership = self._opened.ownership
        if claims or end:
            types = await (ownership.end(lease_id) if end else ownership.release(lease_id, claims))
            self._tell(Notification(types=frozenset(types)))

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """See `aioqueue.abc.Store.take_expired`."""
        ended, jobs = await self._opened.ownership.take_expired(limit, own)
        self._tell(Notification(leases=frozenset(() if ended is None else (ended,))))
        return jobs

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        """See `aioqueue.abc.Store.next_due`."""
        return await self._opened.ownership.next_due(types, own)

    # -- looking and operating ------------------------------------------------------------------------------------

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch`."""
        rows = await self._opened.operations.read(self._statements["fetch"], list(ids))
        # The live one wins, should both be there.
        found = {row["id"]: row for row in reversed(rows)}
        return [job_snapshot(found[job_id]) if job_id in found else None for job_id in ids]

    async def list(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        """See `aioqueue.abc.Store.list`."""
        narrow = False
        if (question := narrow_query(self._schema, where)) is not None:
            sql, arguments = question
            narrow = (await self._opened.operations.read(sql, *arguments))[0][0] <= WALK
        query = PageQuery(self._schema, where, limit, cursor, narrow=narrow)
        return read_page(await self._opened.operations.read(query.sql, *query.arguments), limit)

    async def stats(self) -> Stats:
        """See `aioqueue.abc.Store.stats`."""
        return read_stats(await self._opened.operations.read(self._statements["stats"]))

    async def retry(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.retry`."""
        return await self._change("retry", ids)

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.run_now`."""
        return await self._change("run_now", ids)

    async def delete(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.delete`."""
        return await self._change("delete", ids)

    async def _change(self, name: str, ids: Sequence[UUID]) -> Sequence[Changed]:
        rows = await self._uncontended(lambda: self._try_to_change(name, ids))
        changed = [row for row in rows if row[1] is not None]
        if name == "delete":
            self._tell(Notification(finished=frozenset(row[0] for row in changed)))
        else:
            self._tell(Notification(types=frozenset(row[1] for row in changed)))
        return changes(rows, ids)

    async def _uncontended(self, change: Callable[[], Awaitable[T]]) -> T:
        """Repeat what meets somebody else's lock, for as long as a statement may take."""
        deadline = time.monotonic() + self._source.timeout
        while True:
            try:
                return await change()
            except StoreContended:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_CONTENDED_SECONDS)

    async def _try_to_change(self, name: str, ids: Sequence[UUID]) -> Sequence[Row]:
        async with self._opened.operations.transaction() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            rows: Sequence[Row] = await connection.fetch(self._statements[name], list(ids))
            types = frozenset(row[1] for row in rows if row[1] is not None)
            if name != "delete" and self._origin is not None and (note := due_note(types, 0.0, self._origin)) is not None:
                await connection.fetch(self._statements["notify"], note)
        return rows

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """See `aioqueue.abc.Store.subscribe`."""
        return self._opened.listeners.subscribe(listener, finished=finished)


def _results(jobs: Sequence[NewJob], rows: Sequence[Row]) -> list[Inserted]:
    created = {row[0] for row in rows}
    results: list[Inserted] = []
    for job in jobs:
        results.append(Inserted(job.id, job.id in created))
        created.discard(job.id)
    return results
