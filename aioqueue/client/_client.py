"""The client: what producers and operators call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from aioqueue.client._bound import MISSING, BoundClient, Connection, Missing, end_bound, enqueue_bound
from aioqueue.client._end import FailurePlan, completion, completion_by_name
from aioqueue.client._enqueue import check_call, read_calls, refuse_unsupported, traced_rows
from aioqueue.client._handle import JobHandle, ids_of, make_handles
from aioqueue.client._named import named_call
from aioqueue.client._observing import Observing
from aioqueue.client._opened import ClientSettings
from aioqueue.client._operate import migrate
from aioqueue.client._operations import Operations
from aioqueue.client._session import Session
from aioqueue.client._stores import store_maker
from aioqueue.client._ticking import Ticking
from aioqueue.client._transaction import Transaction, open_transaction
from aioqueue.definitions._environment import Environment
from aioqueue.definitions._graph import graph_of
from aioqueue.definitions._setting_table import CLOSE_TIMEOUT, POLL_INTERVAL, RETRY_FOR, TRACING, UNCOMMITTED_GRACE, WEBHOOK
from aioqueue.errors import ConfigurationError, NotSupported
from aioqueue.telemetry._tracing import Tracing
from aioqueue.vocabulary._abilities import SupportsStatement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from types import TracebackType
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.abc import Store
    from aioqueue.client._end import Plan
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._middleware import EnqueueMiddleware

__all__ = ["Client"]

R = TypeVar("R")


class Client(Observing, Ticking, Operations):
    """A way into one queue: for producers, for operators, and for a `Worker`.

    It belongs to the event loop and the process in which it was opened; several may be open at once. Open it with
    `async with Client(...) as client:`, or with `open()` and `close()`. A closed one may be opened again.

    A setting that isn't given comes from its `AIOQUEUE_*` variable, else it's the default.

    Arguments:
        source: The database's URL: `sqlite:///relative.db`, `postgresql://user@host/database`; or an asyncpg pool; or a
            `Store`, which the client opens and closes. None takes `AIOQUEUE_URL`, else `sqlite:///aioqueue.db`.
        middlewares: Around each enqueueing, the first listed outermost.
        url: The source by name, as in the variable and on the command line: either of the two.
        poll_interval: Seconds after which waiting results are looked up even without a notification; 5. (SQLite's own option
            of that name stands in the URL.)
        retry_for: Seconds for which an enqueue outside a transaction is tried again while the database is away, or somebody's
            open transaction holds its unique key; 10.
        uncommitted_grace: Seconds for which a result is waited for before a job that was enqueued in a user's
            transaction (`tx=`) must be there; 30.
        close_timeout: Seconds that closing may take; 10.
        tracing: False makes no spans, and stores no trace context with jobs. By default both are done where an SDK for
            OpenTelemetry is configured.
        webhook: A URL that is told of the end of each job, or chain, that is enqueued with this client and whose call names
            none; nobody, by default. Not of those that attempts enqueue.
        options: For the store, such as `connect=` (PostgreSQL: a function that gives an asyncpg connection).

    Raises:
        ConfigurationError: The source or a setting can't be used.
    """

    def __init__(
        self,
        source: object | None = None,
        *,
        middlewares: Iterable[EnqueueMiddleware] = (),
        url: str | None = None,
        poll_interval: float | timedelta | None = None,
        retry_for: float | timedelta | None = None,
        uncommitted_grace: float | timedelta | None = None,
        close_timeout: float | timedelta | None = None,
        tracing: bool | None = None,
        webhook: str | None = None,
        **options: Any,
    ) -> None:
        if url is not None and source is not None:
            raise ConfigurationError("a client has one source: either the first argument, or url=")
        environment = Environment()
        settings = ClientSettings(
            middlewares=tuple(middlewares),
            poll_interval=POLL_INTERVAL.read(poll_interval, environment),
            retry_for=RETRY_FOR.read(retry_for, environment),
            uncommitted_grace=UNCOMMITTED_GRACE.read(uncommitted_grace, environment),
            close_timeout=CLOSE_TIMEOUT.read(close_timeout, environment),
            tracing=Tracing(on=TRACING.read(tracing, environment)),
            webhook=WEBHOOK.read(webhook, environment),
        )
        self._session = Session(store_maker(url if source is None else source, options), settings)

    @property
    def store(self) -> Store:
        """The store; it's open while the client is."""
        return self._session.store

    # -- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect.

        Returns:
            The client.

        Raises:
            StoreUnavailable: The database can't be reached.
            StoreIncompatible: Its schema doesn't fit this code (see `aioqueue migrate`).
            ConfigurationError: The client is open already.
        """
        await self._session.open()
        return self

    async def close(self) -> None:
        """Wait for enqueues in flight, tell those who wait for results, and disconnect; bounded by `close_timeout`.

        A `transaction()` that is still open isn't waited for: it's rolled back, and its block raises ClientClosed.
        May be called twice, and cancelled: it ends the same way.

        Raises:
            ClientClosed: The client was opened in another event loop, which still runs.
        """
        await self._session.close()

    def check_open(self) -> None:
        """Look whether the client can be used here, before a worker or a request begins to rely on it.

        Raises:
            ClientClosed: It isn't open, or was opened in another process or event loop.
        """
        self._session.opened()

    def check_outside_transaction(self) -> None:
        """Look whether this task may use the store beside its transactions, before a worker does so for a handler.

        Raises:
            OutsideTransaction: It's inside a block of `transaction()` or `completion()`.
        """
        self._session.opened().refuse_outside_transaction()

    async def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date, as `aioqueue migrate` does: for deployments and tests in Python.

        The client needn't be open, and needn't be closed afterwards; on PostgreSQL it has to be done before the first
        `open`, while SQLite does it by itself. Several processes may do so at once.

        Returns:
            The names of the migrations that this call ran; empty if there was nothing to do.

        Raises:
            StoreUnavailable: The database can't be reached, or it took longer than the store's `timeout`.
            StoreIncompatible: The schema is of a newer version, or the database holds something else.
            NotSupported: The store has no migrations.
        """
        return await migrate(self.store)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- producers ---------------------------------------------------------------------------------------------------

    async def enqueue(
        self, call: Call[R], *, tx: Connection | Transaction | Literal[Missing.MISSING] = MISSING
    ) -> JobHandle[R]:
        """Store a call as a job, with all calls that it waits for and that haven't been enqueued yet.

        Without `tx` it's committed when this returns; calls of concurrent tasks are gathered into one transaction. An
        unclear commit is repeated, such that exactly one job exists, for `retry_for` seconds.

        Arguments:
            call: Such as `fetch("https://example.org")`.
            tx: A connection or session with an open transaction, whose owner commits: asyncpg, SQLAlchemy's
                AsyncSession or AsyncConnection, psycopg, sqlite3, aiosqlite, or our own. Nothing exists before that.

        Returns:
            Its handle; that of the job, or chain, that is there already with the same unique key or the chosen id (`created` is
            False), unless the call's `on_conflict` says otherwise.

        Raises:
            CallAlreadyEnqueued: The call was enqueued before; `call.copy()` makes another.
            DuplicateJob: Its unique key is held, and its `on_conflict` is `"raise"`. Nothing was stored, and the call may be
                enqueued again.
            WrongJobType: The id that was chosen for it is that of another type's job. As of DuplicateJob.
            RowRejected: The database refuses the row.
            StoreUnavailable: The database can't be reached. Enqueueing the same call again is safe.
            BlockerCycle: It waits for itself, through whatever others. Nothing was stored.
            BlockerNotFound: What it waits for isn't there. Nothing was stored.
            OutsideTransaction: There's no `tx`, and the task is inside our own `transaction()`. Or `tx` is None, anywhere.
            NotInTransaction: `tx` is in autocommit mode.
            ClientClosed: The client isn't open.
        """
        if tx is not MISSING:
            return (await enqueue_bound(self._session, [call], tx))[0]
        check_call(call)
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        inserted = await opened.enqueuer.enqueue_one(call)
        return JobHandle(self._session, call.job_type, inserted.id, created=inserted.created, replaced=inserted.replaced)

    async def enqueue_many(
        self, calls: Iterable[Call[R]], *, tx: Connection | Transaction | Literal[Missing.MISSING] = MISSING
    ) -> list[JobHandle[R]]:
        """Store calls as jobs, in one transaction: all or none.

        Arguments:
            calls: As many as fit in memory; none is fine.
            tx: As for `enqueue`.

        Returns:
            Their handles, in order.

        Raises:
            AioqueueError: As `enqueue`.
        """
        if tx is not MISSING:
            return await enqueue_bound(self._session, calls, tx)
        taken = read_calls(calls)
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return make_handles(self._session, taken, await opened.enqueuer.enqueue_many(taken))

    async def enqueue_by_name(
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """Store a job of which only the type's name is known here. Nothing checks its arguments before it runs.

        Arguments:
            name: The full name, with its prefix.
            arguments: By name: JSON values.
            options: As of `Call.options`.

        Returns:
            Its handle, whose result is plain JSON values.

        Raises:
            ArgumentsError: The arguments can't be stored exactly.
            AioqueueError: As `enqueue`.
        """
        return await self.enqueue(named_call(name, arguments, options))

    async def complete(
        self,
        job_type: JobType[..., R, Any],
        job: UUID | str | JobHandle[Any],
        result: R | Call[R],
        *,
        tx: Connection | Transaction | Literal[Missing.MISSING] = MISSING,
    ) -> None:
        """Complete a job from outside, whatever its state is: with the answer of a webhook, or a person's approval.

        A job that is running is completed all the same: its attempt is cancelled, and changes nothing any more. Those that
        wait for the job's chain go on. A type that is only declared, `@registry.declare`, is the form of a job that waits
        to be completed: no worker runs it.

        Without `tx` it's committed when this returns, and tried again as an enqueue is.

        Arguments:
            job_type: The type of the chain's live step.
            job: An id or handle: of a chain, any step's; the live one is completed.
            result: Its result, checked as the type's handler's is; or, if that is annotated `-> Call[R]`, a call that continues
                the chain, as if the handler had returned it.
            tx: As for `enqueue`: nothing has happened before its owner commits. Jobs that were enqueued in it are found.

        Raises:
            AlreadyFinished: It has ended before; `state` and `last_error` say how.
            WrongJobType: The live step is of another type.
            JobNotFound: There is no such job.
            ArgumentsError: The result isn't of the annotated type, or can't be stored exactly.
            CallError: It's a call, and the type isn't annotated to continue its chain; or the call can't be stored.
            ConflictingOptions: The call has a key, and a chain keeps its own.
            StoreContended: Somebody's open transaction holds the job.
            AioqueueError: As `enqueue`.
        """
        await self._end(job, completion(job_type, result), tx)

    async def complete_by_name(self, name: str, job: UUID | str | JobHandle[Any], result: object) -> None:
        """Complete a job from outside of whose type only the name is known here. Nothing checks its result.

        Arguments:
            name: The full name of the type, under which it's stored.
            job: As of `complete`.
            result: JSON values.

        Raises:
            AioqueueError: As `complete`.
        """
        await self._end(job, completion_by_name(name, result), MISSING)

    async def fail(
        self,
        job: UUID | str | JobHandle[Any],
        reason: str,
        *,
        tx: Connection | Transaction | Literal[Missing.MISSING] = MISSING,
    ) -> None:
        """Fail a job from outside, for good, whatever its type and state are.

        Arguments:
            job, tx: As of `complete`.
            reason: Why, for people: it becomes the newest entry of the job's history.

        Raises:
            AlreadyFinished: It has ended before.
            JobNotFound: There is no such job.
            AioqueueError: As `enqueue`.
        """
        await self._end(job, FailurePlan(reason), tx)

    async def _end(
        self, job: UUID | str | JobHandle[Any], plan: Plan, tx: Connection | Transaction | Literal[Missing.MISSING]
    ) -> None:
        if tx is not MISSING:
            await end_bound(self._session, job, plan, tx)
            return
        (job_id,) = ids_of([job])
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        await opened.ender.end(job_id, plan)

    def statement(self, call: Call[Any], *, placeholder: Literal["%s", "$1"] = "%s") -> tuple[str, tuple[str, ...]]:
        """Give the SQL that stores a call, and its parameters, for synchronous code on any driver for PostgreSQL.

        `cursor.execute(*client.statement(charge(order_id)))` enqueues in the cursor's transaction. It counts as
        enqueueing the call. The client needn't be open, and its middlewares don't run.

        Arguments:
            call: As for `enqueue`.
            placeholder: How the driver writes a parameter: psycopg and psycopg2 `%s`, others `$1`.

        Raises:
            NotSupported: The store isn't one that SQL can be given for.
            CallAlreadyEnqueued: The call was enqueued before.
        """
        store = self.store
        if not isinstance(store, SupportsStatement):
            raise NotSupported(f"{store.description} has no statement that any driver could run: use tx=", ability="statement")
        check_call(call)
        calls = (call,)
        graph = graph_of(calls)
        for each in graph:
            each.mark_enqueueing()
        jobs = traced_rows(graph, calls, self._session.tracing, self._session.webhook)
        refuse_unsupported(store, jobs)
        return store.statement(jobs, placeholder=placeholder)

    def using(self, tx: Connection | Transaction) -> BoundClient:
        """Bind `tx=` once: for a dependency that gives each request a producer in its own transaction.

        Arguments:
            tx: As for `enqueue`.

        Raises:
            OutsideTransaction: It is None.
        """
        return BoundClient(self._session, tx)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. If its block raises or is cancelled, nothing exists, and its calls may be enqueued again.

        Raises:
            OutsideTransaction: One of this client's is open in this task already.
            StoreUnavailable: The database can't be reached; on leaving the block: its commit may be unclear.
            ClientClosed: The client isn't open; on leaving the block: it was closed meanwhile, and all is rolled back.
        """
        return open_transaction(self._session)

    def handle(self, job_type: JobType[..., R, Any], job_id: UUID | str) -> JobHandle[R]:
        """Make a handle of a job whose id was kept, or of a chain by any step's; the type says what the result is.

        Nothing is looked up.

        Raises:
            ValueError: The id isn't one.
        """
        return JobHandle(self._session, job_type, job_id)

    def __repr__(self) -> str:
        return repr(self._session)
