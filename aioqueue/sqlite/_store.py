"""The store: which thread does what, and who is told afterwards."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue._job import LostReason, SettleResult
from aioqueue.abc import Changed
from aioqueue.errors import ClientClosed, ConfigurationError, StoreError
from aioqueue.sqlite import _claim, _operate, _reads, _settle
from aioqueue.sqlite._connection import Connection, begin, connect, in_transaction
from aioqueue.sqlite._foreign import insert_foreign
from aioqueue.sqlite._halving import halved, of_a_row
from aioqueue.sqlite._insert import insert_rows
from aioqueue.sqlite._lease import SQLiteLeaseSession
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._notifications import Housekeeping, Listeners
from aioqueue.sqlite._odd import OddRows
from aioqueue.sqlite._rows import Unreadable, dump
from aioqueue.sqlite._threads import DatabaseThreads, Request
from aioqueue.sqlite._transaction import SQLiteTransaction, open_transaction
from aioqueue.sqlite._url import Settings, network_file_system

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from uuid import UUID

    from aioqueue._job import Claim, ClaimedJob, Inserted, Job, NewJob, Settlement
    from aioqueue.abc import Due, JobFilter, Listener, Notification, Page, Stats

__all__ = ["SQLiteStore"]

logger = logging.getLogger("aioqueue.sqlite")

T = TypeVar("T")

_READERS = 2
_CLOSE_SECONDS = 5.0


class SQLiteStore:
    """Jobs in one SQLite file, shared by any number of processes of one machine. See `aioqueue.abc.Store`.

    One thread writes, a whole transaction per hop; two others read; each of the store's own transactions has one
    while it's open. The event loop never waits for a lock.

    Arguments:
        settings: Which file, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listeners = Listeners()
        self._writer: DatabaseThreads | None = None
        self._readers: DatabaseThreads | None = None
        self._transactions: DatabaseThreads | None = None
        self._transaction_lock = asyncio.Lock()
        self._odd = OddRows(settings.busy_timeout)
        self._idle = True

    @property
    def description(self) -> str:
        """The file, as a URL."""
        return f"sqlite:///{self._settings.path}"

    @property
    def troubles(self) -> Mapping[str, str]:
        """What is wrong at the moment, by part; empty when all is well."""
        odd = self._odd.trouble()
        return {"rows": odd} if odd else {}

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file, make it if it isn't there, and bring its schema up to date.

        Raises:
            ConfigurationError: It is on a network file system; or the store is open.
            StoreIncompatible: The schema is of a newer aioqueue, or the file holds something else.
            StoreUnavailable: It can't be opened.
        """
        if self._writer is not None:
            raise ConfigurationError(f"{self.description} is open already")
        self._check_file_system()
        self._listeners.bind(asyncio.get_running_loop())
        self._transaction_lock = asyncio.Lock()
        housekeeping = Housekeeping(self._settings, self._listeners)
        open_writer = functools.partial(connect, self._settings, tolerant=True)
        self._writer = DatabaseThreads("writer", open_writer, tick=housekeeping.tick, interval=housekeeping.interval)
        self._readers = DatabaseThreads("reader", functools.partial(connect, self._settings, tolerant=True), count=_READERS)
        try:
            await self._writer.call(lambda connection, _: migrate(connection, self._settings.busy_timeout))
        except BaseException:
            self._writer.close_soon()
            self._readers.close_soon()
            self._writer = self._readers = None
            raise

    def _check_file_system(self) -> None:
        kind = None if self._settings.allow_network else network_file_system(self._settings.path)
        if kind is not None:
            raise ConfigurationError(
                f"{self._settings.path} is on a network file system ({kind}), whose locks SQLite can't rely on: "
                "use a local disk, or PostgreSQL"
            )

    async def close(self) -> None:
        """Finish what was begun, and close the file; bounded in time. May be called twice."""
        threads = [each for each in (self._writer, self._readers, self._transactions) if each is not None]
        self._writer = self._readers = self._transactions = None
        for each in threads:
            each.close_soon()
        for each in threads:
            await each.wait_closed(_CLOSE_SECONDS)

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date. Works before `open`."""
        self._check_file_system()
        threads = DatabaseThreads("migration", functools.partial(connect, self._settings))
        try:
            return await threads.call(lambda connection, _: migrate(connection, self._settings.busy_timeout))
        finally:
            threads.close_soon()

    # -- hops -----------------------------------------------------------------------------------------------------

    def _opened(self, threads: DatabaseThreads | None) -> DatabaseThreads:
        if threads is None:
            raise ClientClosed(f"{self.description} isn't open, or was closed")
        return threads

    async def _write(self, body: Callable[[sqlite3.Connection], tuple[T, Notification | None]]) -> T:
        # One write transaction in one hop; listeners hear of it before the caller goes on.
        timeout = self._settings.busy_timeout

        def run(connection: Connection, request: Request[T]) -> T:
            result, notification = in_transaction(connection, timeout, body, request.is_abandoned)
            self._tell(request, notification)
            return result

        return await self._opened(self._writer).call(run)

    async def _read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        def run(connection: Connection, _: Request[T]) -> T:
            return _reads.in_snapshot(connection, body)

        return await self._opened(self._readers).call(run)

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        """Store jobs, all or none. See `aioqueue.abc.Store.insert`.

        A foreign `tx` should have begun IMMEDIATE: otherwise the first write may find the file locked, or changed
        since the transaction's first read, which SQLite refuses at once (`StoreUnavailable`). Listeners hear of a
        foreign commit as of another process's.
        """
        del repeated  # finished jobs are always looked at: it costs one look-up
        if tx is not None:
            self._opened(self._writer).check_process()
            return (await insert_foreign(tx, self._settings.path, jobs)).inserted

        def body(connection: sqlite3.Connection) -> tuple[Sequence[Inserted], Notification | None]:
            result = insert_rows(connection, jobs)
            return result.inserted, result.notification

        return await self._write(body)

    def transaction(self) -> AbstractAsyncContextManager[SQLiteTransaction]:
        """Open a transaction of the store's own; it holds the file's one write lock until the block ends."""
        self._opened(self._writer)
        if self._transactions is None:
            self._transactions = DatabaseThreads("transaction", functools.partial(connect, self._settings))
        return open_transaction(self._transactions, self._transaction_lock, self._settings.busy_timeout, self._listeners.tell)

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(self, worker: str, duration: float) -> int:
        """Make a lease, and return its id."""
        return await self._write(lambda connection: (_claim.open_lease(connection, worker, duration), None))

    def lease_session(self, *, timeout: float = 10.0) -> SQLiteLeaseSession:
        """What the lease thread uses."""
        self._opened(self._writer)
        return SQLiteLeaseSession(self._settings, timeout, self._odd, self._listeners.tell_from_thread)

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        """Take due jobs. See `aioqueue.abc.Store.claim`."""
        wanted = _claim.Wanted(lease_id, leases or {}, dump(sorted(set(types))), limit)
        timeout = self._settings.busy_timeout

        def run(connection: Connection, request: Request[Sequence[ClaimedJob]]) -> Sequence[ClaimedJob]:
            try:
                # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
                if self._idle and _reads.in_snapshot(connection, lambda each: _claim.pick(each, wanted))[1] == "[]":
                    return []
                if not self._odd.any_stuck():
                    jobs = in_transaction(connection, timeout, lambda each: _claim.claim(each, wanted), request.is_abandoned)
                    self._idle = not jobs
                    return jobs
            except (Unreadable, StoreError) as error:
                if isinstance(error, StoreError) and not of_a_row(error):
                    raise
            jobs, notification = self._odd.claim(connection, wanted)
            self._tell(request, notification)
            return jobs

        threads = self._opened(self._writer)
        return await threads.call(run) if limit > 0 else []

    def _tell(self, request: Request[Any], notification: Notification | None) -> None:
        if notification is not None and len(self._listeners):
            request.tell = functools.partial(self._listeners.tell, notification)

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        """Write how attempts ended, each on its own. See `aioqueue.abc.Store.settle`."""
        write = functools.partial(_settle.settle, orphaned=orphaned)

        def run(connection: Connection, request: Request[list[SettleResult]]) -> list[SettleResult]:
            results: list[SettleResult] = []
            notifications: list[Notification] = []
            for _, outcome in halved(connection, self._settings.busy_timeout, settlements, write, request.is_abandoned):
                if isinstance(outcome, StoreError):
                    results.append(SettleResult(LostReason.ERROR, str(outcome)))
                else:
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
            self._tell(request, _settle.merged(notifications))
            return results

        return await self._opened(self._writer).call(run)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """Give claims back unstarted. One that can't be written stays as it is, and is told in the log."""
        timeout = self._settings.busy_timeout

        def run(connection: Connection, request: Request[None]) -> None:
            whole = functools.partial(_claim.release, lease_id=lease_id, claims=claims, end=end)
            try:
                self._tell(request, in_transaction(connection, timeout, whole, request.is_abandoned))
            except StoreError as error:
                if not of_a_row(error):
                    raise
                self._tell(request, self._odd.release(connection, lease_id, claims, end=end))

        await self._opened(self._writer).call(run)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers. See `aioqueue.abc.Store.take_expired`.

        SQLite's clock is the machine's wall clock. When it is set, leases are compared as if it hadn't been, where
        the machine tells how long it has been running (Linux); elsewhere, keep the clock slewed rather than stepped.
        """
        timeout = self._settings.busy_timeout

        def run(connection: Connection, request: Request[list[ClaimedJob]]) -> list[ClaimedJob]:
            waited = begin(connection, timeout, request.is_abandoned)
            take = functools.partial(_claim.take_expired, limit=limit, own=own, waited=waited)
            try:
                jobs, notification = in_transaction(connection, timeout, take, request.is_abandoned, begun=True)
            except Unreadable:
                jobs, notification = self._odd.take_expired(connection, limit, own, waited)
            self._tell(request, notification)
            return jobs

        return await self._opened(self._writer).call(run)

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        """When there is something to do."""
        return await self._read(lambda connection: _reads.next_due(connection, types, own))

    # -- looking and operating ------------------------------------------------------------------------------------

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots in the order of the ids."""
        return await self._read(lambda connection: _reads.fetch(connection, ids))

    async def list(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        """One page of jobs, newest id first."""
        return await self._read(lambda connection: _reads.list_jobs(connection, where, limit, cursor))

    async def stats(self) -> Stats:
        """Numbers by type and state."""
        return await self._read(_reads.stats)

    async def retry(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Make failed or cancelled jobs pending again."""
        return await self._change(ids, _operate.retry)

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Make pending jobs due now."""
        return await self._change(ids, _operate.run_now)

    async def delete(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Remove jobs that aren't running."""
        return await self._change(ids, _operate.delete)

    async def _change(self, ids: Sequence[UUID], change: _operate.Change) -> Sequence[Changed]:
        # A row that refuses it is told in the log, and doesn't keep the others from being changed.
        def run(connection: Connection, request: Request[list[Changed]]) -> list[Changed]:
            results: list[Changed] = []
            notifications: list[Notification] = []
            for part, outcome in halved(connection, self._settings.busy_timeout, ids, change, request.is_abandoned):
                if not isinstance(outcome, StoreError):
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
                elif len(ids) == 1:
                    raise outcome
                else:
                    results.append(Changed.WRONG_STATE)
                    logger.error("job %s can't be changed: %s", part[0], outcome)
            self._tell(request, _settle.merged(notifications))
            return results

        return await self._opened(self._writer).call(run)

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """Call the listener with every notification until the context is left."""
        del finished  # telling costs nothing here
        self._opened(self._writer)
        return self._listeners.added(listener, self._wake_writer)

    def _wake_writer(self) -> None:
        # The first listener sets the writer's thread looking for other processes' commits.
        if self._writer is not None and not self._writer.closed:
            self._writer.poke()
