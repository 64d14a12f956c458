"""Settling: how attempts ended, many at a time, each fenced by its claim and its lease.

The fast statement takes the rows that it can lock at once and writes every kind of outcome. What it didn't write is
looked up in one more statement: lost for a reason, or written by an earlier call. What is neither (locked by somebody,
or `marked`), and what brings jobs with it, goes the slow way once, in transactions on another connection: see
`_settle_slowly`. What is locked even then is busy: no settled row is waited for. Batches in which chains continue have
statements of their own.

A pending or archived row remembers the lease that wrote it (negative when it was written about an orphan), so that a
repeated settlement is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.errors import (
    CallError,
    RowRejected,
    StoreContended,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
    WrongJobType,
)
from aioqueue.postgres._errors import deadlock
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.postgres._settle_chain import TAKEN, continuations, next_arguments
from aioqueue.postgres._settle_fates import Fence, chain_of, fate_of, fates_statements
from aioqueue.postgres._settle_slowly import Portion, Returned, settle_portion, slow_statements, waits_or_brings
from aioqueue.postgres._settle_statements import outcome_arguments
from aioqueue.vocabulary._job import LostReason, SettleResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Settlement

__all__ = ["Returned", "Settled", "Settler", "settle_statements"]

# What one transaction settles: it goes on to tell those that wait, and holds its locks for as long.
_MOST_ROWS = 500


def settle_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return fates_statements(schema) | slow_statements(schema)


@dataclass(slots=True)
class Settled:
    """What a call wrote.

    Attributes:
        results: One each, in order.
        ended_chains: The ids of chains that have ended with it, or were found to have.
        returned: Jobs that it made pending.
        ended_leases: Leases that orphans had.
        deliveries: Whether there is something to be sent of chains that have ended.
    """

    results: list[SettleResult]
    ended_chains: set[UUID] = field(default_factory=set[UUID])
    returned: list[Returned] = field(default_factory=list[Returned])
    ended_leases: set[int] = field(default_factory=set[int])
    deliveries: bool = False


class Settler:
    """Settles over one reserved connection, and what can't be written at once over a pool.

    Arguments:
        connection: The reserved connection.
        pool: For the slow statement.
        schema: Where the tables are.
        origin: Who tells; None if nobody is to be told.
    """

    def __init__(self, connection: ReservedConnection, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._connection = connection
        self._pool = pool
        self._statements = settle_statements(schema)
        self._origin = origin

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Settled:
        """Write how attempts ended, as `aioqueue.abc.Store.settle` says."""
        name = "settle_orphaned" if orphaned else "settle"
        done = Settled([SettleResult()] * len(settlements))
        jobs = _each_job_once(settlements, range(len(settlements)))
        quick = [index for index in jobs if not waits_or_brings(settlements[index])]
        written: set[int] = set()
        for portion in in_portions(quick, lambda index: settlements[index].size):
            written |= await self._write(name, settlements, portion, done)
        unwritten = [index for index in range(len(settlements)) if index not in written]
        slow = await self._look_up(settlements, unwritten, done, orphaned=orphaned)
        written_slowly = await self._settle_slowly(name, settlements, slow, done)
        left = [index for index in slow if index not in written_slowly]
        for index in await self._look_up(settlements, left, done, orphaned=orphaned):
            done.results[index] = SettleResult(busy=True)
        return done

    async def _write(self, name: str, settlements: Sequence[Settlement], indices: Sequence[int], done: Settled) -> set[int]:
        """Execute the fast statement for these, and note what it has written; returns what nothing is left to do about."""
        places = {settlements[index].id: index for index in indices}
        batch = [settlements[index] for index in indices]
        arguments = outcome_arguments(batch, self._origin)
        if continued := continuations(batch):
            name += "_continued"
            arguments += next_arguments(continued)
        written: set[int] = set()
        for job_id, text, delay in await self._connection.fetch(self._statements[name], *arguments):
            if job_id is None:
                if delay is not None:
                    done.returned.append(Returned(text, delay))
                elif text is not None:
                    done.ended_leases.add(int(text))
                continue
            index = places[job_id]
            written.add(index)
            kind = settlements[index].kind
            if not kind.finishes:
                done.returned.append(Returned(text, delay))
            elif delay is not None:
                done.results[index] = SettleResult(LostReason.ERROR, TAKEN)
            elif kind.ends_chain:
                done.ended_chains.add(job_id if text is None else UUID(text))
        return written

    async def _look_up(
        self, settlements: Sequence[Settlement], indices: Sequence[int], done: Settled, *, orphaned: bool
    ) -> list[int]:
        """Find out what became of these. Returns those that are neither lost nor written."""
        left = [index for index in indices if done.results[index] == SettleResult()]
        if not left:
            return []
        fences = [Fence(each.id, each.claims, each.lease_id, each.kind) for each in (settlements[index] for index in left)]
        asked = [each.id for each in fences], [each.lease_id for each in fences]
        rows = await self._connection.fetch(self._statements["fates"], *asked)
        fates = {row[0]: row for row in rows}
        waiting: list[int] = []
        again: list[int] = []
        for index, fence in zip(left, fences, strict=True):
            result = fate_of(fates[fence.id], fence, orphaned=orphaned)
            if result is None:
                waiting.append(index)
                continue
            done.results[index] = result
            if result.lost is not None:
                continue
            if settlements[index].next is not None:
                again.append(index)
            elif settlements[index].kind.ends_chain or result.cancelled:
                done.ended_chains.add(chain_of(fates[fence.id]))
        await self._look_at_next([(index, settlements[index]) for index in again], fates, done)
        return waiting

    async def _look_at_next(self, again: Sequence[tuple[int, Settlement]], fates: Mapping[UUID, Row], done: Settled) -> None:
        """Find out what became of the next jobs of steps that an earlier call has continued."""
        if not again:
            return
        asked = [each.id for _, each in again], [None if each.next is None else each.next.id for _, each in again]
        ended = {row[0] for row in await self._connection.fetch(self._statements["ended_at_once"], *asked)}
        for index, each in again:
            if each.id in ended:
                done.results[index] = SettleResult(cancelled=True)
                done.ended_chains.add(chain_of(fates[each.id]))
            elif each.next is not None:
                done.returned.append(Returned(each.next.type, each.next.delay or 0.0))

    async def _settle_slowly(
        self, name: str, settlements: Sequence[Settlement], indices: Sequence[int], done: Settled
    ) -> set[int]:
        """Write what can be locked by now, in portions that are halved where one of them can't be written."""
        written: set[int] = set()
        chosen = _each_job_once(settlements, indices)
        portions = [
            portion[start : start + _MOST_ROWS]
            for portion in in_portions(chosen, lambda index: settlements[index].size)
            for start in range(0, len(portion), _MOST_ROWS)
        ]
        portions.reverse()
        while portions:
            portion = portions.pop()
            try:
                settled = await self._settle_portion(f"{name}_slowly", [settlements[index] for index in portion])
            except (StoreError, CallError, WrongJobType) as error:
                if _concerns_all(error, [settlements[index] for index in portion]):
                    raise
                if half := len(portion) // 2:
                    portions += [portion[half:], portion[:half]]
                else:
                    done.results[portion[0]] = _refused(error)
            else:
                written |= _note(settled, settlements, portion, done)
        return written

    async def _settle_portion(self, name: str, batch: Sequence[Settlement]) -> Portion:
        async def settle(connection: Connection) -> Portion:
            return await settle_portion(connection, self._statements, name, batch, self._origin)

        return await self._pool.transact(settle)


