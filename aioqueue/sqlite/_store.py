"""The store: which thread does what, and who is told afterwards."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.abc import Changed
from aioqueue.errors import ConfigurationError, StoreError
from aioqueue.sqlite import _claim, _operate, _reads, _settle
from aioqueue.sqlite._connections import Connection, begin, connect, in_transaction
from aioqueue.sqlite._connections_threads import DatabaseThreads, Request
from aioqueue.sqlite._foreign import insert_foreign
from aioqueue.sqlite._insert import insert_rows
from aioqueue.sqlite._lease import SQLiteLeaseSession
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._notifications import Listeners
from aioqueue.sqlite._opened import Opened
from aioqueue.sqlite._options import Settings, network_file_system
from aioqueue.sqlite._rows import Unreadable, dump
from aioqueue.sqlite._settle_halving import halved, of_a_row
from aioqueue.sqlite._transaction import OpenTransaction, SQLiteTransaction
from aioqueue.store_rules._life import StoreLife
from aioqueue.vocabulary._job import LostReason, SettleResult

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from uuid import UUID

    from aioqueue.abc import Due, JobFilter, Listener, Notification, Page, Stats
    from aioqueue.vocabulary._job import Claim, ClaimedJob, Inserted, Job, NewJob, Settlement

__all__ = ["SQLiteStore"]

logger = logging.getLogger("aioqueue.sqlite")

T = TypeVar("T")


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
        self._life: StoreLife[Opened] = StoreLife(self.description)
        self._idle = True

    @property
    def description(self) -> str:
        """The file, as a URL."""
        return f"sqlite:///{self._settings.path}"

    @property
    def troubles(self) -> Mapping[str, str]:
        """What is wrong at the moment, by part; empty when all is well."""
        opened = self._life.opened
        if opened is None:
            return {}
        opened.watch.look()
        parts = {"file": opened.watch.trouble, "rows": opened.odd.trouble()}
        return {part: trouble for part, trouble in parts.items() if trouble}

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file, make it if it isn't there, and bring its schema up to date.

        Raises:
            ConfigurationError: It is on a network file system; or the store is open.
            StoreIncompatible: The schema is of a newer aioqueue, or the file holds something else.
            StoreUnavailable: It can't be opened.
        """
        self._check_file_system()
        await self._life.open(self._make_opened)

    def _make_opened(self) -> Opened:
        self._listeners.bind(asyncio.get_running_loop())
        return Opened(self._settings, self._listeners)

    def _check_file_system(self) -> None:
        kind = None if self._settings.allow_network else network_file_system(self._settings.path)
        if kind is not None:
            raise ConfigurationError(
                f"{self._settings.path} is on a network file system ({kind}), whose locks SQLite can't rely on: "
                "use a local disk, or PostgreSQL"
            )

    async def close(self) -> None:
        """Finish what was begun, and close the file; bounded in time. May be called twice."""
        await self._life.close()

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date. Works before `open`."""
        self._check_file_system()
        threads = DatabaseThreads("migration", functools.partial(connect, self._settings))
        try:
            return await threads.call(lambda connection, _: migrate(connection, self._settings.busy_timeout))
        finally:
            threads.close_soon()

    # -- hops -----------------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> Opened:
        return self._life.here()

    async def _write(self, body: Callable[[sqlite3.Connection], tuple[T, Notification | None]]) -> T:
        # One write transaction in one hop; listeners hear of it before the caller goes on.
        timeout = self._settings.busy_timeout

        def run(connection: Connection, request: Request[T]) -> T:
            result, notification = in_transaction(connection, timeout, body, request.is_abandoned)
            self._tell(request, notification)
            return result

        return await self._opened.writer.call(run)

    async def _read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        def run(connection: Connection, _: Request[T]) -> T:
            return _reads.in_snapshot(connection, body)

        return await self._opened.readers.call(run)

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        """Store jobs, all or none. See `aioqueue.abc.Store.insert`.

        A foreign `tx` should have begun IMMEDIATE: otherwise the first write may find the file locked, or changed
        since the transaction's first read, which SQLite refuses at once (`StoreUnavailable`). Listeners hear of a
        foreign commit as of another process's.
        """
        del repeated  # finished jobs are always looked at: it costs one look-up
        if tx is not None:
            opened = self._opened
            opened.watch.check()
            return (await insert_foreign(tx, self._settings.path, jobs)).inserted

        def body(connection: sqlite3.Connection) -> tuple[Sequence[Inserted], Notification | None]:
            result = insert_rows(connection, jobs)
            return result.inserted, result.notification

        return await self._write(body)

    def transaction(self) -> AbstractAsyncContextManager[SQLiteTransaction]:
        """Open a transaction of the store's own; it holds the file's one write lock until the block ends."""
        opened = self._opened
        return OpenTransaction(
            opened.transactions,
            opened.transaction_lock,
            self._settings.busy_timeout,
            self._listeners.tell,
            opened.watch.check,
        )

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(self, worker: str, duration: float, *, extra: bool = False) -> int:
        """Make a lease, and return its id."""
        return await self._write(lambda connection: (_claim.open_lease(connection, worker, duration, extra=extra), None))

    def lease_session(self, *, timeout: float = 10.0) -> SQLiteLeaseSession:
        """What the lease thread uses."""
        opened = self._opened
        return SQLiteLeaseSession(self._settings, timeout, opened.watch, opened.odd, self._listeners.tell_from_thread)

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        """Take due jobs. See `aioqueue.abc.Store.claim`."""
        wanted = _claim.Wanted(lease_id, leases or {}, dump(sorted(set(types))), limit)
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[Sequence[ClaimedJob]]) -> Sequence[ClaimedJob]:
            try:
                # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
                if self._idle and _reads.in_snapshot(connection, lambda each: _claim.pick(each, wanted))[1] == "[]":
                    return []
                if not opened.odd.any_stuck():
                    jobs = in_transaction(connection, timeout, lambda each: _claim.claim(each, wanted), request.is_abandoned)
                    self._idle = not jobs
                    return jobs
            except (Unreadable, StoreError) as error:
                if isinstance(error, StoreError) and not of_a_row(error):
                    raise
            jobs, notification = opened.odd.claim(connection, wanted)
            self._tell(request, notification)
            return jobs

        return await opened.writer.call(run) if limit > 0 else []

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

        return await self._opened.writer.call(run)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """Give claims back unstarted, all or none. A lease's end doesn't depend on that: what can't be given back is logged."""
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[None]) -> None:
            whole = functools.partial(_claim.release, lease_id=lease_id, claims=claims, end=end)
            try:
                self._tell(request, in_transaction(connection, timeout, whole, request.is_abandoned))
            except StoreError as error:
                if not end or not of_a_row(error):
                    raise
                self._tell(request, opened.odd.end(connection, lease_id))

        await opened.writer.call(run)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers. See `aioqueue.abc.Store.take_expired`.

        SQLite's clock is the machine's wall clock. When it is set, leases are compared as if it hadn't been, where
        the machine tells how long it has been running (Linux); elsewhere, keep the clock slewed rather than stepped.
        """
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[list[ClaimedJob]]) -> list[ClaimedJob]:
            waited = begin(connection, timeout, request.is_abandoned)
            take = functools.partial(_claim.take_expired, limit=limit, own=own, waited=waited)
            try:
                jobs, notification = in_transaction(connection, timeout, take, request.is_abandoned, begun=True)
            except Unreadable:
                jobs, notification = opened.odd.take_expired(connection, limit, own, waited)
            self._tell(request, notification)
            return jobs

        return await opened.writer.call(run)

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        """When there is something to do."""
        look = functools.partial(_reads.next_due, types=types, own=own)
        return await self._opened.looks.call(lambda connection, _: _reads.in_snapshot(connection, look))

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

        return await self._opened.writer.call(run)

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """Call the listener with every notification until the context is left."""
        del finished  # telling costs nothing here
        _ = self._opened
        return self._listeners.added(listener, self._wake_writer)

    def _wake_writer(self) -> None:
        # The first listener sets the writer's thread looking for other processes' commits.
        if (opened := self._life.opened) is not None:
            opened.writer.poke()
