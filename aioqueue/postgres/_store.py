"""The store on PostgreSQL: see `aioqueue.abc.Store` for what each method promises."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres import _foreign, _migrations
from aioqueue.postgres._connections_closing import close_connection
from aioqueue.postgres._connections_source import in_transaction
from aioqueue.postgres._diagnosis import diagnose
from aioqueue.postgres._errors import translated
from aioqueue.postgres._events_verbs import EventVerbs
from aioqueue.postgres._foreign_connection import connection_of, lent
from aioqueue.postgres._gates_verbs import GateVerbs
from aioqueue.postgres._insert_rows import is_simple
from aioqueue.postgres._lease_session import PostgresLeaseSession
from aioqueue.postgres._opened import Opened
from aioqueue.postgres._operate_verbs import OperatingVerbs
from aioqueue.postgres._options import Options, read_options
from aioqueue.postgres._pauses_verbs import PauseVerbs
from aioqueue.postgres._schedules_verbs import ScheduleVerbs
from aioqueue.postgres._transaction import TransactionBlock
from aioqueue.postgres._transaction_operations import Operations
from aioqueue.postgres._webhooks_verbs import WebhookVerbs
from aioqueue.store_rules._life import StoreLife
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._events import EventReaders
    from aioqueue.postgres._gates import GateStatuses
    from aioqueue.postgres._gates_limits import Limits
    from aioqueue.postgres._pauses import Pauses
    from aioqueue.postgres._schedules import Schedules
    from aioqueue.postgres._settle import Settled
    from aioqueue.postgres._webhooks import Deliveries
    from aioqueue.vocabulary._answers import Due
    from aioqueue.vocabulary._blockers import Tended
    from aioqueue.vocabulary._finding import Finding
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
    )
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from aioqueue.vocabulary._quota import Quota
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._store_parts import LeaseSession, Listener, StoreTransaction

__all__ = ["PostgresStore", "make_store"]

_NOTHING = Notification()


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


class PostgresStore(OperatingVerbs, WebhookVerbs, EventVerbs, PauseVerbs, ScheduleVerbs, GateVerbs):
    """See `aioqueue.abc.Store`, and `make_store` for the options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._schema = options.schema
        self._source = options.source
        self._identity = uuid.uuid4()
        self._life: StoreLife[Opened] = StoreLife(self.description)

    @property
    def description(self) -> str:
        """See `aioqueue.abc.Store.description`."""
        return self._options.description

    @property
    def troubles(self) -> Mapping[str, str]:
        """See `aioqueue.abc.Store.troubles`."""
        return {} if (opened := self._life.opened) is None else opened.troubles

    @property
    def reconnects(self) -> Mapping[str, int]:
        """See `aioqueue.abc.SupportsReconnects`."""
        return {} if (opened := self._life.opened) is None else opened.reconnects.counts

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """See `aioqueue.abc.Store.open`."""
        await self._life.open(lambda: Opened(self._options, self._identity))

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

    async def diagnose(self) -> Sequence[Finding]:
        """See `aioqueue.abc.SupportsDiagnosis.diagnose`."""
        return await diagnose(self._options)

    @property
    def _opened(self) -> Opened:
        return self._life.here()

    @property
    def _readers(self) -> EventReaders:
        return self._opened.readers

    @property
    def _pauses(self) -> Pauses:
        return self._opened.pauses

    @property
    def _limits(self) -> Limits:
        return self._opened.limits

    @property
    def _gate_statuses(self) -> GateStatuses:
        return self._opened.gate_statuses

    @property
    def _deliveries(self) -> Deliveries:
        return self._opened.deliveries

    @property
    def _schedules(self) -> Schedules:
        return self._opened.schedules

    def _tell(self, notification: Notification) -> None:
        if (opened := self._life.opened) is not None and notification != _NOTHING:
            opened.listeners.tell(notification)

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """See `aioqueue.abc.Store.insert`."""
        opened = self._opened
        if tx is not None:
            if any(job.blockers or not is_simple(job) for job in jobs):
                connection = await connection_of(tx)
                return (await opened.foreign_inserter.insert_in(connection, jobs, repeated=repeated)).results
            with translated("the connection given as tx="):
                return await _foreign.insert(tx, self._schema.name, jobs, repeated=repeated)
        if not jobs:
            return []
        return await opened.inserter.insert(jobs, self._tell, repeated=repeated, apart=apart)

    def statement(self, jobs: Sequence[NewJob], *, placeholder: _foreign.Placeholder = "%s") -> tuple[str, tuple[str]]:
        """The statement that stores jobs, for any driver, and its one parameter: see `_foreign.statement`."""
        return _foreign.statement(self._schema.name, jobs, placeholder=placeholder)

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """See `aioqueue.abc.Store.transaction`."""
        opened = self._opened
        return TransactionBlock(
            opened.users, opened.inserter, opened.ender, opened.operator, self._schema, self._tell, self.description
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
        lease_id, told = await leases.open(worker, duration, extra=extra, types=types, slots=slots, singleton=singleton)
        self._tell(told)
        return lease_id

    def lease_session(self, *, timeout: float = 10.0) -> LeaseSession:
        """See `aioqueue.abc.Store.lease_session`."""
        return PostgresLeaseSession(
            self._options.lease_source,
            self._schema,
            self._life.home,
            timeout,
            self._options.lease_option,
            self._opened.reconnects,
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
        return await self._opened.claims.claim(
            lease_id, types, limit, leases=leases, dry_run=dry_run, quotas=quotas, gates=gates
        )

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        """See `aioqueue.abc.Store.settle`."""
        opened = self._opened
        if not settlements:
            return []
        if tx is not None:
            connection = await connection_of(tx)
            return (await opened.foreign_ender.settle_in(connection, settlements))[0]
        done: Settled = await opened.settler.settle(settlements, orphaned=orphaned)
        self._tell(
            Notification(
                types=frozenset(each.type for each in done.returned),
                delay=min((each.delay for each in done.returned), default=0.0),
                finished=frozenset(done.ended_chains),
                leases=frozenset(done.ended_leases),
                deliveries=done.deliveries,
            )
        )
        return done.results

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """See `aioqueue.abc.Store.release`."""
        leases = self._opened.leases
        if claims or end:
            self._tell(await (leases.end(lease_id) if end else leases.release(lease_id, claims)))

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """See `aioqueue.abc.Store.take_expired`."""
        ended, jobs = await self._opened.recovery.take_expired(limit, own)
        self._tell(Notification(leases=frozenset(() if ended is None else (ended,))))
        return jobs

    async def hold(self, claim: Claim, lease_id: int, *, tx: object) -> LostReason | None:
        """See `aioqueue.abc.Store.hold`."""
        opened = self._opened
        connection = await connection_of(tx)
        return await opened.foreign_ender.hold_in(connection, claim, lease_id)

    async def end(self, endings: Sequence[Ending], *, tx: object | None = None) -> Sequence[bool]:
        """See `aioqueue.abc.Store.end`."""
        opened = self._opened
        if tx is not None:
            connection = await connection_of(tx)
            return (await opened.foreign_ender.end_in(connection, endings))[0]
        results, told = await opened.ender.end(endings)
        self._tell(told)
        return results

    async def tend(self, limit: int) -> Tended:
        """See `aioqueue.abc.Store.tend`."""
        tended, told = await self._opened.tender.tend(limit)
        self._tell(told)
        return tended

    async def write_phases(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        """See `aioqueue.abc.Store.write_phases`."""
        return await self._opened.progress.write_phases(writes)

    async def write_progress(self, writes: Sequence[ProgressWrite]) -> None:
        """See `aioqueue.abc.Store.write_progress`."""
        await self._opened.progress.write_progress(writes)

    async def next_due(
        self, types: Sequence[str], *, own: Collection[int] = (), gates: Mapping[str, GateRules] | None = None
    ) -> Due:
        """See `aioqueue.abc.Store.next_due`."""
        return await self._opened.recovery.next_due(types, own, gates)

    # -- in somebody's transaction ----------------------------------------------------------------------------------------

    def within(self, tx: object) -> Operable:
        """See `aioqueue.abc.Store.within`."""

        def lend() -> AbstractAsyncContextManager[Connection]:
            self._life.here()  # each verb says so if the store isn't open, and not this call
            return lent(tx)

        return Operations(lend, lambda: self._opened.foreign_operator, self._schema, self._source.description, tell=None)

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """See `aioqueue.abc.Store.subscribe`."""
        return self._opened.listeners.subscribe(listener, finished=finished)