def _concerns_all(error: StoreError | CallError | WrongJobType, batch: Sequence[Settlement]) -> bool:
    """Whether halves would fare no better. What they bring with them may wait for rows, and deadlock, each on its own."""
    if isinstance(error, StoreUnavailable) and (deadlock(error) or isinstance(error, StoreContended)):
        return not any(waits_or_brings(each) for each in batch)
    return isinstance(error, (StoreUnavailable, StoreIncompatible))


def _refused(error: StoreError | CallError | WrongJobType) -> SettleResult:
    """The result of a settlement that can't be written, alone."""
    if isinstance(error, CallError | WrongJobType):
        return SettleResult(refused=error)
    if isinstance(error, RowRejected):
        return SettleResult(LostReason.ERROR, str(error))
    if isinstance(error, StoreContended):
        return SettleResult(busy=True)
    return SettleResult(message=str(error), busy=True)  # such as a trigger that raises: not now


def _note(settled: Portion, settlements: Sequence[Settlement], portion: Sequence[int], done: Settled) -> set[int]:
    """Note what a transaction has written; returns what nothing is left to do about."""
    written: set[int] = set()
    for index in portion:
        job_id = settlements[index].id
        if job_id in settled.taken:
            done.results[index] = SettleResult(LostReason.ERROR, TAKEN)
        elif (chain_id := settled.chains.get(job_id)) is None:
            continue
        elif chain_id in settled.waited or job_id in settled.cancelled:
            done.results[index] = SettleResult(more=chain_id in settled.waited, cancelled=job_id in settled.cancelled)
        written.add(index)
    done.ended_chains |= settled.ended | settled.told.failed | settled.told.deleted
    done.returned += settled.returned
    done.returned += [Returned(name, settled.told.delay) for name in settled.told.types]
    done.ended_leases |= settled.leases
    done.deliveries = done.deliveries or settled.deliveries or settled.told.deliveries
    return written


def _each_job_once(settlements: Sequence[Settlement], indices: Iterable[int]) -> list[int]:
    """One statement can't change a row twice: the first that is said of each job counts, the others are looked up."""
    first: dict[UUID, int] = {}
    for index in indices:
        first.setdefault(settlements[index].id, index)
    return list(first.values())
