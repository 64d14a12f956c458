"""Within somebody's transaction: what fails is undone, and rows are waited for no longer than a moment."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres._connections_closing import PATIENCE_SECONDS
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.runtime._shield import to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioqueue.postgres._connections_driver import Connection

__all__ = ["brief_waits", "only_looking", "only_trying", "waiting_briefly", "whole_or_nothing"]

_SAVEPOINT, _ROLL_BACK, _RELEASE = (
    f"{verb} aioqueue_blockers" for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)
_UNDO_SECONDS = 10.0
_LOCK_TIMEOUT = "SELECT pg_catalog.current_setting('lock_timeout')"
_PUT_BACK = "SELECT pg_catalog.set_config('lock_timeout', $1::text, true)"


@asynccontextmanager
async def whole_or_nothing(connection: Connection) -> AsyncGenerator[None]:
    """Within somebody's transaction: what fails or is cancelled in the block is undone, and leaves the transaction as it was.

    A part of it must not be committed: such as a job that is blocked, without what it waits for.
    """
    await connection.execute(_SAVEPOINT)
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await _undo(connection)
        raise
    await connection.execute(_RELEASE)


@asynccontextmanager
async def only_looking(connection: Connection, settings: Sequence[str]) -> AsyncGenerator[None]:
    """Within somebody's transaction: queries that change nothing, with settings of our own, which are gone afterwards."""
    async with only_trying(connection, settings):
        yield


@asynccontextmanager
async def only_trying(connection: Connection, settings: Sequence[str]) -> AsyncGenerator[None]:
    """The same with what changes something: it's undone in any case, and its locks are given back."""
    await connection.execute("; ".join((_SAVEPOINT, *(f"SET LOCAL {each}" for each in settings))))
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await _undo(connection)
        raise
    await connection.execute(f"{_ROLL_BACK}; {_RELEASE}")


async def _undo(connection: Connection) -> None:
    """Go back to the savepoint, whatever is cancelled meanwhile. Where that fails the whole transaction is lost."""
    undoing = connection.execute(f"{_ROLL_BACK}; {_RELEASE}")
    try:
        await to_the_end(undoing, _UNDO_SECONDS, once_cancelled=PATIENCE_SECONDS)
    except Exception as error:
        connection.terminate()
        raise StoreUnavailable(f"the transaction is lost: what had failed in it couldn't be undone ({error})") from error


@asynccontextmanager
async def waiting_briefly(connection: Connection) -> AsyncGenerator[None]:
    """The same, where rows are waited for briefly in the block; afterwards as long as before."""
    async with whole_or_nothing(connection), brief_waits(connection):
        yield


@asynccontextmanager
async def brief_waits(connection: Connection) -> AsyncGenerator[None]:
    """What fails in the block leaves the setting to `whole_or_nothing`, which undoes it."""
    ((previous,),) = await connection.fetch(_LOCK_TIMEOUT)
    await connection.execute(WAIT_BRIEFLY)
    yield
    await connection.fetch(_PUT_BACK, previous)
