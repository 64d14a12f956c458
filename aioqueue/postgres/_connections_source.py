"""One connection at a time: opened, used within a transaction, rolled back and closed, each within a deadline.

Every wait has a deadline on this side, because a server that has fallen silent never answers.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError, StoreError, StoreUnavailable
from aioqueue.postgres._connections_closing import PATIENCE_SECONDS, terminate
from aioqueue.postgres._errors import translated
from aioqueue.runtime._shield import to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from aioqueue.postgres._connections_driver import Connection, Row, UserPool

__all__ = [
    "HOLD_BRIEFLY",
    "PLANNER_SETTINGS",
    "TRUSTED_SECONDS",
    "WAIT_BRIEFLY",
    "Source",
    "commit",
    "control",
    "in_transaction",
]

TRUSTED_SECONDS = 10.0
"""How long an idle connection is taken to be in order; after that it's asked before it's used."""

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


WAIT_BRIEFLY = "SET LOCAL lock_timeout = '100ms'"
"""Whoever waits for somebody's open transaction (it holds the same unique key, or a job's row) waits without a connection of
ours: the few that there are serve every other operation too.
"""

_HELD_SECONDS = 5.0
HOLD_BRIEFLY = f"{WAIT_BRIEFLY}; SET LOCAL idle_in_transaction_session_timeout = '{_HELD_SECONDS * 1000:.0f}ms'"
"""The same where what is held is everybody's, such as schedules: whoever is frozen between two statements loses it soon."""


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
        with translated(self.description):
            try:
                async with asyncio.timeout(self.timeout):
                    opened = await self.connect()
                    _check_loop(opened)
                    connection = opened
                    await self.set_up(connection)
            except BaseException:
                if connection is not None:
                    terminate(connection)
                raise
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
        """The statement that begins a transaction, with the session's settings where the connection doesn't keep them."""
        if self.prepared and self.pool is None:
            return _BEGIN
        return "; ".join((_BEGIN_POOLED, *self._own_settings(local="true")))

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
async def in_transaction(connection: Connection, source: Source, settings: str = "") -> AsyncGenerator[None, None]:
    """A transaction whose commit is shielded from cancellation, with a deadline.

    What fails or is cancelled leaves the transaction open: whoever owns the connection rolls it back, or closes it.

    Arguments:
        connection: In no transaction.
        source: Where it comes from.
        settings: Statements with which it begins, such as `HOLD_BRIEFLY`.

    Raises:
        StoreUnavailable: The commit wasn't answered in time: whether it happened isn't known.
    """
    async with asyncio.timeout(source.timeout):
        await control(connection, source, "; ".join(filter(None, (source.begin, settings))))
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
        ending = control(connection, source, f"{before}COMMIT")
        return await to_the_end(ending, source.timeout, once_cancelled=PATIENCE_SECONDS)
    except TimeoutError:
        terminate(connection)
        raise StoreUnavailable(f"{source.description}: no answer to a commit in time") from None


async def control(connection: Connection, source: Source, sql: str) -> str:
    """Run a statement that begins or ends a transaction; returns what the server says that it did."""
    with translated(source.description):
        return await connection.execute(sql)
