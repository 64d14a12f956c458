"""Settling what waits or is waited for: one transaction for a portion, in several statements.

The first one locks, deletes and archives, and stores the chains' next jobs. What comes with them is stored by later ones, so
that unique keys are free by then. The last ones tell those that wait: their snapshots are newer than the locks of the first, so
that whoever began to wait before those is seen, and whoever does later finds the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.errors import BlockerCycle, CallAlreadyEnqueued
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._insert_blockers import insert_waiting, insert_waiting_statements
from aioqueue.postgres._insert_decisions import Stored
from aioqueue.postgres._insert_edges import add_edges, chains_in_cycles, edges_of, find_chains, lead_on, lock_cycles
from aioqueue.postgres._insert_sequences import sequence_columns
from aioqueue.postgres._progress_logs import log_statements, store_logs
from aioqueue.postgres._resolve import Resolved, resolve
from aioqueue.postgres._resolve_ends import ends_statements, store_ends
from aioqueue.postgres._settle_chain import continuations, next_arguments
from aioqueue.postgres._settle_statements import outcome_arguments, outcome_statements
from aioqueue.postgres._webhooks_ends import store_deliveries, store_deliveries_statements
from aioqueue.store_rules._cancelling import as_cancelled, asked_to_end, gives_way
from aioqueue.store_rules._causes import how_it_ended
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "Portion",
    "Returned",
    "only_own",
    "settle_portion",
    "slow_statements",
    "told_of",
    "waits_or_brings",
]

_NOT_ASKED = "DELETE FROM @schema@.cancel_request r WHERE r.chain_id = ANY($1::uuid[])"
_ASKED = -2
"""In place of a delay: the row says which job's chain was asked to end, and why."""
_HOOKED = -3
"""In place of a delay: the row says which job has a webhook."""
# What a job that has completed or gone on has waited for isn't needed any more. A failed or cancelled one may be retried.
_UNNEEDED = "DELETE FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[])"


def slow_statements(schema: Schema) -> dict[str, str]:
    """All statements that settling needs, by name."""
    return {
        "settle_unneeded": schema.render(_UNNEEDED),
        "settle_not_asked": schema.render(_NOT_ASKED),
        **outcome_statements(schema),
        **ends_statements(schema),
        **log_statements(schema),
        **store_deliveries_statements(schema),
        **insert_waiting_statements(schema),
    }


@dataclass(frozen=True, slots=True)
class Returned:
    """A job that became pending: again, or as the next one of a chain."""

    type: str
    delay: float


@dataclass(slots=True)
class Portion:
    """What one transaction has written.

    Attributes:
        chains: The chains of the jobs that are settled with it, by job.
        taken: Those that weren't continued, since their next job's id is there already.
        ended: The chains that have ended with it.
        returned: Jobs that became pending, or new.
        leases: Leases that ended, or lost a job.
        told: What those that waited were told.
        waited: The chains of which some who wait may not have been told.
        cancelled: Those jobs that are cancelled, or whose next ones are, since that was asked for.
        hooked: Those jobs that are archived with it and have webhooks.
        deliveries: Whether there is something to be sent of chains that have ended.
    """

    chains: dict[UUID, UUID] = field(default_factory=dict[UUID, UUID])
    taken: set[UUID] = field(default_factory=set[UUID])
    ended: set[UUID] = field(default_factory=set[UUID])
    returned: list[Returned] = field(default_factory=list[Returned])
    leases: set[int] = field(default_factory=set[int])
    told: Resolved = field(default_factory=Resolved)
    waited: set[UUID] = field(default_factory=set[UUID])
    cancelled: set[UUID] = field(default_factory=set[UUID])
    hooked: set[UUID] = field(default_factory=set[UUID])
    deliveries: bool = False


def told_of(portion: Portion) -> Notification:
    """What listeners are told of it, once it's committed."""
    delays = [*(each.delay for each in portion.returned), *([portion.told.delay] if portion.told.types else [])]
    return Notification(
        types=frozenset(each.type for each in portion.returned) | portion.told.types,
        delay=min(delays, default=0.0),
        finished=frozenset(portion.ended | portion.told.failed | portion.told.deleted),
        leases=frozenset(portion.leases),
        deliveries=portion.deliveries or portion.told.deliveries,
    )


def waits_or_brings(settlement: Settlement) -> bool:
    """Whether something is stored with it that one statement can't store: jobs, what was logged, or in which sequence one
    is.
    """
    return (
        bool(settlement.children)
        or settlement.logs is not None
        or (settlement.next is not None and (bool(settlement.next.blockers) or settlement.next.sequence is not None))
    )


