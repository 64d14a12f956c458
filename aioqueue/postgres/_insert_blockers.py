"""Storing jobs of which some wait for others, or more is asked of: the rows, then what they wait for, in one transaction."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from aioqueue.errors import BlockerCycle, TransactionError
from aioqueue.postgres._insert_decisions import Stored
from aioqueue.postgres._insert_edges import (
    Edge,
    add_edges,
    blocker_statements,
    chains_in_cycles,
    edges_of,
    find_chains,
    lead_on,
    lock_cycles,
)
from aioqueue.postgres._insert_rows import insert_on, is_simple
from aioqueue.postgres._insert_sequences import keep_order
from aioqueue.postgres._insert_unique import Storing, unique_statements
from aioqueue.postgres._insert_waits import brief_waits
from aioqueue.postgres._notifications import inserted_note
from aioqueue.postgres._resolve import MOST_TOLD, resolve, resolve_statements
from aioqueue.store_rules._batches import needed_of_batch
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._resolve import Resolved
    from aioqueue.vocabulary._job import NewJob

__all__ = ["insert_waiting", "insert_waiting_statements", "unseen_cycles"]

_ISOLATION = "SELECT pg_catalog.current_setting('transaction_isolation')"


def insert_waiting_statements(schema: Schema) -> dict[str, str]:
    """All statements that `insert_waiting` needs, by name."""
    return {**unique_statements(schema), **blocker_statements(schema), **resolve_statements(schema)}


class _Batch(NamedTuple):
    """What the steps of one insert work with."""

    connection: Connection
    statements: dict[str, str]
    origin: str | None
    callers: bool


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
    apart: bool = False,
) -> Stored:
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
        apart: Whether those that are refused don't keep the others from being stored.

    Returns:
        What has become of them.

    Raises:
        DuplicateJob, WrongJobType: One of them is refused.
        BlockerNotFound, StoreContended, asyncpg.PostgresError: See `find_chains`.
        BlockerCycle: A job waits for itself, or for one behind it; or would, if it took the place of another.
        TransactionError: A circle might be closed unseen.
    """
    needed = needed_of_batch(jobs) | set(awaited)

    def waiting_columns(chunk: Sequence[NewJob]) -> list[Any]:
        return [[len(job.blockers) for job in chunk], [bool(job.blockers) or job.id in needed for job in chunk]]

    if all(map(is_simple, jobs)):
        note = inserted_note([job for job in jobs if not job.blockers], origin)
        results = await insert_on(connection, statements, jobs, repeated=repeated, note=note, more_columns=waiting_columns)
        stored = Stored.of(jobs, results)
    else:
        storing = Storing(connection, statements, repeated=repeated, origin=origin, columns=waiting_columns, callers=callers)
        stored = await storing.store(jobs, awaited)
        if not apart:
            for job in jobs:
                if (refused := stored.refused.get(job.id)) is not None:
                    raise refused
        into.add(stored.told)
    await keep_order(connection, statements, jobs, stored.created, stored.joined)
    if waiting := stored.waiting(jobs):
        await _store_edges(_Batch(connection, statements, origin, callers), stored, waiting, into)
    return stored


async def _store_edges(batch: _Batch, stored: Stored, waiting: Mapping[UUID, NewJob], into: Resolved) -> None:
    """Store what jobs wait for, given by the ids of their rows, and tell them of what has ended already."""
    connection, statements, origin, callers = batch
    own = stored.created
    given = {each.chain_id for job in waiting.values() for each in job.blockers} - own
    taken_over = {stored.taken_over[job_id] for job_id in waiting if job_id in stored.taken_over}
    async with brief_waits(connection) if callers else nullcontext():
        asked = {stored.chains.get(each, each) for each in given} | taken_over
        found = await find_chains(connection, statements, asked, named=given)
        chains = {each: found.chains[stored.chains.get(each, each)] for each in given}
        edges = [
            edge
            for job_id, job in waiting.items()
            for edge in (*edges_of(job_id, job.blockers, chains), *_taken_over(job_id, stored))
        ]
        await add_edges(connection, statements, [edge for edge in edges if edge.job_id in own])
        if become := [edge for edge in edges if edge.job_id not in own]:
            await add_edges(connection, statements, become, kept=True)
            await _refuse_circles(batch, stored, {edge.job_id for edge in become})
        # A new one in whose place another of the batch stands: no earlier edge leads to it, and nobody else can add one.
        if others := {job_id for job_id, job in waiting.items() if job_id in own and job.id != job_id}:
            await _refuse_found(connection, statements, others)
        if found.ended:
            # All of them at once, since as much was just written for them.
            limit = max(MOST_TOLD, sum(edge.chain_id in found.ended for edge in edges))
            await resolve(connection, statements, found.ended, into, origin=origin, limit=limit)


def _taken_over(job_id: UUID, stored: Stored) -> list[Edge]:
    chain_id = stored.taken_over.get(job_id)
    return [] if chain_id is None else [Edge(job_id, TAKEN_OVER_ORDINAL, chain_id, settled=True, places=b"[]")]


async def _refuse_circles(batch: _Batch, stored: Stored, become: Collection[UUID]) -> None:
    """See to it that jobs for which others may wait already don't wait for themselves by what they have become.

    They are locked, as the live row of a chain is that goes on: so it's as with the edges of its next job.

    Raises:
        BlockerCycle: One would.
        TransactionError: What others have written isn't seen.
    """
    connection, statements, _, callers = batch
    if callers and (isolation := await unseen_cycles(connection)) is not None:
        raise TransactionError(
            f"the transaction is {isolation}, so that a job that takes the place of one that is there already, and waits for "
            "others, might wait for itself unseen: begin the transaction as READ COMMITTED"
        )
    if not await lead_on(connection, statements, stored.created | set(become), stored.created):
        return
    await lock_cycles(connection, statements)
    await _refuse_found(connection, statements, become)


async def _refuse_found(connection: Connection, statements: dict[str, str], become: Collection[UUID]) -> None:
    if circles := await chains_in_cycles(connection, statements, become):
        named = ", ".join(sorted(map(str, circles)))
        raise BlockerCycle(f"the job {named} would wait for itself, if another took its place")


async def unseen_cycles(connection: Connection) -> str | None:
    """The isolation of a transaction in which others' edges aren't seen that were written since it began; None if they are."""
    ((isolation,),) = await connection.fetch(_ISOLATION)
    return isolation.upper() if isolation in {"repeatable read", "serializable"} else None
