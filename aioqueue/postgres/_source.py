"""One connection at a time: opened, used within a transaction, rolled back and closed, each within a deadline.

Every wait has a deadline on this side, because a server that has fallen silent never answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from aioqueue.errors import StoreError, StoreUnavailable
from aioqueue.postgres._errors import breaks_connection, translate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

__all__ = [
    "PLANNER_SETTINGS",
    "Connection",
    "Opener",
    "Row",
    "Source",
    "UserPool",
    "check_process",
    "close_connection",
    "in_transaction",
    "roll_back",
    "to_the_end",
]

logger = logging.getLogger("aioqueue.postgres")

ROLLBACK_SECONDS = 5.0
CLOSE_SECONDS = 3.0

# The planner's last fences: no statement of ours is better off reading a whole table, and none needs to be planned twice.
PLANNER_SETTINGS = ("jit = off", "enable_seqscan = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan")
_SETTINGS = "; ".join(f"SET {each}" for each in (*PLANNER_SETTINGS, "default_transaction_isolation = 'read committed'"))
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# Through a connection pooler a session's settings would reach other people's transactions, or not our own; and a pool of
# the user's has sessions that aren't ours.
_BEGIN_POOLED = "; ".join((_BEGIN, *(f"SET LOCAL {each}" for each in PLANNER_SETTINGS)))

Row = Any
"""asyncpg's Record."""

T = TypeVar("T")


class Connection(Protocol):
    """What is used of an asyncpg connection, which ships no types."""

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Row]: ...
    def execute(self, query: str, *arguments: Any) -> Coroutine[Any, Any, str]: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...
    async def reset(self) -> None: ...
    def close(self, *, timeout: float | None = None) -> Coroutine[Any, Any, None]: ...
    def terminate(self) -> None: ...
    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None: ...
    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...


class UserPool(Protocol):
    """What is used of an asyncpg pool of the user's."""

    async def acquire(self, *, timeout: float | None = None) -> Connection: ...
    def release(self, connection: Connection, *, timeout: float | None = None) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where connections come from.

    Attributes:
        connect: Opens one, in whatever event loop runs.
        description: The server without a password, for logs and errors.
        prepared: Whether statements may stay prepared; not behind a transaction pooler without support for it.
        timeout: Seconds that connecting or one statement may take.
        pool: The user's pool, which then serves instead of one of ours.
    """

    connect: Callable[[], Awaitable[Connection]]
    description: str
    prepared: bool = True
    timeout: float = 60.0
    pool: UserPool | None = None

    async def open(self) -> Connection:
        """Open a connection and set it up.

        Raises:
            StoreError: It can't be had; `StoreUnavailable`, if it may be later.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self.timeout):
                connection = await self.connect()
                await self.set_up(connection)
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if (ours := self.translated(error)) is error:
                raise
            raise ours from error
        return connection

    async def set_up(self, connection: Connection) -> None:
        """Make the settings of a session that is ours alone."""
        if self.prepared:
            await connection.execute(_SETTINGS)

    def translated(self, error: BaseException) -> BaseException:
        """Our error for the driver's; others as they are."""
        return translate(error, self.description) or error

    async def query(self, connection: Connection, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        """Run one statement that commits by itself."""
        if self.prepared:
            return await connection.fetch(sql, *arguments)
        # The pooler may change the server between preparing and executing, except within a transaction.
        async with in_transaction(connection, self):
            return await connection.fetch(sql, *arguments)


@asynccontextmanager
async def in_transaction(connection: Connection, source: Source) -> AsyncGenerator[None, None]:
    """A transaction whose end is shielded from cancellation, with a deadline.

    Raises:
        StoreUnavailable: The commit wasn't answered in time: whether it happened isn't known.
    """
    try:
        async with asyncio.timeout(source.timeout):
            await _control(connection, source, _BEGIN if source.prepared and source.pool is None else _BEGIN_POOLED)
        yield
    except BaseException:
        await roll_back(connection)
        raise
    try:
        ended = await to_the_end(_control(connection, source, "COMMIT"), source.timeout)
    except TimeoutError:
        connection.terminate()
        raise StoreUnavailable(f"{source.description}: no answer to a commit in time") from None
    if ended != "COMMIT":
        raise StoreError("the transaction was rolled back: a statement in it had failed, and its error was caught")


async def to_the_end(call: Coroutine[Any, Any, T], limit: float) -> T:
    """Wait for a call in a task of its own, which goes on whatever is cancelled meanwhile, for at most `limit` seconds.

    A shielded scope holds off the cancellation of scopes only; `Task.cancel` would cut a rollback short.

    Raises:
        TimeoutError: It took longer, and was cancelled.
        asyncio.CancelledError: This task was cancelled meanwhile; the call has ended.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(call)
    deadline = loop.time() + limit
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
    late = not task.done() and task.cancel()
    if cancelled is not None:
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that it isn't reported: the cancellation is what matters now
        raise cancelled
    if late:
        raise TimeoutError
    return task.result()


async def _control(connection: Connection, source: Source, sql: str) -> str:
    try:
        return await connection.execute(sql)
    except Exception as error:
        if breaks_connection(error):
            connection.terminate()
        if (ours := source.translated(error)) is error:
            raise
        raise ours from error


async def roll_back(connection: Connection) -> None:
    """Leave no transaction behind: what can't be rolled back in time is cut off."""
    if connection.is_closed():
        return
    try:
        # Also where none seems to be open: a BEGIN that was cut short may have arrived.
        await to_the_end(connection.execute("ROLLBACK"), ROLLBACK_SECONDS)
    except Exception as error:  # noqa: BLE001 - the error that led here is the one to tell
        logger.debug("a rollback failed, its connection is cut off: %s", type(error).__name__)
        connection.terminate()


async def close_connection(connection: Connection) -> None:
    """Close, bounded in time."""
    if connection.is_closed():
        return
    try:
        with suppress(Exception):
            await to_the_end(connection.close(timeout=CLOSE_SECONDS / 2), CLOSE_SECONDS)
    finally:
        if not connection.is_closed():
            connection.terminate()
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(0)  # a transport closes its socket in the loop's next round


def check_process(process: int) -> None:
    """Refuse to use another process's sockets.

    Raises:
        StoreError: This process is a fork of the one that connected.
    """
    if os.getpid() != process:
        raise StoreError(
            f"this store was opened in process {process} and inherited by process {os.getpid()} through a fork: "
            "connections can't be shared, open a client of its own in each process"
        )


class Opener:
    """Opens connections for one owner, and never cancels one half-way.

    asyncpg leaves futures behind that nobody looks at when connecting is cancelled; so it goes on in a task of its own.

    Arguments:
        source: Where they come from.
        keep: Takes a connection whose caller has gone meanwhile.
    """

    def __init__(self, source: Source, keep: Callable[[Connection], None]) -> None:
        self._source = source
        self._keep = keep
        self._tasks: set[asyncio.Task[Connection]] = set()
        self._orphans: set[asyncio.Task[Connection]] = set()

    async def open(self) -> Connection:
        """See `Source.open`. What a caller that was cancelled had begun is taken over, so that they don't add up."""
        task = next((each for each in self._orphans if not each.done()), None)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._source.open(), name="aioqueue connect")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._orphans.discard(task)
            task.remove_done_callback(self._orphaned)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._orphans.add(task)
                task.add_done_callback(self._orphaned)
            raise

    def _orphaned(self, task: asyncio.Task[Connection]) -> None:
        self._orphans.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._keep(task.result())

    async def close(self) -> None:
        """Wait for what is being opened; `keep` takes it."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS / 2)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_SECONDS / 2)
