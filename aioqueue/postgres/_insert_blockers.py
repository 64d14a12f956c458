"""Storing jobs of which some wait for others: the rows, then what they wait for, in one transaction."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres._connections_closing import PATIENCE_SECONDS
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._insert_edges import add_edges, blocker_statements, edges_of, find_chains
from aioqueue.postgres._insert_rows import insert_on, insert_statements
from aioqueue.postgres._notifications import inserted_note
from aioqueue.postgres._resolve import MOST_TOLD, resolve, resolve_statements
from aioqueue.runtime._shield import to_the_end
from aioqueue.store_rules._batches import needed_of_batch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._resolve import Resolved
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["insert_waiting", "insert_waiting_statements", "only_looking", "waiting_briefly", "whole_or_nothing"]

_SAVEPOINT, _ROLL_BACK, _RELEASE = (
    f"{verb} aioqueue_blockers" for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)
_UNDO_SECONDS = 10.0
_LOCK_TIMEOUT = "SELECT pg_catalog.current_setting('lock_timeout')"
_PUT_BACK = "SELECT pg_catalog.set_config('lock_timeout', $1::text, true)"


def insert_waiting_statements(schema: Schema) -> dict[str, str]:
    """All statements that `insert_waiting` needs, by name."""
    return {**insert_statements(schema), **blocker_statements(schema), **resolve_statements(schema)}


async def insert_waiting(
    connection: Connection,
    statements: dict[str, str],
    jobs: Sequence[NewJob],
    *,
    repeated: bool = False,
    origin: str | None,
    into: Resolved,
    awaited: Collection[UUID] = (),
    callers: bool = False,
) -> list[Inserted]:
    """Store jobs within the connection's open transaction, in which rows are waited for briefly: see `WAIT_BRIEFLY`.

    What fails leaves a part of it behind: see `whole_or_nothing`.

    Arguments:
        connection: In a transaction.
        statements: Those of `insert_waiting_statements`, and maybe others.
        jobs: A job comes after those that it waits for.
        repeated: Whether they may have been stored by an earlier try.
        origin: Who tells other processes; None if nobody is to be told.
        into: Where is added what those that wait were told, whose blockers had ended before.
        awaited: Jobs of these for which further ones will wait.
        callers: Whether the transaction is somebody else's, who decides how long the unique keys are waited for.

    Returns:
        One result each, in order.

    Raises:
        BlockerNotFound, StoreContended, asyncpg.PostgresError: See `find_chains`.
        BlockerCycle: A job waits for itself, or for one behind it.
    """
    needed = needed_of_batch(jobs) | set(awaited)

    def waiting_columns(chunk: Sequence[NewJob]) -> list[Any]:
        return [[len(job.blockers) for job in chunk], [bool(job.blockers) or job.id in needed for job in chunk]]

    note = inserted_note([job for job in jobs if not job.blockers], origin)
    results = await insert_on(connection, statements, jobs, repeated=repeated, note=note, more_columns=waiting_columns)
    created = {job.id for job, result in zip(jobs, results, strict=True) if result.created}
    holders = {job.id: result.id for job, result in zip(jobs, results, strict=True) if job.id not in created}
    waiting = [job for job, result in zip(jobs, results, strict=True) if result.created and job.blockers]
    given = {each.chain_id for job in waiting for each in job.blockers} - created
    if not waiting:
        return results
    async with _brief_waits(connection) if callers else nullcontext():
        found = await find_chains(connection, statements, {holders.get(each, each) for each in given})
        chains = {each: found.chains[holders.get(each, each)] for each in given}
        edges = [edge for job in waiting for edge in edges_of(job.id, job.blockers, chains)]
        await add_edges(connection, statements, edges)
        if found.ended:
            # All of them at once, since as much was just written for them.
            limit = max(MOST_TOLD, sum(edge.chain_id in found.ended for edge in edges))
            await resolve(connection, statements, found.ended, into, origin=origin, limit=limit)
    return results


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
    async with whole_or_nothing(connection), _brief_waits(connection):
        yield


@asynccontextmanager
async def _brief_waits(connection: Connection) -> AsyncGenerator[None]:
    """What fails in the block leaves the setting to `whole_or_nothing`, which undoes it."""
    ((previous,),) = await connection.fetch(_LOCK_TIMEOUT)
    await connection.execute(WAIT_BRIEFLY)
    yield
    await connection.fetch(_PUT_BACK, previous)
