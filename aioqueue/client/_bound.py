"""Enqueues, and ends jobs, in a transaction that somebody else commits: `client.using(session)`, and `tx=`."""

from __future__ import annotations

import asyncio
import functools
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aioqueue.client._end import FailurePlan, completion
from aioqueue.client._enqueue import read_calls
from aioqueue.client._handle import ids_of, make_handles
from aioqueue.client._named import named_call
from aioqueue.client._transaction import Transaction
from aioqueue.client._within import OperationsWithin
from aioqueue.definitions._completion import InTransaction
from aioqueue.errors import OutsideTransaction, TransactionError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.client._end import Plan
    from aioqueue.client._handle import JobHandle
    from aioqueue.client._session import Session
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["MISSING", "BoundClient", "Connection", "Missing", "end_bound", "enqueue_bound", "operations_in"]

R = TypeVar("R")


class Connection(Protocol):
    """What `tx=` takes: an open connection or session of a library that the store knows.

    asyncpg, psycopg 3 (async), SQLAlchemy's AsyncSession and AsyncConnection, sqlite3, aiosqlite: all of them have
    `execute`, and what really is one is found out by the store.
    """

    @property
    def execute(self) -> Callable[..., Any]: ...


class Missing(Enum):
    """Stands for `tx=` that wasn't given."""

    MISSING = "MISSING"


MISSING = Missing.MISSING


class BoundClient(OperationsWithin):
    """A client whose enqueues, looks and changes all go into one transaction of the user's: `client.using(session)`."""

    __slots__ = ("_session", "_tx")

    def __init__(self, session: Session, tx: Connection | Transaction) -> None:
        self._session = session
        self._tx = _transaction_of(tx)

    async def enqueue(self, call: Call[R]) -> JobHandle[R]:
        """As `Client.enqueue` with `tx=`."""
        return (await self.enqueue_many([call]))[0]

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """As `Client.enqueue_many` with `tx=`."""
        return await enqueue_bound(self._session, calls, self._tx)

    async def enqueue_by_name(
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """As `Client.enqueue_by_name`, in the transaction."""
        return await self.enqueue(named_call(name, arguments, options))

    @contextmanager
    def alone(self) -> Generator[None]:
        """Refuse, within the block, to enqueue anything in this task that isn't part of the transaction.

        Raises:
            OutsideTransaction: The task is inside our own `transaction()` already, of which this isn't part.
        """
        opened, task = self._session.opened(), asyncio.current_task()
        if isinstance(self._tx, Transaction):  # in which it's refused already
            yield
            return
        opened.refuse_outside_transaction()
        opened.tasks_in_transaction.add(task)
        try:
            yield
        finally:
            opened.tasks_in_transaction.discard(task)

    async def complete(self, job_type: JobType[..., R, Any], job: UUID | str | JobHandle[Any], result: R | Call[R]) -> None:
        """As `Client.complete` with `tx=`."""
        await end_bound(self._session, job, completion(job_type, result), self._tx)

    async def fail(self, job: UUID | str | JobHandle[Any], reason: str) -> None:
        """As `Client.fail` with `tx=`."""
        await end_bound(self._session, job, FailurePlan(reason), self._tx)

    def _operations(self) -> Operable:
        return operations_in(self._session, self._tx)

    def __repr__(self) -> str:
        return f"<{self._session!r} using {type(self._tx).__qualname__}>"


async def enqueue_bound(session: Session, calls: Iterable[Call[R]], tx: Connection | Transaction) -> list[JobHandle[R]]:
    """Enqueue in a transaction that somebody else commits. Its errors are those of `Client.enqueue`."""
    taken = read_calls(calls)
    tx = _transaction_of(tx)
    opened = session.opened()
    if isinstance(tx, Transaction):
        _refuse_others(session, tx)
        return await tx.enqueue_many(taken)
    inserted = await opened.enqueuer.enqueue_with_connection(taken, tx)
    return make_handles(session, taken, inserted, commit_unseen=True)


async def end_bound(session: Session, job: UUID | str | JobHandle[Any], plan: Plan, tx: Connection | Transaction) -> None:
    """End a job in a transaction that somebody else commits. Its errors are those of `Client.complete`."""
    (job_id,) = ids_of([job])
    tx = _transaction_of(tx)
    opened = session.opened()
    if isinstance(tx, Transaction):
        _refuse_others(session, tx)
        await tx.end(job_id, plan)
    else:
        await opened.ender.end_with(job_id, plan, opened.store.within(tx), functools.partial(opened.store.end, tx=tx))


def operations_in(session: Session, tx: Connection | Transaction) -> Operable:
    """The verbs for looking and operating in a transaction that is given as `tx=`.

    Raises:
        OutsideTransaction: It's None.
        TransactionError: It's another client's, or has ended.
        ClientClosed: The client isn't open.
    """
    tx = _transaction_of(tx)
    opened = session.opened()
    if isinstance(tx, Transaction):
        _refuse_others(session, tx)
        return tx.operations
    return opened.store.within(tx)


def _refuse_others(session: Session, tx: Transaction) -> None:
    if not tx.is_of(session):
        raise TransactionError("the transaction given as tx= is of another client")


def _transaction_of(tx: Connection | Transaction) -> Connection | Transaction:
    """What was given as `tx=`; of a handler's `completion()` its transaction."""
    if tx is None:
        raise OutsideTransaction(
            "tx=None would enqueue outside of any transaction, which is rarely what is meant where one is passed on: "
            "leave tx= out to enqueue and commit at once"
        )
    return tx.transaction if isinstance(tx, InTransaction) else tx
