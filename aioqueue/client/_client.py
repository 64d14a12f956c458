"""The client: what producers and operators call."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from aioqueue.abc import Changed, JobFilter
from aioqueue.client._enqueue import used
from aioqueue.client._handle import JobHandle, ids_of
from aioqueue.client._named import named_call
from aioqueue.client._phase import Phase, TransactionState
from aioqueue.client._session import Session
from aioqueue.client._stores import store_maker
from aioqueue.client._transaction import MISSING, BoundClient, Connection, Missing, Transaction, refuse_none
from aioqueue.errors import (
    ClientClosed,
    ConfigurationError,
    JobNotFound,
    OutsideTransaction,
    RowRejected,
    StoreError,
    TransactionError,
)
from aioqueue.runtime._shield import finish
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.abc import Page, Stats, Store
    from aioqueue.definitions._call import Call, CallOptions
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._middleware import EnqueueMiddleware
    from aioqueue.vocabulary._job import Job

__all__ = ["Client"]

R = TypeVar("R")

_LARGEST_PAGE = 1_000
_PORTION = 1_000
"""Jobs that one statement of `retry`, `run_now` and `delete` changes, with a commit of its own."""


def _names_of(job_type: JobType[..., Any, Any] | str) -> tuple[str, ...]:
    """The names under which jobs of a type are stored: what was enqueued before a renaming has an older one."""
    return (job_type,) if isinstance(job_type, str) else (job_type.name, *job_type.aliases)


class Client:
    """A way into one queue: for producers, for operators, and for a `Worker`.

    It belongs to the event loop and the process in which it was opened; several may be open at once. Open it with
    `async with Client(...) as client:`, or with `open()` and `close()`. A closed one may be opened again.

    Arguments:
        source: The database's URL: `sqlite:///relative.db`, `postgresql://user@host/database`; or an asyncpg pool; or a
            `Store`, which the client opens and closes. None takes `AIOQUEUE_URL`, else `sqlite:///aioqueue.db`.
        middlewares: Around each enqueueing, the first listed outermost.
        poll_interval: Seconds after which waiting results are looked up even without a notification. (SQLite's own option
            of that name stands in the URL.)
        retry_for: Seconds for which an enqueue outside a transaction is tried again while the database is away.
        uncommitted_grace: Seconds for which a result is waited for before a job that was enqueued in a user's
            transaction (`tx=`) must be there.
        close_timeout: Seconds that closing may take.
        options: For the store, such as `connect=` (PostgreSQL: a function that gives an asyncpg connection).

    Raises:
        ConfigurationError: The source or a setting can't be used.
    """

    def __init__(
        self,
        source: object | None = None,
        *,
        middlewares: Iterable[EnqueueMiddleware] = (),
        poll_interval: float | timedelta = 5.0,
        retry_for: float | timedelta = 10.0,
        uncommitted_grace: float | timedelta = 30.0,
        close_timeout: float | timedelta = 10.0,
        **options: Any,
    ) -> None:
        self._middlewares = tuple(middlewares)
        self._poll_interval = seconds(poll_interval, "poll_interval", positive=True)
        self._retry_for = seconds(retry_for, "retry_for")
        self._uncommitted_grace = seconds(uncommitted_grace, "uncommitted_grace")
        self._close_timeout = seconds(close_timeout, "close_timeout", positive=True)
        self._make_store = store_maker(source, options)
        self._store = self._make_store()
        self._store_was_opened = False
        self._session: Session | None = None
        self._opening = False
        self._closing: asyncio.Task[None] | None = None
        self._transactions: dict[asyncio.Task[Any] | None, Transaction] = {}

    @property
    def store(self) -> Store:
        """The store; it's open while the client is."""
        return self._store

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
        if self._opening or (self._session is not None and self._session.usable()):
            raise ConfigurationError("the client is open already: close it first, or make another")
        self._opening = True
        try:
            self._session = None
            self._transactions = {}
            if self._store_was_opened:
                self._store = self._make_store()
            self._store_was_opened = True
            session = Session(
                self._store,
                middlewares=self._middlewares,
                poll_interval=self._poll_interval,
                retry_for=self._retry_for,
                uncommitted_grace=self._uncommitted_grace,
                close_timeout=self._close_timeout,
            )
            await session.open()
            self._session = session
        finally:
            self._opening = False
        return self

    async def close(self) -> None:
        """Wait for enqueues in flight, tell those who wait for results, and disconnect; bounded by `close_timeout`.

        May be called twice, and cancelled: it ends the same way.

        Raises:
            ClientClosed: The client was opened in another event loop, which still runs.
        """
        session = self._session
        if session is not None and session.pid == os.getpid() and not session.loop.is_closed():
            self._here()
            self._session = None
            self._closing = session.begin_to_close()
        self._session = None
        if (closing := self._closing) is not None and closing.get_loop() is asyncio.get_running_loop():
            await finish(closing, again=None if session is None else session.begin_to_close)
            self._closing = None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _here(self) -> Session:
        session = self._session
        if session is None:
            raise ClientClosed("the client isn't open: use it inside `async with Client(...) as client:`")
        if session.pid != os.getpid():
            raise ClientClosed(
                "the client was opened before this process was forked, and a connection can't be shared over a fork: "
                "open a client in each process, after the fork"
            )
        if session.loop is not asyncio.get_running_loop():
            raise ClientClosed(
                "the client was opened in another event loop: open a client in each loop (asyncio.run makes a new one)"
            )
        return session

    # -- producers ---------------------------------------------------------------------------------------------------

    async def enqueue(
        self, call: Call[R], *, tx: Connection | Transaction | Literal[Missing.MISSING] = MISSING
    ) -> JobHandle[R]:
        """Store a call as a job.

        Without `tx` it's committed when this returns; calls of concurrent tasks are gathered into one transaction. An
        unclear commit is repeated, such that exactly one job exists, for `retry_for` seconds.

        Arguments:
            call: Such as `fetch("https://example.org")`.
            tx: A connection or session with an open transaction, whose owner commits: asyncpg, SQLAlchemy's
                AsyncSession or AsyncConnection, psycopg, sqlite3, aiosqlite, or our own. Nothing exists before that.

        Returns:
            Its handle; that of the unfinished job with the same unique key, if there is one (`created` is False).

        Raises:
            CallAlreadyEnqueued: The call was enqueued before; `call.copy()` makes another.
            RowRejected: The database refuses the row.
            StoreUnavailable: The database can't be reached. Enqueueing the same call again is safe.
            OutsideTransaction: Without `tx` (or with None) inside our own `transaction()` of the same task.
            NotInTransaction: `tx` is in autocommit mode.
            ClientClosed: The client isn't open.
        """
        calls = used([call])
        session = self._here()
        if tx is MISSING:
            self._refuse_outside()
            return await session.enqueuer.alone(self, call)
        return (await self._enqueue_with(session, calls, tx))[0]

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
        calls = used(calls)
        session = self._here()
        if tx is MISSING:
            self._refuse_outside()
            return await session.enqueuer.together(self, calls)
        return await self._enqueue_with(session, calls, tx)

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

    def statement(self, call: Call[Any], *, placeholder: Literal["%s", "$1"] = "%s") -> tuple[str, tuple[str, ...]]:
        """Give the SQL that stores a call, and its parameters, for synchronous code on any driver for PostgreSQL.

        `cursor.execute(*client.statement(charge(order_id)))` enqueues in the cursor's transaction. It counts as
        enqueueing the call. The client needn't be open, and its middlewares don't run.

        Arguments:
            call: As for `enqueue`.
            placeholder: How the driver writes a parameter: psycopg and psycopg2 `%s`, others `$1`.

        Raises:
            ConfigurationError: The store isn't one that SQL can be given for.
            CallAlreadyEnqueued: The call was enqueued before.
        """
        give = getattr(self._store, "statement", None)
        if give is None:
            raise ConfigurationError(f"{self._store.description} has no statement that any driver could run: use tx=")
        call.mark_enqueueing()
        return cast("tuple[str, tuple[str, ...]]", give([call.to_new_job()], placeholder=placeholder))

    def using(self, tx: Connection | Transaction) -> BoundClient:
        """Bind `tx=` once: for a dependency that gives each request a producer in its own transaction.

        Arguments:
            tx: As for `enqueue`.

        Raises:
            OutsideTransaction: It is None.
        """
        refuse_none(tx)
        return BoundClient(self, tx)

    async def _enqueue_with(
        self, session: Session, calls: Sequence[Call[R]], tx: Connection | Transaction
    ) -> list[JobHandle[R]]:
        refuse_none(tx)
        if not isinstance(tx, Transaction):
            return await session.enqueuer.beside(self, calls, tx)
        if tx._client is not self:
            raise TransactionError("the transaction given as tx= is of another client")
        return await tx.enqueue_many(calls)

    def _refuse_outside(self) -> None:
        if self._transactions and asyncio.current_task() in self._transactions:
            raise OutsideTransaction(
                "an enqueue inside `async with client.transaction() as tx:` that isn't part of it would be kept even if the "
                "block is rolled back: use tx.enqueue(...), or enqueue after the block"
            )

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction, None]:
        """Open a transaction. If its block raises or is cancelled, nothing exists, and its calls may be enqueued again.

        Raises:
            OutsideTransaction: One of this client's is open in this task already.
            StoreUnavailable: The database can't be reached; on leaving the block: its commit may be unclear.
            ClientClosed: The client isn't open.
        """
        session = self._here()
        self._refuse_outside()
        task = asyncio.current_task()
        state = TransactionState()
        ended_well = False
        try:
            async with session.store.transaction() as inner:
                transaction = Transaction(self, session.enqueuer, inner, state)
                self._transactions[task] = transaction
                try:
                    yield transaction
                finally:
                    del self._transactions[task]
                ended_well = True
        except BaseException as error:
            if ended_well and not isinstance(error, RowRejected):
                session.enqueuer.remember_unclear(state.calls)
                state.end(Phase.UNCLEAR)
            else:
                state.end(Phase.ROLLED_BACK)
            raise
        state.end(Phase.COMMITTED)

    # -- looking and operating ---------------------------------------------------------------------------------------

    def handle(self, job_type: JobType[..., R, Any], job_id: UUID | str) -> JobHandle[R]:
        """Make a handle of a job whose id was kept; its type says what the result is. Nothing is looked up.

        Raises:
            ValueError: The id isn't one.
        """
        return JobHandle(self, job_type, job_id)

    async def job(self, job_id: UUID | str | JobHandle[Any]) -> Job:
        """Look at one job as it is stored now, whatever its type.

        Raises:
            ValueError: The id isn't one.
            JobNotFound: There is no such job.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        (wanted,) = ids_of([job_id])
        (found,) = await self._here().store.fetch([wanted])
        if found is None:
            raise JobNotFound(f"there is no job {wanted}: it was never committed, or has been deleted", job_id=wanted)
        return found

    async def list_jobs(
        self,
        *,
        states: Iterable[JobState | str] = (),
        types: Iterable[JobType[..., Any, Any] | str] = (),
        key: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Show jobs, live and finished, the newest first.

        Arguments:
            states: Any of these; none means all.
            types: Any of these job types (under their older names too) or names; none means all.
            key: Exactly this key.
            tag: Among the tags.
            limit: Jobs on the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.

        Returns:
            The page; its `cursor` is None at the end.

        Raises:
            ValueError: The cursor isn't one of ours, or a state isn't known.
            ConfigurationError: The limit is out of its range.
        """
        if not 1 <= limit <= _LARGEST_PAGE:
            raise ConfigurationError(f"limit must be 1 to {_LARGEST_PAGE}, not {limit!r}")
        if isinstance(states, str) or isinstance(types, str):
            raise ConfigurationError("states= and types= take several, such as states=['failed']")
        where = JobFilter(
            states=frozenset(JobState(each) for each in states),
            types=frozenset(name for each in types for name in _names_of(each)),
            key=key,
            tag=tag,
        )
        return await self._here().store.list(where, limit, cursor)

    async def stats(self) -> Stats:
        """Count jobs by type and state, exactly up to 10,000 each, and name the workers that are alive."""
        return await self._here().store.stats()

    async def retry(self, *jobs: UUID | str | JobHandle[Any]) -> dict[UUID, Changed]:
        """Make failed or cancelled jobs pending again, with all their attempts.

        Many are changed in portions of 1,000, each with a commit of its own.

        Arguments:
            jobs: Ids or handles.

        Returns:
            What became of each, by id.

        Raises:
            ValueError: An id isn't one; nothing was changed.
            StoreError: The database refused; its `changed` says what became of the portions before.
            ClientClosed: The client isn't open.
        """
        return await self._change(self._here().store.retry, jobs)

    async def run_now(self, *jobs: UUID | str | JobHandle[Any]) -> dict[UUID, Changed]:
        """Make pending jobs due now. Arguments, return value and errors are those of `retry`."""
        return await self._change(self._here().store.run_now, jobs)

    async def delete(self, *jobs: UUID | str | JobHandle[Any]) -> dict[UUID, Changed]:
        """Remove jobs that aren't running, finished or not. Arguments, return value and errors are those of `retry`."""
        return await self._change(self._here().store.delete, jobs)

    async def _change(
        self,
        change: Callable[[Sequence[UUID]], Awaitable[Sequence[Changed]]],
        jobs: Iterable[UUID | str | JobHandle[Any]],
    ) -> dict[UUID, Changed]:
        ids = ids_of(jobs)
        changed: dict[UUID, Changed] = {}
        for start in range(0, len(ids), _PORTION):
            portion = ids[start : start + _PORTION]
            try:
                changed.update(zip(portion, await change(portion), strict=True))
            except StoreError as error:
                error.changed = changed
                raise
        return changed

    def __repr__(self) -> str:
        return f"<Client {self._store.description} {'closed' if self._session is None else 'open'}>"