async def settle_portion(
    connection: Connection, statements: dict[str, str], name: str, batch: Sequence[Settlement], origin: str | None
) -> Portion:
    """Settle what can be, and all that belongs to it, within the connection's open transaction.

    Arguments:
        connection: In a transaction, which is rolled back if this raises.
        statements: `slow_statements`.
        name: Which of the slow statements of `outcome_statements`.
        batch: About each job once.
        origin: Who tells other processes; None if nobody is to be told.

    Raises:
        CallError, WrongJobType: What was to be stored with one of them can't be.
        RowRejected: One of the rows is at fault.
        StoreContended, asyncpg.PostgresError: Such as where somebody's open transaction holds what this needs.
    """
    portion = Portion()
    by_id = {each.id: each for each in batch}
    arguments = outcome_arguments(batch, origin)
    yielding = [each.yields for each in batch]
    if continued := continuations(batch):
        name += "_continued"
        waiting = [0 if each.next is None else len(each.next.blockers) for each in continued]
        arguments += [*next_arguments(continued), waiting]
    rows = await connection.fetch(statements[name], *arguments, yielding)
    asked = _give_way(rows, by_id)
    _read(rows, by_id, portion)
    written = [by_id[job_id] for job_id in portion.chains]
    if logged := [each for each in written if each.logs is not None]:
        await store_logs(connection, statements, logged)
    if nexts := [each.next for each in written if each.next is not None and each.next.sequence is not None]:
        await connection.fetch(statements["join_sequences"], [job.id for job in nexts], *sequence_columns(nexts, nexts))
    children = [child for each in written for child in each.children]
    waiters = [each for each in written if each.next is not None and each.next.blockers]
    if children or waiters:
        await connection.execute(WAIT_BRIEFLY)
    awaited = [blocker.chain_id for each in waiters if each.next is not None for blocker in each.next.blockers]
    stored = await _store_children(connection, statements, children, origin, awaited, portion)
    ends = await _store_edges(connection, statements, waiters, stored, portion) if waiters else set[UUID]()
    if unneeded := [each.id for each in written if each.kind in {SettlementKind.COMPLETED, SettlementKind.CONTINUED}]:
        await connection.execute(statements["settle_unneeded"], unneeded)
    steps = [(portion.chains[each.id], each.id, _how(each)) for each in written if each.kind.ends_chain]
    if asked:
        steps += await _cancel_asked(connection, statements, asked, by_id, portion, origin)
    portion.ended = {chain_id for chain_id, _, _ in steps}
    if hooked := [job_id for _, job_id, _ in steps if job_id in portion.hooked]:
        await store_deliveries(connection, statements, hooked, origin=origin)
        portion.deliveries = True
    ends |= (waited := await store_ends(connection, statements, steps))
    await resolve(connection, statements, ends, portion.told, origin=origin)
    if portion.told.more:
        portion.waited = waited
    return portion


def _how(settlement: Settlement) -> str:
    if settlement.kind is SettlementKind.COMPLETED:
        return ""
    return how_it_ended(ChainEnd(settlement.kind), settlement.error)


def _give_way(rows: Sequence[Any], by_id: dict[UUID, Settlement]) -> dict[UUID, str]:
    """See whose chains were asked to end, and put what was written in the place of what gave way; returns the reasons."""
    asked = {row[0]: row[1] for row in rows if row[2] == _ASKED}
    for job_id, reason in asked.items():
        if gives_way(settlement := by_id[job_id]):
            by_id[job_id] = as_cancelled(settlement, reason, datetime.now(UTC))
    return asked


async def _cancel_asked(
    connection: Connection,
    statements: dict[str, str],
    asked: Mapping[UUID, str],
    by_id: Mapping[UUID, Settlement],
    portion: Portion,
    origin: str | None,
) -> list[tuple[UUID, UUID, str]]:
    """See to chains that were asked to end: next jobs are cancelled, unstarted, and what has ended isn't asked any more.

    Returns:
        How those chains have ended: see `store_ends`.
    """
    nexts: dict[UUID, Settlement] = {}
    for job_id, reason in asked.items():
        settlement = by_id[job_id]
        if job_id not in portion.chains:
            continue
        if settlement.kind is SettlementKind.CANCELLED:
            portion.cancelled.add(job_id)
        elif settlement.kind is SettlementKind.CONTINUED and settlement.next is not None:
            portion.cancelled.add(job_id)
            entry = asked_to_end(reason, datetime.now(UTC))
            own = settlement.next.id
            nexts[job_id] = Settlement(id=own, claims=0, lease_id=0, kind=SettlementKind.CANCELLED, error=entry)
    if nexts:
        ended = list(nexts.values())
        arguments = outcome_arguments(ended, origin)
        rows = await connection.fetch(statements["settle_end_slowly"], *arguments, [])
        portion.hooked |= {row[0] for row in rows if row[2] == _HOOKED}
    chains = [portion.chains[job_id] for job_id in asked if job_id in portion.chains]
    await connection.fetch(statements["settle_not_asked"], chains)
    return [(portion.chains[job_id], each.id, _how(each)) for job_id, each in nexts.items()]


