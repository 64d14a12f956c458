"""A transaction of the store's own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from aioqueue.errors import ConfigurationError, StoreUnavailable, TransactionError
from aioqueue.testing.memory._insert import insert
from aioqueue.testing.memory._settle import settle
from aioqueue.testing.memory._settle_end import end, hold
from aioqueue.testing.memory._transaction_draft import Draft, make_changes
from aioqueue.testing.memory._transaction_operations import operations

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._transaction_draft import Change
    from aioqueue.vocabulary._job import Claim, Ending, Inserted, LostReason, NewJob, Settlement, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._store_operating import Operable

    Verb = Callable[[str, Callable[[Database], Any]], Awaitable[Any]]

__all__ = ["MemoryTransaction", "SqlConnection"]


class SqlConnection(Protocol):
    """What runs a user's statements: a `sqlite3.Connection` in autocommit mode does."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any:
        """Run one statement; returns a cursor."""
        ...


class MemoryTransaction:
    """Changes that nobody else sees until the commit; till then others find the rows locked that it has changed.

    There is one at a time: whoever has it holds the database's turn. Each of its verbs works on a draft of the database as it
    is at the moment, with what the transaction has changed before.

    Arguments:
        verb: Has the store do something, if it's open.
        sql: Runs the user's statements.
    """

    def __init__(self, verb: Verb, sql: SqlConnection | None) -> None:
        self._verb = verb
        self._sql = sql
        self._open = self._over = False
        self._changes: list[Change] = []
        self._told: list[tuple[datetime, Notification]] = []
        self._savepoints = 0
        self._blocks: list[str] = []

    @property
    def connection(self) -> Any:
        """What runs the user's statements; None if nothing does."""
        return self._sql

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement of the user's; returns the number of rows that it changed."""
        return int(await self._verb("execute", lambda _: self._run(sql, arguments).rowcount))

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query of the user's; the rows are those of what runs it."""
        rows: Sequence[Any] = await self._verb("execute", lambda _: self._run(sql, arguments).fetchall())
        return rows

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs that others see, and listeners hear of, after the commit."""
        results: list[Inserted] = await self._change("insert", lambda draft: insert(draft, jobs))
        return results

    @property
    def operations(self) -> Operable:
        """The verbs for looking and operating. See `StoreTransaction.operations`."""
        return operations(self._change)

    async def hold(self, claim: Claim, lease_id: int) -> LostReason | None:
        """Lock a running job by its claim. See `Store.hold`."""
        lost: LostReason | None = await self._change("hold", lambda draft: hold(draft, claim, lease_id))
        return lost

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """Write how attempts ended whose claims it holds. See `Store.settle`."""
        results: list[SettleResult] = await self._change("settle", lambda draft: settle(draft, settlements, orphaned=False))
        return results

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """End jobs that aren't finished. See `Store.end`."""
        results: list[bool] = await self._change("end", lambda draft: end(draft, endings))
        return results

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Open a nested block. See `StoreTransaction.savepoint`."""
        self._savepoints += 1
        name = f"aioqueue_{self._savepoints}"
        await self._verb("savepoint", lambda _: self._run_own(f"savepoint {name}"))
        changes, told = len(self._changes), len(self._told)
        self._blocks.append(name)
        try:
            yield
            if self._blocks[-1:] != [name]:
                raise TransactionError("nested blocks of a transaction end in the reverse of their order")
        except BaseException:
            # Not by way of `_verb`: it's rolled back though the block was cancelled, or the store was closed.
            if name in self._blocks and self._open:
                del self._blocks[self._blocks.index(name) :]
                self._run_own(f"rollback to {name}")
                del self._changes[changes:], self._told[told:]
                self._lock_rows()
            raise
        self._blocks.remove(name)
        await self._verb("release", lambda _: self._run_own(f"release {name}"))

    def begin(self, database: Database) -> None:
        """Begin, in the user's database too."""
        self._require(holds=not self._over)
        if self._sql is not None:
            self._sql.execute("begin")
        self._open = True
        self._database = database

    def commit(self, database: Database) -> None:
        """Make all of it visible, and tell listeners."""
        self._require(holds=self._open)
        if self._sql is not None:
            self._sql.execute("commit")
        self._end(database)
        make_changes(database, self._changes)
        for at, notification in self._told:
            waited = (database.now() - at).total_seconds()
            database.tell(replace(notification, delay=max(0.0, notification.delay - waited)))

    def roll_back(self, database: Database) -> None:
        """Forget all of it, unless it was committed."""
        if self._open:
            if self._sql is not None:
                self._sql.execute("rollback")
            self._end(database)
        self._over = True

    def _require(self, *, holds: bool) -> None:
        """What arrives when it was rolled back, since nobody waited for it any more, does nothing."""
        if not holds:
            raise StoreUnavailable("the transaction is over")

    def _end(self, database: Database) -> None:
        self._open = False
        database.uncommitted = {}
        for row in database.rows.values():
            row.held = False

    async def _change(self, verb: str, change: Callable[[Draft], Any]) -> Any:
        return await self._verb(f"transaction.{verb}", lambda database: self._change_now(database, change))

    def _change_now(self, database: Database, change: Callable[[Draft], Any]) -> Any:
        self._require(holds=self._open)
        draft = Draft(database, self._changes, self._rows_changed())
        result = change(draft)
        self._changes = draft.changes
        self._told += [(database.now(), notification) for notification in draft.told]
        self._lock_rows()
        return result

    def _rows_changed(self) -> set[UUID]:
        return {change.job_id for change in self._changes if change.job_id is not None}

    def _lock_rows(self) -> None:
        added = [change.added for change in self._changes]
        self._database.uncommitted = {row.new.id: row for row in added if row is not None}
        changed = self._rows_changed()
        for row in self._database.rows.values():
            row.held = row.new.id in changed

    def _run(self, sql: str, arguments: Sequence[Any]) -> Any:
        if self._sql is None:
            raise ConfigurationError(
                "a store in memory runs no SQL by itself: MemoryStore(sql=sqlite3.connect(':memory:', isolation_level=None)) "
                "does"
            )
        return self._sql.execute(sql, arguments)

    def _run_own(self, sql: str) -> None:
        if self._sql is not None:
            self._sql.execute(sql)
