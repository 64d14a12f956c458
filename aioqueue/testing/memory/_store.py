"""The store in memory: the protocol's methods, nearly each of which is a function of another file that `perform` calls."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from aioqueue.store_rules._life import StoreLife
from aioqueue.testing.memory._claim import claim
from aioqueue.testing.memory._events import begin_events, keep_reader, open_reader, read_events, resume_events
from aioqueue.testing.memory._gates import look_at_gates
from aioqueue.testing.memory._insert import insert
from aioqueue.testing.memory._lease import MemoryLeaseSession, make_way, release
from aioqueue.testing.memory._opened import Opened
from aioqueue.testing.memory._operate import prune
from aioqueue.testing.memory._progress import write_phases, write_progress
from aioqueue.testing.memory._recovery import next_due, take_expired
from aioqueue.testing.memory._retention import find_old, purge
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._settle import settle
from aioqueue.testing.memory._settle_end import end
from aioqueue.testing.memory._store_gates import GateVerbs
from aioqueue.testing.memory._store_pauses import PauseVerbs
from aioqueue.testing.memory._store_schedules import ScheduleVerbs
from aioqueue.testing.memory._tend import tend
from aioqueue.testing.memory._transaction import MemoryTransaction
from aioqueue.testing.memory._transaction_operations import Operations, refusing
from aioqueue.testing.memory._webhooks import list_deliveries, next_delivery, replay_deliveries, take_deliveries, write_tries
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._transaction import SqlConnection
    from aioqueue.vocabulary._answers import Due, Pruned
    from aioqueue.vocabulary._blockers import Tended
    from aioqueue.vocabulary._event_log import EventPage
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import (
        Claim,
        ClaimedJob,
        Ending,
        Inserted,
        LostReason,
        NewJob,
        Settlement,
        SettleResult,
        StoredState,
    )
    from aioqueue.vocabulary._listing import IdPage
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from aioqueue.vocabulary._quota import Quota
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._store_parts import Listener
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState, DeliveryTry

__all__ = ["MemoryStore"]

T = TypeVar("T")


class MemoryStore(Operations, GateVerbs, PauseVerbs, ScheduleVerbs):
    """A store whose jobs live in this process, for unit tests: `Client(MemoryStore())`.

    It does what the conformance cases ask of every store, in a few microseconds while its jobs are few (a claim or a count
    looks at all of them), and leaves no file behind. Nothing survives the process, and other processes see nothing of it.
    What was stored stays while it's closed, so a test may open a client on it, leave that, and look later.

    Every call that a real store would send to its database goes through `perform`, but for the rollback of a transaction, and
    the calls of a `LeaseSession`, which has a `perform` of its own; `subscribe` asks nobody. A test that wants calls to fail,
    hang, or lose their answers derives a class that overrides it:

        class Away(MemoryStore):
            async def perform(self, verb, work):
                if verb == "insert":
                    raise StoreUnavailable("the database is away")
                return await super().perform(verb, work)

    Arguments:
        sql: Runs the statements that are given to `Transaction.execute` and `fetch`, such as
            `sqlite3.connect(":memory:", isolation_level=None)`: they're committed, or rolled back, together with the
            transaction's jobs. Without one, such statements raise ConfigurationError.
        database: What another store of the same jobs has; `another` gives it.
    """

    description = "memory"

    def __init__(self, *, sql: SqlConnection | None = None, database: Database | None = None) -> None:
        self.database = Database() if database is None else database
        self._sql = sql
        self._life: StoreLife[Opened] = StoreLife(self.description)

    def another(self) -> MemoryStore:
        """Make a second store of the same jobs, as another process has it. It isn't open yet."""
        return type(self)(sql=self._sql, database=self.database)

    def advance(self, seconds: float) -> None:
        """Move the clock by which jobs become due, expire, and leases run out. Whoever waits for it looks again."""
        self.database.advance(seconds)
        self.database.tell(Notification(types=None))

    async def perform(self, verb: str, work: Callable[[], T]) -> T:  # noqa: ARG002 - for those who override it
        """Do what was asked for: what refuses, delays or loses calls overrides it. `MemoryStore` says which come here.

        Arguments:
            verb: The name of the store's method; in a transaction `begin`, `execute`, `savepoint`, `release`, `commit`, and
                `transaction.insert` and its like for all other methods.
            work: Does it, at once.
        """
        await asyncio.sleep(0)
        with self.database.lock:
            return work()

    # -- life -----------------------------------------------------------------------------------------------------

    @property
    def troubles(self) -> Mapping[str, str]:
        """No troubles: nothing that can be away is behind this store."""
        return {}

    async def open(self) -> None:
        """Begin to answer. See `Store.open`."""
        await self._life.open(lambda: Opened(self.database, self.perform))

    async def close(self) -> None:
        """Stop to answer; the jobs stay. See `Store.close`."""
        await self._life.close()

    @property
    def _opened(self) -> Opened:
        return self._life.here()

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        database = self._opened.database

        def work_and_tell() -> T:
            look_at_gates(database)
            try:
                return work(database)
            finally:
                look_at_gates(database)
                database.tell_of_events()

        return await self.perform(verb, work_and_tell)

    def _refuse(self, tx: object | None) -> None:
        self._life.here()
        if tx is not None:
            raise TypeError(f"a store in memory can't use a {type(tx).__qualname__}: open a transaction of the client's")

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """Store jobs. See `Store.insert`.

        Raises:
            TypeError: `tx` was given: this store knows nobody else's connections.
        """
        self._refuse(tx)
        return await self._verb("insert", lambda database: insert(database, jobs, repeated=repeated, apart=apart))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[MemoryTransaction]:
        """Open a transaction, as soon as no other is open. See `Store.transaction`."""
        async with self._opened.database.turn:
            transaction = MemoryTransaction(self._verb, self._sql)
            try:
                await self._verb("begin", transaction.begin)
                yield transaction
                await self._verb("commit", transaction.commit)
            finally:
                # Not by way of `perform`: what it began, though the answer may be lost, ends in any case.
                with self.database.lock:
                    transaction.roll_back(self.database)

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
        """Make a lease. See `Store.open_lease`."""

        def add(database: Database) -> int:
            make_way(database, singleton)
            return database.add_lease(worker, duration, extra=extra, types=types, slots=slots, singleton=singleton)

        return await self._verb("open_lease", add)

    def lease_session(self, *, timeout: float = 10.0) -> MemoryLeaseSession:
        """What a lease thread uses. See `Store.lease_session`."""
        return MemoryLeaseSession(self._opened.database, self._life.home, timeout)

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
        """Take due jobs. See `Store.claim`."""
        return await self._verb(
            "claim",
            lambda database: claim(database, lease_id, types, limit, leases or {}, dry_run=dry_run, quotas=quotas, rules=gates),
        )

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        """Write how attempts ended. See `Store.settle`."""
        self._refuse(tx)
        return await self._verb("settle", lambda database: settle(database, settlements, orphaned=orphaned))

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """Give claims back. See `Store.release`."""
        await self._verb("release", lambda database: release(database, lease_id, claims, end=end))

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of lost workers. See `Store.take_expired`."""
        return await self._verb("take_expired", lambda database: take_expired(database, limit, own))

    async def hold(self, claim: Claim, lease_id: int, *, tx: object) -> LostReason | None:
        """Refuse: see `MemoryTransaction.hold`."""
        del claim, lease_id
        self._life.here()
        raise TypeError(f"a store in memory can't lock a job for a {type(tx).__qualname__}: open a transaction of the client's")

    async def end(self, endings: Sequence[Ending], *, tx: object | None = None) -> Sequence[bool]:
        """End jobs that aren't finished. See `Store.end`."""
        self._refuse(tx)
        return await self._verb("end", lambda database: end(database, endings))

    async def tend(self, limit: int) -> Tended:
        """See to what no claim leads to. See `Store.tend`."""
        return await self._verb("tend", lambda database: tend(database, limit))

    async def next_due(
        self, types: Sequence[str], *, own: Collection[int] = (), gates: Mapping[str, GateRules] | None = None
    ) -> Due:
        """When there is something to do. See `Store.next_due`."""
        return await self._verb("next_due", lambda database: next_due(database, types, own, gates or {}))

    # -- looking and operating, beside what `Operations` has --------------------------------------------------------

    def within(self, tx: object) -> Operable:
        """Verbs each of which raises TypeError: this store knows nobody else's connections. See `Store.within`."""
        return refusing(lambda: self._refuse(tx))

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        """Store where phases stand. See `Store.write_phases`."""
        return await self._verb("write_phases", lambda database: write_phases(database, writes))

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """Store how far jobs have come. See `Store.write_progress`."""
        await self._verb("write_progress", lambda database: write_progress(database, writes))

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None = None
    ) -> Pruned:
        """Remove what finished long ago. See `SupportsPrune.prune`."""
        return await self._verb("prune", lambda database: prune(database, state, older_than, types, limit, cursor))

    # -- webhooks -------------------------------------------------------------------------------------------------

    async def take_deliveries(self, limit: int, duration: float, *, without: Collection[str] = ()) -> Sequence[Delivery]:
        """Take due deliveries. See `SupportsWebhooks.take_deliveries`."""
        return await self._verb("take_deliveries", lambda database: take_deliveries(database, limit, duration, without))

    async def next_delivery(self) -> float | None:
        """When the first is due. See `SupportsWebhooks.next_delivery`."""
        return await self._verb("next_delivery", next_delivery)

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """Keep what became of tries. See `SupportsWebhooks.write_tries`."""
        await self._verb("write_tries", lambda database: write_tries(database, tries))

    async def list_deliveries(
        self, *, chain_id: UUID | None = None, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> DeliveryPage:
        """One page of deliveries. See `SupportsWebhooks.list_deliveries`."""
        return await self._verb("list_deliveries", lambda database: list_deliveries(database, chain_id, state, limit, cursor))

    async def replay_deliveries(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """Make deliveries due anew. See `SupportsWebhooks.replay_deliveries`."""
        return await self._verb("replay_deliveries", lambda database: replay_deliveries(database, ids))

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """Take what one process at a time does. See `SupportsRetention.take_duty`."""
        return await self._verb("take_duty", lambda database: database.duties.take(name, holder, duration, database.now()))

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        """Find chains that are old enough to be removed. See `SupportsRetention.find_old`."""
        return await self._verb("find_old", lambda database: find_old(database, ages, limit, cursor))

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> Sequence[UUID]:
        """Remove whole chains. See `SupportsRetention.purge`."""
        return await self._verb("purge", lambda database: purge(database, chain_ids, ages))

    async def open_reader(self, duration: float) -> UUID:
        """Have events logged. See `SupportsEvents.open_reader`."""
        return await self._verb("open_reader", lambda database: open_reader(database, duration))

    async def keep_reader(self, reader: UUID, duration: float) -> bool:
        """Let a reader be valid for longer. See `SupportsEvents.keep_reader`."""
        return await self._verb("keep_reader", lambda database: keep_reader(database, reader, duration))

    async def begin_events(self, reader: UUID, *, timeout: float = 5.0) -> EventPage:
        """Give where to begin. See `SupportsEvents.begin_events`."""
        del timeout  # there is nothing to wait for
        return await self._verb("begin_events", lambda database: begin_events(database, reader))

    async def resume_events(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """Go on after an event. See `SupportsEvents.resume_events`."""
        return await self._verb("resume_events", lambda database: resume_events(database, reader, sequence, limit))

    async def read_events(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """Give what has happened since. See `SupportsEvents.read_events`."""
        return await self._verb("read_events", lambda database: read_events(database, reader, cursor, limit))

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """Call a listener with every notification. See `Store.subscribe`."""
        return self._opened.listeners.subscribe(listener, finished=finished)
