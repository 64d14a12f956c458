"""A transaction of the client's own, and a client that is bound to a user's one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aioqueue.client._enqueue import used
from aioqueue.client._named import named_call
from aioqueue.client._phase import Phase
from aioqueue.errors import OutsideTransaction, TransactionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from aioqueue.abc import StoreTransaction
    from aioqueue.client._client import Client
    from aioqueue.client._enqueue import Enqueuer
    from aioqueue.client._handle import JobHandle
    from aioqueue.client._phase import TransactionState
    from aioqueue.definitions._call import Call, CallOptions

__all__ = ["BoundClient", "Connection", "Missing", "MISSING", "Transaction", "refuse_none"]

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


def refuse_none(tx: object) -> None:
    """Refuse None where a transaction is passed on.

    Raises:
        OutsideTransaction: It is None.
    """
    if tx is None:
        raise OutsideTransaction(
            "tx=None would enqueue outside of any transaction, which is rarely what is meant where one is passed on: "
            "leave tx= out to enqueue and commit at once"
        )


class Transaction:
    """An open transaction, from `client.transaction()`. What is written in it exists once the block has ended well."""

    def __init__(self, client: Client, enqueuer: Enqueuer, transaction: StoreTransaction, state: TransactionState) -> None:
        self._client = client
        self._enqueuer = enqueuer
        self._transaction = transaction
        self._state = state

    @property
    def connection(self) -> Any:
        """The driver's connection, for what `execute` and `fetch` can't do."""
        self._check()
        return self._transaction.connection

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
        calls = used(calls)
        self._check()
        return await self._enqueuer.within(self._client, calls, self._transaction, self._state)

    async def enqueue_by_name(
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """As `Client.enqueue_by_name`, in this transaction."""
        return await self.enqueue(named_call(name, arguments, options))

    def _check(self) -> None:
        if self._state.phase is not Phase.OPEN:
            raise TransactionError(
                f"this transaction has ended ({self._state.phase.value}): use it inside `async with client.transaction()`"
            )

    def __repr__(self) -> str:
        return f"<Transaction of {self._client!r} {self._state.phase.value}>"


class BoundClient:
    """A client whose enqueues all go into one transaction of the user's: `client.using(session)`."""

    __slots__ = ("_client", "_tx")

    def __init__(self, client: Client, tx: Connection) -> None:
        self._client = client
        self._tx = tx

    async def enqueue(self, call: Call[R]) -> JobHandle[R]:
        """As `Client.enqueue` with `tx=`."""
        return await self._client.enqueue(call, tx=self._tx)

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """As `Client.enqueue_many` with `tx=`."""
        return await self._client.enqueue_many(calls, tx=self._tx)

    async def enqueue_by_name(
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """As `Client.enqueue_by_name`, in the transaction."""
        return await self._client.enqueue(named_call(name, arguments, options), tx=self._tx)

    def __repr__(self) -> str:
        return f"<{self._client!r} using {type(self._tx).__qualname__}>"
