"""The store: which thread does what, and who is told afterwards."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.abc import Changed
from aioqueue.errors import ConfigurationError, StoreError
from aioqueue.sqlite import _claim, _listing, _operate, _recovery
from aioqueue.sqlite._claim_odd import claim_one_by_one
from aioqueue.sqlite._connections import Connection, begin, connect, in_snapshot, in_transaction
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._connections_threads import DatabaseThreads, Request
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._foreign import insert_foreign
from aioqueue.sqlite._insert import insert_rows
from aioqueue.sqlite._lease import SQLiteLeaseSession, end_one_by_one, open_lease, release
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._opened import Opened
from aioqueue.sqlite._options import Settings, network_file_system, read_url
from aioqueue.sqlite._rows import Unreadable, dump
from aioqueue.sqlite._settle import settle
from aioqueue.sqlite._stats import stats
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

__all__ = ["SQLiteStore", "make_store"]

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
        await self._life.open(functools.partial(Opened, self._settings))

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
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[T]) -> T:
            result, notification = in_transaction(connection, timeout, body, request.is_abandoned)
            opened.tell(request, notification)
            return result

        return await opened.writer.call(run)

    async def _read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        def run(connection: Connection, _: Request[T]) -> T:
            return in_snapshot(connection, body)

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
            opened.listeners.tell,
            opened.watch.check,
        )

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(self, worker: str, duration: float, *, extra: bool = False) -> int:
        """Make a lease, and return its id."""
        return await self._write(lambda connection: (open_lease(connection, worker, duration, extra=extra), None))

    def lease_session(self, *, timeout: float = 10.0) -> SQLiteLeaseSession:
        """What the lease thread uses."""
        opened = self._opened
        return SQLiteLeaseSession(
            self._settings, self._life.home, timeout, opened.watch, opened.odd, opened.listeners.tell_from_thread
        )

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        """Take due jobs. See `aioqueue.abc.Store.claim`."""
        wanted = _claim.Wanted(lease_id, leases or {}, dump(sorted(set(types))), limit)
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[Sequence[ClaimedJob]]) -> Sequence[ClaimedJob]:
            try:
                # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
                if self._idle and in_snapshot(connection, lambda each: _claim.pick(each, wanted))[1] == "[]":
                    return []
                if not opened.odd.any_stuck():
                    jobs = in_transaction(connection, timeout, lambda each: _claim.claim(each, wanted), request.is_abandoned)
                    self._idle = not jobs
                    return jobs
            except (Unreadable, StoreError) as error:
                if isinstance(error, StoreError) and not concerns_a_row(error):
                    raise
            jobs, notification = claim_one_by_one(connection, wanted, opened.odd)
            opened.tell(request, notification)
            return jobs

        return await opened.writer.call(run) if limit > 0 else []

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        """Write how attempts ended, each on its own. See `aioqueue.abc.Store.settle`."""
        opened, timeout = self._opened, self._settings.busy_timeout
        write = functools.partial(settle, orphaned=orphaned)

        def run(connection: Connection, request: Request[list[SettleResult]]) -> list[SettleResult]:
            results: list[SettleResult] = []
            notifications: list[Notification] = []
            for _, outcome in halved(connection, timeout, settlements, write, request.is_abandoned):
                if isinstance(outcome, StoreError):
                    results.append(SettleResult(LostReason.ERROR, str(outcome)))
                else:
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
            opened.tell(request, merged(notifications))
            return results

        return await opened.writer.call(run)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """Give claims back unstarted, all or none. A lease's end doesn't depend on that: what can't be given back is logged."""
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[None]) -> None:
            whole = functools.partial(release, lease_id=lease_id, claims=claims, end=end)
            try:
                opened.tell(request, in_transaction(connection, timeout, whole, request.is_abandoned))
            except StoreError as error:
                if not end or not concerns_a_row(error):
                    raise
                opened.tell(request, end_one_by_one(connection, opened.odd, lease_id))

        await opened.writer.call(run)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers. See `aioqueue.abc.Store.take_expired`.

        SQLite's clock is the machine's wall clock. When it is set, leases are compared as if it hadn't been, where
        the machine tells how long it has been running (Linux); elsewhere, keep the clock slewed rather than stepped.
        """
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[list[ClaimedJob]]) -> list[ClaimedJob]:
            waited = begin(connection, timeout, request.is_abandoned)
            take = functools.partial(_recovery.take_expired, limit=limit, own=own, waited=waited)
            try:
                jobs, notification = in_transaction(connection, timeout, take, request.is_abandoned, begun=True)
            except Unreadable:
                jobs, notification = _recovery.take_expired_one_by_one(connection, opened.odd, limit, own, waited)
            opened.tell(request, notification)
            return jobs

        return await opened.writer.call(run)

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        """When there is something to do."""
        look = functools.partial(_recovery.next_due, types=types, own=own)
        return await self._opened.looks.call(lambda connection, _: in_snapshot(connection, look))

    # -- looking and operating ------------------------------------------------------------------------------------

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots in the order of the ids."""
        return await self._read(lambda connection: _listing.fetch(connection, ids))

    async def list(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        """One page of jobs, newest id first."""
        return await self._read(lambda connection: _listing.list_jobs(connection, where, limit, cursor))

    async def stats(self) -> Stats:
        """Numbers by type and state."""
        return await self._read(stats)

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
        opened, timeout = self._opened, self._settings.busy_timeout

        def run(connection: Connection, request: Request[list[Changed]]) -> list[Changed]:
            results: list[Changed] = []
            notifications: list[Notification] = []
            for part, outcome in halved(connection, timeout, ids, change, request.is_abandoned):
                if not isinstance(outcome, StoreError):
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
                elif len(ids) == 1:
                    raise outcome
                else:
                    results.append(Changed.WRONG_STATE)
                    logger.error("job %s can't be changed: %s", part[0], outcome)
            opened.tell(request, merged(notifications))
            return results

        return await opened.writer.call(run)

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """Call the listener with every notification until the context is left."""
        return self._opened.subscribed(listener, finished=finished)


def make_store(url: str, **options: Any) -> SQLiteStore:
    """Make a store that isn't open yet.

    Arguments:
        url: `sqlite:///relative.db` or `sqlite:////absolute.db`; options as `?synchronous=full&busy_timeout=10`.
        **options: The same options; they win. `synchronous`: `normal` (default), `full` or `extra`.
            `busy_timeout`: seconds that a write waits for others, 30 by default. `poll_interval`: seconds between two
            looks for other processes' commits, 0.01 by default. `wal_limit`: bytes that the write-ahead log may keep,
            16 MiB by default. `allow_network`: use a network file system all the same.

    Raises:
        ConfigurationError: The URL names no file, or an option can't be used.
    """
    return SQLiteStore(read_url(url, options))