def _read(rows: Sequence[Any], by_id: Mapping[UUID, Settlement], portion: Portion) -> None:
    """Read what the first statement returns."""
    for job_id, text, delay in rows:
        if delay == _ASKED:
            continue
        if delay == _HOOKED:
            portion.hooked.add(job_id)
        elif job_id is None:
            if delay is not None:
                portion.returned.append(Returned(text, delay))
            elif text is not None:
                portion.leases.add(int(text))
        elif by_id[job_id].kind.finishes:
            if delay is not None:
                portion.taken.add(job_id)
            else:
                portion.chains[job_id] = job_id if text is None else UUID(text)
        else:
            portion.returned.append(Returned(text, delay))
            portion.chains[job_id] = job_id


async def _store_children(
    connection: Connection,
    statements: dict[str, str],
    children: Sequence[NewJob],
    origin: str | None,
    awaited: Collection[UUID],
    portion: Portion,
) -> Stored:
    """Store the jobs that come with settlements; returns what has become of them.

    Raises:
        CallAlreadyEnqueued: One is there already.
        WrongJobType: The id that was chosen for one is another type's.
    """
    if not children:
        return Stored()
    stored = await insert_waiting(connection, statements, children, origin=origin, into=portion.told, awaited=awaited)
    waiting = stored.waiting(children)
    for child in children:
        if child.id in stored.created:
            if child.id not in waiting:
                portion.returned.append(Returned(child.type, child.delay or 0.0))
        elif stored.chains.get(child.id, child.id) == child.id and not (child.chosen_id or child.implied):
            raise CallAlreadyEnqueued(f"a call of {child.type} was enqueued before, as the job {child.id}")
    return stored


async def _store_edges(
    connection: Connection,
    statements: dict[str, str],
    waiters: Sequence[Settlement],
    stored: Stored,
    portion: Portion,
) -> set[UUID]:
    """Store what chains' next jobs wait for; returns those that have ended by now.

    Only these edges can close a circle: all others belong to jobs for which nobody waits yet. Where they lead to chains that
    wait for something themselves, one settlement at a time reads and writes.

    Raises:
        BlockerNotFound, BlockerCycle: A chain isn't there, or would wait for itself.
    """
    holders = {job_id: chain_id for job_id, chain_id in stored.chains.items() if job_id != chain_id}
    walked = [portion.chains[each.id] for each in waiters if not only_own(each, holders.keys() | stored.taken_over)]
    nexts = [each.next for each in waiters if each.next is not None]
    asked = {blocker.chain_id for job in nexts for blocker in job.blockers}
    found = await find_chains(connection, statements, {holders.get(each, each) for each in asked}, named=asked)
    chains = {each: found.chains[holders.get(each, each)] for each in asked}
    edges = [edge for job in nexts for edge in edges_of(job.id, job.blockers, chains)]
    await add_edges(connection, statements, edges)
    if not walked:
        return found.ended
    # Whoever adds an edge to a chain has that chain's live row locked, and so has whoever goes on with it: two edges that meet
    # aren't written side by side. So if what is waited for waits for nothing, no circle goes through it. If it does wait, then
    # of any circle all who write an edge see that of theirs, and come here one by one.
    new = {child.id for each in waiters for child in each.children if child.id not in holders}
    jobs = new | {job.id for job in nexts}
    if not await lead_on(connection, statements, jobs, new):
        return found.ended
    await lock_cycles(connection, statements)
    if circles := await chains_in_cycles(connection, statements, walked):
        named = ", ".join(sorted(map(str, circles)))
        raise BlockerCycle(f"the next job of the chain {named} would wait for ever: what it waits for waits for that chain")
    return found.ended


def only_own(settlement: Settlement, holders: Collection[UUID]) -> bool:
    """Whether its next job waits for nothing but jobs that are stored with it, and neither do those.

    Arguments:
        settlement: What is settled.
        holders: Those of its children that stand for chains that are there already, or wait for ones whose keys they took.
    """
    if settlement.next is None:
        return True
    own = {child.id for child in settlement.children if child.id not in holders}
    waited = [blocker.chain_id for job in (settlement.next, *settlement.children) for blocker in job.blockers]
    return all(each in own for each in waited)
