"""One connection at a time: opened, used within a transaction, rolled back and closed, each within a deadline.

Every wait has a deadline on this side, because a server that has fallen silent never answers.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from aioqueue.errors import ConfigurationError, StoreError, StoreUnavailable
from aioqueue.postgres._connections_tracker import cut_off, is_over, let_go
from aioqueue.postgres._errors import translate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Generator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioqueue.postgres._connections_tracker import Belongings

__all__ = [
    "PLANNER_SETTINGS",
    "Connection",
    "Opener",
    "Row",
    "Source",
    "UserPool",
    "check_process",
    "close_connection",
    "commit",
    "control",
    "in_transaction",
    "to_the_end",
    "wait_for",
    "wait_or_cancel",
]

CLOSE_SECONDS = 3.0
PATIENCE = 0.5
"""Seconds for which a caller that is cancelled, or whose deadline is over, still waits for its connection's sake."""

# The planner's last fences: no statement of ours is better off reading a whole table, and none needs to be planned twice.
PLANNER_SETTINGS = ("jit = off", "enable_seqscan = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan")
_SETTINGS = "; ".join(f"SET {each}" for each in (*PLANNER_SETTINGS, "default_transaction_isolation = 'read committed'"))
# Where a role's search_path names pg_catalog later, or somebody's function of the same name would be taken for PostgreSQL's.
# What else is in the path stays: triggers of the user's may need it.
_CATALOG_FIRST = """SELECT pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog',
    nullif(pg_catalog.current_setting('search_path'), '')), {local})"""
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
    def transaction(self, *, isolation: str) -> AbstractAsyncContextManager[Any]: ...
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
        for_users: Whether the connections get into users' hands: their search_path stays as it is then.
        lock_timeout: Seconds that a statement may wait for each lock; None for as long as the server's settings say.
    """

    connect: Callable[[], Awaitable[Connection]]
    description: str
    prepared: bool = True
    timeout: float = 60.0
    pool: UserPool | None = None
    for_users: bool = False
    lock_timeout: float | None = None

    async def open(self) -> Connection:
        """Open a connection and set it up.

        Raises:
            StoreError: It can't be had; `StoreUnavailable`, if it may be later.
            ConfigurationError: It belongs to another event loop.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self.timeout):
                opened = await self.connect()
                _check_loop(opened)
                connection = opened
                await self.set_up(connection)
        except BaseException as error:
            if connection is not None:
                cut_off(connection)
            if (ours := self.translated(error)) is error:
                raise
            raise ours from error
        return connection

    async def set_up(self, connection: Connection) -> None:
        """Make the settings of a session that is ours alone."""
        if self.prepared:
            await connection.execute("; ".join((_SETTINGS, *self._own_settings(local="false"))))

    def _own_settings(self, *, local: str) -> Iterator[str]:
        if not self.for_users:
            yield _CATALOG_FIRST.format(local=local)
        if self.lock_timeout is not None:
            yield f"SELECT pg_catalog.set_config('lock_timeout', '{self.lock_timeout * 1000:.0f}', {local})"

    @property
    def begin(self) -> str:
        """What begins a transaction."""
        if self.prepared and self.pool is None:
            return _BEGIN
        return "; ".join((_BEGIN_POOLED, *self._own_settings(local="true")))

    def translated(self, error: BaseException) -> BaseException:
        """Our error for the driver's; others as they are."""
        return translate(error, self.description) or error

    async def query(self, connection: Connection, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        """Run one statement that commits by itself. Whoever owns the connection tidies up what is cut short."""
        if self.prepared:
            return await connection.fetch(sql, *arguments)
        # The pooler may change the server between preparing and executing, except within a transaction.
        async with in_transaction(connection, self):
            return await connection.fetch(sql, *arguments)


def _check_loop(connection: Connection) -> None:
    """Refuse a connection that would wait for another event loop for ever."""
    loop = asyncio.get_running_loop()
    if getattr(connection, "_loop", loop) is not loop:
        raise ConfigurationError(
            "the function that connects gave a connection of another event loop: "
            "it has to open one in the loop in which it's called"
        )


@asynccontextmanager
async def in_transaction(connection: Connection, source: Source) -> AsyncGenerator[None, None]:
    """A transaction whose commit is shielded from cancellation, with a deadline.

    What fails or is cancelled leaves the transaction open: whoever owns the connection rolls it back, or closes it.

    Raises:
        StoreUnavailable: The commit wasn't answered in time: whether it happened isn't known.
    """
    async with asyncio.timeout(source.timeout):
        await control(connection, source, source.begin)
    yield
    if await commit(connection, source) != "COMMIT":
        raise StoreError("the transaction was rolled back: a statement in it had failed, and its error was caught")


async def commit(connection: Connection, source: Source, *, before: str = "") -> str:
    """Commit, shielded from cancellation.

    Arguments:
        connection: In a transaction.
        source: Where it comes from.
        before: A statement that is run first, and without which nothing is committed.

    Returns:
        What the server did: `COMMIT`, or `ROLLBACK` if a statement had failed before.

    Raises:
        StoreUnavailable: There was no answer in time: whether it happened isn't known.
    """
    try:
        return await to_the_end(control(connection, source, f"{before}COMMIT"), source.timeout)
    except TimeoutError:
        cut_off(connection)
        raise StoreUnavailable(f"{source.description}: no answer to a commit in time") from None


async def to_the_end(call: Coroutine[Any, Any, T], limit: float) -> T:
    """Wait for a call in a task of its own, which goes on whatever is cancelled meanwhile.

    A shielded scope holds off the cancellation of scopes only; `Task.cancel` would cut a commit short.

    Arguments:
        call: What is to be done.
        limit: Seconds at most; `PATIENCE` at most once this task is cancelled.

    Raises:
        TimeoutError: It took longer, and was cancelled.
        asyncio.CancelledError: This task was cancelled meanwhile; the call has ended, or was cancelled too.
    """
    task = asyncio.get_running_loop().create_task(call, context=Context())
    cancelled = await wait_for(task, limit)
    late = not task.done() and task.cancel()
    if cancelled is not None:
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that it isn't reported: the cancellation is what matters now
        raise cancelled
    if late:
        raise TimeoutError
    return task.result()


async def wait_for(task: asyncio.Task[Any], limit: float) -> asyncio.CancelledError | None:
    """Wait until a task is done, or for `limit` seconds; for `PATIENCE` at most once this one is cancelled.

    Returns:
        The cancellation that came meanwhile. It's the caller's to raise.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    cancelled: asyncio.CancelledError | None = None
    with _shielded():
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
                deadline = min(deadline, loop.time() + PATIENCE)
    return cancelled


@contextmanager
def _shielded() -> Generator[None, None, None]:
    """Hold off the cancellation of anyio's scopes, which comes again in each round of the loop."""
    scope = anyio.CancelScope(shield=True).__enter__()
    try:
        yield
    except GeneratorExit:  # the loop is closed, and there's no task that could leave a scope
        raise
    except BaseException as error:
        scope.__exit__(type(error), error, error.__traceback__)
        raise
    else:
        scope.__exit__(None, None, None)


async def control(connection: Connection, source: Source, sql: str) -> str:
    """Run a statement that begins or ends a transaction; returns what the server says that it did."""
    try:
        return await connection.execute(sql)
    except Exception as error:
        if (ours := source.translated(error)) is error:
            raise
        raise ours from error


async def close_connection(connection: Connection) -> None:
    """Close, bounded in time."""
    if connection.is_closed():
        return
    if is_over():
        let_go(connection)
        return
    try:
        with suppress(Exception):
            await to_the_end(connection.close(timeout=CLOSE_SECONDS / 2), CLOSE_SECONDS)
    finally:
        if not connection.is_closed():
            cut_off(connection)
        with _shielded():
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

    asyncpg leaves futures behind that nobody looks at when connecting is cancelled; so it goes on in a task of its own,
    which begins in an empty context: a connection lives on when the request in which it was opened is long over.

    Arguments:
        belongings: Holds the tasks, and the connections while they're open.
        connect: Opens one.
        keep: Takes a connection whose caller has gone meanwhile.
    """

    def __init__(
        self,
        belongings: Belongings,
        connect: Callable[[], Coroutine[Any, Any, Connection]],
        keep: Callable[[Connection], None],
    ) -> None:
        self._belongings = belongings
        self._connect = connect
        self._keep = keep
        self._tasks: set[asyncio.Task[Connection]] = set()
        self._orphans: set[asyncio.Task[Connection]] = set()

    async def open(self) -> Connection:
        """Open one. What a caller that was cancelled had begun is taken over, so that they don't add up."""
        task = next((each for each in self._orphans if not each.done()), None)
        if task is None:
            task = self._belongings.begin(self._connect(), "aioqueue connect")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard, context=Context())
        else:
            self._orphans.discard(task)
            task.remove_done_callback(self._orphaned)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._orphans.add(task)
                task.add_done_callback(self._orphaned, context=Context())
            raise

    def _orphaned(self, task: asyncio.Task[Connection]) -> None:
        self._orphans.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._keep(task.result())

    async def close(self) -> None:
        """Wait for what is being opened; `keep` takes it."""
        await wait_or_cancel(self._tasks)


async def wait_or_cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for tasks, and cancel those that take too long."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS / 2)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CLOSE_SECONDS / 2)
