"""The store's own transactions, which are in the user's hands while they're open."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError, StoreUnavailable, TransactionError
from aioqueue.postgres._connections_closing import PATIENCE_SECONDS, loop_has_ended
from aioqueue.postgres._connections_source import commit, control
from aioqueue.postgres._errors import sqlstate, translated
from aioqueue.postgres._notifications import merged
from aioqueue.postgres._transaction_operations import Operations
from aioqueue.runtime._log import event
from aioqueue.runtime._shield import to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from types import TracebackType

    from aioqueue.postgres._connections import Loan
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_users import UsersPool
    from aioqueue.postgres._insert import Inserter
    from aioqueue.postgres._operate import Operator
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._settle_end import Ender
    from aioqueue.vocabulary._job import Claim, Ending, Inserted, LostReason, NewJob, Settlement, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._store_operating import Operable


__all__ = ["PostgresTransaction", "TransactionBlock"]

logger = logging.getLogger("aioqueue.postgres")

# Ends with the transaction in which it was set, so that another one that was begun by hand is recognised.
_MARK = "SET LOCAL aioqueue.transaction = '1'"
_MARKED = "SELECT pg_catalog.current_setting('aioqueue.transaction')::pg_catalog.int4; "
_FAILED = "25P02"
_NEVER_LEFT = "a transaction was never left, and is rolled back: use `async with`"


class PostgresTransaction:
    """See `aioqueue.abc.StoreTransaction`.

    Arguments:
        pool: Where the connection comes from.
        loan: The connection, in a transaction.
        inserter: Stores jobs on a connection.
        ender: Ends them there.
        operator: Changes them there.
        schema: Where the tables are.
        description: The store, for errors.

    Attributes:
        told: What listeners are told once it's committed.
    """

    def __init__(
        self,
        pool: UsersPool,
        loan: Loan,
        inserter: Inserter,
        ender: Ender,
        operator: Operator,
        schema: Schema,
        *,
        description: str,
    ) -> None:
        assert loan.connection is not None
        self._pool = pool
        self._loan = loan
        self._connection = loan.connection
        self._inserter = inserter
        self._ender = ender
        self._operator = operator
        self._schema = schema
        self._timeout = pool.source.timeout
        self._description = description
        self._blocks: list[int] = []
        self._opened_blocks = 0
        self.told: list[Notification] = []

    @property
    def connection(self) -> Any:
        """The asyncpg connection."""
        self._loan.touched = True
        return self._connection

    async def execute(self, sql: str, *arguments: Any) -> int:
        """See `aioqueue.abc.StoreTransaction.execute`."""
        self._loan.touched = True
        async with self._answered():
            last = (await self._connection.execute(sql, *arguments)).rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """See `aioqueue.abc.StoreTransaction.fetch`."""
        self._loan.touched = True
        async with self._answered():
            return await self._connection.fetch(sql, *arguments)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """See `aioqueue.abc.Store.insert`."""
        async with self._answered():
            written = await self._inserter.insert_in(self._connection, jobs)
        self.told.extend(written.notifications(jobs))
        return written.results

    @property
    def operations(self) -> Operable:
        """See `aioqueue.abc.StoreTransaction.operations`."""
        return Operations(self._lent, lambda: self._operator, self._schema, self._pool.source.description, self.told.append)

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[Connection, None]:
        async with self._answered():
            yield self._connection

    async def hold(self, claim: Claim, lease_id: int) -> LostReason | None:
        """See `aioqueue.abc.Store.hold`. From then on the server ends the transaction if it's idle for too long."""
        async with self._answered():
            await self._connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {self._timeout * 1000:.0f}")
            return await self._ender.hold_in(self._connection, claim, lease_id)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """See `aioqueue.abc.StoreTransaction.settle`."""
        async with self._answered():
            results, told = await self._ender.settle_in(self._connection, settlements)
        self.told.append(told)
        return results

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """See `aioqueue.abc.Store.end`."""
        async with self._answered():
            results, told = await self._ender.end_in(self._connection, endings)
        self.told.append(told)
        return results

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """See `aioqueue.abc.StoreTransaction.savepoint`.

        Raises:
            TransactionError: A block that was opened later hasn't ended.
        """
        self._opened_blocks += 1
        block = self._opened_blocks
        name, told = f"aioqueue_block_{block}", len(self.told)
        async with self._answered():
            await self._connection.execute(f"SAVEPOINT {name}")
        self._blocks.append(block)
        try:
            yield
            self._check_innermost(block)
        except BaseException:
            # Whatever was opened within it is rolled back too.
            del self.told[told:]
            if block in self._blocks:
                del self._blocks[self._blocks.index(block) :]
                await self._roll_back_to(name)
            raise
        self._blocks.remove(block)
        async with self._answered():
            await self._connection.execute(f"RELEASE SAVEPOINT {name}")

    def _check_innermost(self, block: int) -> None:
        if not self._blocks or self._blocks[-1] != block:
            raise TransactionError("nested blocks of a transaction end in the reverse of their order: this one isn't the last")

    async def _roll_back_to(self, name: str) -> None:
        """Roll a nested block back, whatever has cancelled it. Where that fails the whole transaction is lost."""
        if self._connection.is_closed():
            return
        undoing = control(self._connection, self._pool.source, f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
        try:
            await to_the_end(undoing, self._timeout, once_cancelled=PATIENCE_SECONDS)
        except (StoreError, TimeoutError):
            self._connection.terminate()

    @asynccontextmanager
    async def _answered(self) -> AsyncGenerator[None, None]:
        """One statement: a server that stays silent is given up.

        Raises:
            StoreUnavailable: There was no answer in time, and the connection is cut off.
            ClientClosed: The store was closed meanwhile.
        """
        self._pool.check_open()
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self._connection.terminate()
            raise StoreUnavailable(
                f"{self._description}: no answer to a statement within {self._timeout:g} s; statements that take "
                "longer need a larger timeout=, or the transaction's connection itself"
            ) from error


class TransactionBlock:
    """Holds a transaction for an `async with` block: committed at its end, rolled back when it raises or is cancelled.

    A class and not a generator: what is never left would be closed piece by piece when the event loop ends.

    Arguments:
        pool: For what users hold.
        inserter: Stores jobs on a connection.
        ender: Ends them there.
        operator: Changes them there.
        schema: Where the tables are.
        tell: Called with what has happened, after the commit.
        description: The store, for errors.
    """

    def __init__(
        self,
        pool: UsersPool,
        inserter: Inserter,
        ender: Ender,
        operator: Operator,
        schema: Schema,
        tell: Callable[[Notification], None],
        description: str,
    ) -> None:
        self._pool = pool
        self._inserter = inserter
        self._ender = ender
        self._operator = operator
        self._schema = schema
        self._tell = tell
        self._description = description
        self._loop = asyncio.get_running_loop()
        self._transaction: PostgresTransaction | None = None
        self._loan: Loan | None = None

    async def __aenter__(self) -> PostgresTransaction:
        """Begin.

        Raises:
            StoreError: No connection.
        """
        source = self._pool.source
        loan = await self._pool.borrow()
        with translated(source.description):
            try:
                assert loan.connection is not None
                async with asyncio.timeout(source.timeout):
                    await control(loan.connection, source, f"{source.begin}; {_MARK}")
            except BaseException as error:
                await self._pool.give_back(loan, error)
                raise
        self._loan = loan
        self._transaction = PostgresTransaction(
            self._pool, loan, self._inserter, self._ender, self._operator, self._schema, description=self._description
        )
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit or roll back.

        Raises:
            StoreUnavailable: The commit failed, or wasn't answered.
            TransactionError: A statement in the block has ended the transaction.
            ClientClosed: The store was closed meanwhile: it's rolled back.
        """
        loan, transaction = self._loan, self._transaction
        assert loan is not None
        assert transaction is not None
        self._loan = None
        failure = error
        if isinstance(error, GeneratorExit) and not loop_has_ended():
            logger.warning(_NEVER_LEFT, extra=event("transaction.never_left"))
        try:
            if failure is None:
                await self._commit(loan)
        except BaseException as during:
            failure = during
            raise
        finally:
            await self._pool.give_back(loan, failure)
        if failure is None:
            self._tell(merged(transaction.told))

    async def _commit(self, loan: Loan) -> None:
        connection = loan.connection
        assert connection is not None
        self._pool.check_open()
        if connection.is_closed():
            raise StoreUnavailable(f"{self._description}: the connection was lost before the commit: nothing was written")
        if await _commit(self._pool, connection, touched=loan.touched) != "COMMIT":
            raise StoreError("the transaction was rolled back: a statement in it had failed, and its error was caught")

    def __del__(self) -> None:
        if (loan := self._loan) is None:
            return
        logger.warning(_NEVER_LEFT, extra=event("transaction.never_left"))
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._pool.take_back, loan)


async def _commit(pool: UsersPool, connection: Connection, *, touched: bool) -> str:
    if not touched:
        return await commit(connection, pool.source)
    ended = TransactionError(
        "the transaction had been ended inside its block, by a COMMIT, a ROLLBACK or the like (or RESET ALL): what came "
        "before is committed or rolled back as that statement says, and what came after is rolled back. Leave the block to "
        "commit, and raise to roll back; SAVEPOINT and ROLLBACK TO SAVEPOINT may be used"
    )
    if not connection.is_in_transaction():
        raise ended
    try:
        return await commit(connection, pool.source, before=_MARKED)
    except StoreError as error:
        # If the commit itself had failed, no transaction would be open any more.
        if connection.is_closed() or not connection.is_in_transaction():
            raise
        if sqlstate(error.__cause__) == _FAILED:
            return "ROLLBACK"
        raise ended from error
