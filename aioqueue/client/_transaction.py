"""A transaction of the client's own: `async with client.transaction() as tx:`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.client._end import FailurePlan, completion
from aioqueue.client._enqueue import read_calls
from aioqueue.client._handle import ids_of, make_handles
from aioqueue.client._named import named_call
from aioqueue.client._phase import Phase, TransactionState
from aioqueue.client._within import OperationsWithin
from aioqueue.errors import ClientClosed, RowRejected, TransactionError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.client._end import Plan
    from aioqueue.client._enqueue import Enqueuer
    from aioqueue.client._handle import JobHandle
    from aioqueue.client._session import Session
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._store_parts import StoreTransaction

__all__ = ["Transaction", "open_transaction"]

R = TypeVar("R")


class Transaction(OperationsWithin):
    """An open transaction, from `client.transaction()`. What is written in it exists once the block has ended well."""

    def __init__(self, session: Session, enqueuer: Enqueuer, transaction: StoreTransaction, state: TransactionState) -> None:
        self._session = session
        self._enqueuer = enqueuer
        self._transaction = transaction
        self._state = state

    @property
    def store_transaction(self) -> StoreTransaction:
        """The store's own, for a worker that writes an outcome in it."""
        self._check()
        return self._transaction

    @property
    def connection(self) -> Any:
        """The driver's connection, for what `execute` and `fetch` can't do."""
        self._check()
        return self._transaction.connection

    @property
    def operations(self) -> Operable:
        """The store's verbs for looking and operating in it, for `tx=`."""
        self._check()
        return self._transaction.operations

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement.

        Arguments:
            sql: In the database's own dialect, with its placeholders (`$1` in PostgreSQL, `?` in SQLite).
            arguments: For the placeholders.

        Returns:
            The number of rows that it changed.

        Raises:
            TransactionError: The block has ended.
        """
        self._check()
        return await self._transaction.execute(sql, *arguments)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query.

        Arguments:
            sql: In the database's own dialect, with its placeholders (`$1` in PostgreSQL, `?` in SQLite).
            arguments: For the placeholders.

        Returns:
            The driver's rows, readable by position and by name.

        Raises:
            TransactionError: The block has ended.
        """
        self._check()
        return await self._transaction.fetch(sql, *arguments)

    async def enqueue(self, call: Call[R]) -> JobHandle[R]:
        """Enqueue a call in this transaction. If it's rolled back, the call may be enqueued again.

        Raises:
            CallAlreadyEnqueued: The call was enqueued before.
            RowRejected: The database refuses the row.
            StoreUnavailable: The database can't be reached.
            TransactionError: The block has ended.
        """
        return (await self.enqueue_many([call]))[0]

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Enqueue calls in this transaction, in chunked statements. Raises as `enqueue`.

        Returns:
            Their handles, in order.
        """
        taken = read_calls(calls)
        self._check()
        inserted = await self._enqueuer.enqueue_in_transaction(taken, self._transaction, self._state)
        return make_handles(self._session, taken, inserted, state=self._state)

    async def enqueue_by_name(
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """As `Client.enqueue_by_name`, in this transaction."""
        return await self.enqueue(named_call(name, arguments, options))

    async def complete(self, job_type: JobType[..., R, Any], job: UUID | str | JobHandle[Any], result: R | Call[R]) -> None:
        """As `Client.complete`, in this transaction."""
        (job_id,) = ids_of([job])
        await self.end(job_id, completion(job_type, result))

    async def fail(self, job: UUID | str | JobHandle[Any], reason: str) -> None:
        """As `Client.fail`, in this transaction."""
        (job_id,) = ids_of([job])
        await self.end(job_id, FailurePlan(reason))

    async def end(self, job_id: UUID, plan: Plan) -> None:
        """End a job in this transaction: what `complete` and `fail` do."""
        self._check()
        await self._session.opened().ender.end_with(job_id, plan, self._transaction.operations, self._transaction.end)
        self._state.calls.extend(plan.calls)

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """Open a nested block: `async with tx.savepoint():`. If it raises, only what was done in it is rolled back.

        Calls that were enqueued in it may be enqueued again then, also in this transaction. Blocks end in the reverse order of
        their beginning; other tasks mustn't use the transaction meanwhile.

        Raises:
            TransactionError: The transaction has ended.
        """
        self._check()
        outer, inner = self._state, TransactionState(self._state)
        self._state = inner
        try:
            async with self._transaction.savepoint():
                yield
        except BaseException:
            inner.end(Phase.ROLLED_BACK)
            raise
        else:
            inner.join_outer()
        finally:
            self._state = outer

    def _operations(self) -> Operable:
        return self.operations

    def is_of(self, session: Session) -> bool:
        """Whether it's a transaction of the client that has this session."""
        return self._session is session

    def _check(self) -> None:
        if self._state.phase is not Phase.OPEN:
            raise TransactionError(
                f"this transaction has ended ({self._state.phase.value}): use it inside `async with client.transaction()`"
            )

    def __repr__(self) -> str:
        return f"<Transaction of {self._session!r} {self._state.phase.value}>"


@asynccontextmanager
async def open_transaction(session: Session) -> AsyncGenerator[Transaction, None]:
    """Open a transaction of a client's. Its errors are those of `Client.transaction`."""
    opened = session.opened()
    opened.refuse_outside_transaction()
    task = asyncio.current_task()
    state = TransactionState()
    ended_well = False
    try:
        async with opened.store.transaction() as inner:
            opened.tasks_in_transaction.add(task)
            try:
                yield Transaction(session, opened.enqueuer, inner, state)
            finally:
                opened.tasks_in_transaction.discard(task)
            ended_well = True
    except BaseException as error:
        # A store that was closed meanwhile has refused to commit.
        if ended_well and not isinstance(error, RowRejected | ClientClosed):
            opened.enqueuer.remember_unclear(state.calls)
            state.end(Phase.UNCLEAR)
        else:
            state.end(Phase.ROLLED_BACK)
        raise
    state.end(Phase.COMMITTED)
    for happened in state.happened:
        session.observers.tell(happened)
