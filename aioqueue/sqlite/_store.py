"""The store: its life, and its verbs, which it hands to the rooms."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import ConfigurationError
from aioqueue.sqlite._connections import connect
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._connections_threads import DatabaseThreads
from aioqueue.sqlite._diagnosis import diagnose
from aioqueue.sqlite._foreign import insert_foreign, operations_within, run_foreign
from aioqueue.sqlite._lease_session import SQLiteLeaseSession
from aioqueue.sqlite._migrations import check_file, migrate
from aioqueue.sqlite._opened import Opened
from aioqueue.sqlite._options import Options, network_file_system, read_options
from aioqueue.sqlite._settle import lock_and_hold, settle_alone
from aioqueue.sqlite._settle_end import end
from aioqueue.sqlite._store_abilities import StoreAbilities
from aioqueue.sqlite._transaction import SQLiteTransaction, TransactionBlock
from aioqueue.store_rules._life import StoreLife
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._answers import Cancellation, Changed, Due, Pruned
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker, Tended
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import (
        Claim,
        ClaimedJob,
        Ending,
        Inserted,
        Job,
        LostReason,
        NewJob,
        Settlement,
        SettleResult,
        StoredState,
    )
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._phases import Phase, PhaseWrite, ProgressWrite
    from aioqueue.vocabulary._quota import Quota
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._store_parts import Listener
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["SQLiteStore", "make_store"]

T = TypeVar("T")


class SQLiteStore(StoreAbilities):
    """Jobs in one SQLite file, shared by any number of processes of one machine. See `aioqueue.abc.Store`.

    One thread writes, a whole transaction per hop; two others read; each of the store's own transactions has one
    while it's open. The event loop never waits for a lock.

    Arguments:
        options: Which file, and how.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._life: StoreLife[Opened] = StoreLife(self.description)

    @property
    def description(self) -> str:
        """The file, as a URL."""
        return f"sqlite:///{self._options.path}"

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
        await self._life.open(functools.partial(Opened, self._options))

    def _check_file_system(self) -> None:
        kind = None if self._options.allow_network else network_file_system(self._options.path)
        if kind is not None:
            raise ConfigurationError(
                f"{self._options.path} is on a network file system ({kind}), whose locks SQLite can't rely on: "
                "use a local disk, or PostgreSQL"
            )

    async def close(self) -> None:
        """Finish what was begun, and close the file; bounded in time. May be called twice."""
        await self._life.close()

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date. Works before `open`."""
        self._check_file_system()
        check = functools.partial(check_file, options=self._options)
        threads = DatabaseThreads("migration", functools.partial(connect, self._options, check=check))
        try:
            return await threads.call(lambda connection, _: migrate(connection, self._options.busy_timeout))
        finally:
            threads.close_soon()

    async def diagnose(self) -> Sequence[Finding]:
        """See `aioqueue.abc.SupportsDiagnosis.diagnose`."""
        return await diagnose(self._options)

    @property
    def _opened(self) -> Opened:
        return self._life.here()

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """Store jobs. See `aioqueue.abc.Store.insert`.

        A foreign `tx` should have begun IMMEDIATE: otherwise the first write may find the file locked, or changed
        since the transaction's first read, which SQLite refuses at once (`StoreUnavailable`). Listeners hear of a
        foreign commit as of another process's.
        """
        opened = self._opened
        if tx is None:
            return await opened.inserter.insert(jobs, repeated=repeated, apart=apart)
        opened.watch.check()
        return (await insert_foreign(tx, self._options.path, jobs, repeated=repeated)).inserted

    def transaction(self) -> AbstractAsyncContextManager[SQLiteTransaction]:
        """Open a transaction of the store's own; it holds the file's one write lock until the block ends."""
        opened = self._opened
        return TransactionBlock(
            opened.transactions,
            opened.transaction_lock,
            self._options.busy_timeout,
            opened.listeners.tell,
            opened.watch.check,
        )

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(
        self,
        worker: str,
        duration: float,
        *,
        extra: bool = False,
        types: Sequence[str] | None = None,
        slots: int | None = None,
        singleton: str | None = None,
    ) -> int:
        """See `aioqueue.abc.Store.open_lease`."""
        leases = self._opened.leases
        return await leases.open(worker, duration, extra=extra, types=types, slots=slots, singleton=singleton)

    def lease_session(self, *, timeout: float = 10.0) -> SQLiteLeaseSession:
        """See `aioqueue.abc.Store.lease_session`."""
        opened = self._opened
        return SQLiteLeaseSession(
            self._options, self._life.home, timeout, opened.watch, opened.odd, opened.listeners.tell_from_thread
        )

    async def claim(
        self,
        lease_id: int,
        types: Sequence[str],
        limit: int,
        *,
        leases: Mapping[str, int] | None = None,
        dry_run: bool = False,
        quotas: Sequence[Quota] = (),
        gates: Mapping[str, GateRules] | None = None,
    ) -> Sequence[ClaimedJob]:
        """See `aioqueue.abc.Store.claim`."""
        return await self._opened.claims.claim(lease_id, types, limit, leases, dry_run=dry_run, quotas=quotas, gates=gates)

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        """See `aioqueue.abc.Store.settle`."""
        opened = self._opened
        if tx is None:
            return await opened.settler.settle(settlements, orphaned=orphaned)
        return await self._on(tx, lambda connection: settle_alone(connection, settlements)[0])

    async def hold(self, claim: Claim, lease_id: int, *, tx: object) -> LostReason | None:
        """See `aioqueue.abc.Store.hold`. Such a transaction keeps everybody else from writing to the file."""
        return await self._on(tx, lambda connection: lock_and_hold(connection, claim, lease_id))

    async def end(self, endings: Sequence[Ending], *, tx: object | None = None) -> Sequence[bool]:
        """See `aioqueue.abc.Store.end`."""
        opened = self._opened
        if tx is None:
            return await opened.writing.write(lambda connection: end(connection, endings))
        return await self._on(tx, lambda connection: end(connection, endings)[0])

    async def _on(self, tx: object, body: Callable[[Statements], T]) -> T:
        """Write on a user's connection; if it raises, the transaction is as it was before."""
        self._opened.watch.check()

        def in_a_savepoint(connection: Statements) -> T:
            with in_savepoint(connection, "aioqueue_write"):
                return body(connection)

        return await run_foreign(tx, self._options.path, in_a_savepoint, "it can't be written in the given transaction")

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """See `aioqueue.abc.Store.release`."""
        await self._opened.leases.release(lease_id, claims, end=end)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers. See `aioqueue.abc.Store.take_expired`.

        SQLite's clock is the machine's wall clock. When it is set, leases are compared as if it hadn't been, where
        the machine tells how long it has been running (Linux); elsewhere, keep the clock slewed rather than stepped.
        """
        return await self._opened.recovery.take_expired(limit, own)

    async def next_due(
        self, types: Sequence[str], *, own: Collection[int] = (), gates: Mapping[str, GateRules] | None = None
    ) -> Due:
        """See `aioqueue.abc.Store.next_due`."""
        return await self._opened.recovery.next_due(types, own, gates)

    async def tend(self, limit: int) -> Tended:
        """See `aioqueue.abc.Store.tend`."""
        return await self._opened.tending.tend(limit)

    # -- looking and operating ------------------------------------------------------------------------------------

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch`."""
        return await self._opened.operations.fetch(ids)

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch_ends`."""
        return await self._opened.operations.fetch_ends(ids)

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """See `aioqueue.abc.Store.list_chain`."""
        return await self._opened.operations.list_chain(chain_id, limit, cursor)

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_blockers`."""
        return await self._opened.operations.list_blockers(job_id, limit, after=after)

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_dependents`."""
        return await self._opened.operations.list_dependents(chain_id, limit)

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """See `aioqueue.abc.Store.list`."""
        return await self._opened.operations.list(where, limit, cursor, order=order)

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.Store.list_ids`."""
        return await self._opened.operations.list_ids(where, limit, cursor)

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """See `aioqueue.abc.Store.find`."""
        return await self._opened.operations.find(types, key)

    def within(self, tx: object) -> Operable:
        """See `aioqueue.abc.Store.within`."""
        return operations_within(tx, self._options.path, lambda: self._opened.watch.check())

    async def stats(self) -> Stats:
        """See `aioqueue.abc.Store.stats`."""
        return await self._opened.operations.stats()

    async def leases(self) -> Sequence[LeaseFacts]:
        """See `aioqueue.abc.Store.leases`."""
        return await self._opened.operations.leases()

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """See `aioqueue.abc.Store.standing`."""
        return await self._opened.operations.standing(job_id, types)

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.retry`."""
        return await self._opened.operations.retry(ids, cascade=cascade, from_start=from_start)

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """See `aioqueue.abc.Operable.fetch_phases`."""
        return await self._opened.operations.fetch_phases(job_id)

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """See `aioqueue.abc.Operable.fetch_logs`."""
        return await self._opened.operations.fetch_logs(job_id)

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.reschedule`."""
        return await self._opened.operations.reschedule(ids, delay=delay, run_at=run_at)

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        """See `aioqueue.abc.Store.write_phases`."""
        return await self._opened.progresses.write_phases(writes)

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """See `aioqueue.abc.Store.write_progress`."""
        await self._opened.progresses.write_progress(writes)

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.run_now`."""
        return await self._opened.operations.run_now(ids)

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """See `aioqueue.abc.Store.cancel`.

        Whoever has the file's write lock, such as a block of this process, is waited for as by any other write, for
        `busy_timeout` seconds: what runs inside such a block hears of it only afterwards.
        """
        return await self._opened.operations.cancel(ids, reason)

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.delete`."""
        return await self._opened.operations.delete(ids, cascade=cascade)

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None = None
    ) -> Pruned:
        """See `aioqueue.abc.SupportsPrune.prune`."""
        return await self._opened.operator.prune(state, older_than, types, limit, cursor)

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
            `create`: make the file and its tables where there are none, true by default.

    Raises:
        ConfigurationError: The URL names no file, or an option can't be used.
    """
    return SQLiteStore(read_options(url, options))
