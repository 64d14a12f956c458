"""Ending jobs from outside, whoever holds them: as settling them is, but with no attempt, and no lease, to answer for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import CallError, RowRejected, TransactionError, WrongJobType
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert_blockers import unseen_cycles
from aioqueue.postgres._insert_waits import waiting_briefly
from aioqueue.postgres._notifications import merged
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.postgres._settle_chain import TAKEN
from aioqueue.postgres._settle_fates import Fence, fate_of, fates_statements
from aioqueue.postgres._settle_slowly import only_own, settle_portion, slow_statements, told_of
from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._job import LostReason, Settlement, SettleResult
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Claim, Ending

__all__ = ["Ender", "end_statements"]


_HOLD = """SELECT j.id FROM @schema@.job j
WHERE j.id = $1::uuid AND j.state + 0 = 2 AND j.claims = $2::integer AND coalesce(j.lease_id, 0) = $3::bigint FOR UPDATE"""


class Ender:
    """Ends jobs, over the pool of the client's own operations or on a connection that is in somebody's transaction.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = {**end_statements(schema), **slow_statements(schema), **fates_statements(schema)}
        self._origin = origin

    async def end(self, endings: Sequence[Ending]) -> tuple[list[bool], Notification]:
        """End jobs and commit, as `aioqueue.abc.Store.end` says; returns what listeners are to be told, too."""

        async def end(connection: Connection) -> tuple[list[bool], Notification]:
            await connection.execute(WAIT_BRIEFLY)
            return await self._end(connection, endings)

        return await self._pool.transact(end)

    async def end_in(self, connection: Connection, endings: Sequence[Ending]) -> tuple[list[bool], Notification]:
        """End jobs within somebody's open transaction; what fails leaves it as it was.

        Raises:
            CallError, WrongJobType, RowRejected, StoreContended, TransactionError: Nothing was written.
        """
        with translated(self._pool.source.description):
            await _see_cycles(connection, map(_settlement, endings))
            async with waiting_briefly(connection):
                return await self._end(connection, endings)

    async def _end(self, connection: Connection, endings: Sequence[Ending]) -> tuple[list[bool], Notification]:
        first: dict[UUID, int] = {}
        for index, each in enumerate(endings):
            first.setdefault(each.id, index)
        ended: set[int] = set()
        told: list[Notification] = []
        for batch in in_portions([_settlement(endings[index]) for index in first.values()], lambda each: each.size):
            portion = await settle_portion(connection, self._statements, "settle_end_slowly", batch, self._origin)
            if portion.taken:
                raise RowRejected(TAKEN)
            ended |= {first[job_id] for job_id in portion.chains}
            told.append(told_of(portion))
        return [index in ended for index in range(len(endings))], merged(told)

    async def hold_in(self, connection: Connection, claim: Claim, lease_id: int) -> LostReason | None:
        """Lock a running job by its claim, as `aioqueue.abc.Store.hold` says.

        Raises:
            StoreContended: Somebody holds it.
        """
        with translated(self._pool.source.description):
            async with waiting_briefly(connection):
                await connection.fetch(self._statements["hold"], claim.id, claim.claims, lease_id)
                # The lease's row is looked at and not locked: a lock on it would keep others from all of its jobs.
                (fate,) = await connection.fetch(self._statements["fates"], [claim.id], [lease_id])
        result = fate_of(fate, Fence(claim.id, claim.claims, lease_id), orphaned=False)
        if result is None:
            return None
        return result.lost or lost_reason(live=fate[1] is not None, archived=fate[4])

    async def settle_in(
        self, connection: Connection, settlements: Sequence[Settlement]
    ) -> tuple[list[SettleResult], Notification]:
        """Settle what this very transaction holds, as `aioqueue.abc.Store.settle` says of `tx`.

        Raises:
            TransactionError: Nothing was written.
        """
        results: list[SettleResult] = []
        told: list[Notification] = []
        with translated(self._pool.source.description):
            await _see_cycles(connection, settlements)
            for settlement in settlements:
                try:
                    async with waiting_briefly(connection):
                        result, note = await self._settle(connection, settlement)
                except (CallError, WrongJobType) as error:
                    result, note = SettleResult(refused=error), Notification()
                except RowRejected as error:
                    result, note = SettleResult(LostReason.ERROR, str(error)), Notification()
                results.append(result)
                told.append(note)
        return results, merged(told)

    async def _settle(self, connection: Connection, settlement: Settlement) -> tuple[SettleResult, Notification]:
        portion = await settle_portion(connection, self._statements, "settle_held_slowly", [settlement], self._origin)
        if portion.taken:
            return SettleResult(LostReason.ERROR, TAKEN), Notification()
        if portion.chains:
            return SettleResult(more=bool(portion.waited), cancelled=bool(portion.cancelled)), told_of(portion)
        (fate,) = await connection.fetch(self._statements["fates"], [settlement.id], [settlement.lease_id])
        fence = Fence(settlement.id, settlement.claims, settlement.lease_id, settlement.kind)
        result = fate_of(fate, fence, orphaned=False)
        return SettleResult(busy=True) if result is None else result, Notification()


def end_statements(schema: Schema) -> dict[str, str]:
    """The statements of this module alone, by name."""
    return {"hold": schema.render(_HOLD)}


async def _see_cycles(connection: Connection, settlements: Iterable[Settlement]) -> None:
    """See to it that a circle can't be closed unseen, within somebody's open transaction.

    Raises:
        TransactionError: What others have written since it began isn't seen in it, and a next job waits for chains that are
            there already, or maybe are.
    """
    if all(only_own(each, {child.id for child in each.children if child.unique}) for each in settlements):
        return
    if (isolation := await unseen_cycles(connection)) is not None:
        raise TransactionError(
            f"the transaction is {isolation}, so that a next job that waits for chains that are there already might "
            "wait for itself unseen: begin the transaction as READ COMMITTED, or let the next job only wait for jobs that are "
            "enqueued with it"
        )


def _settlement(ending: Ending) -> Settlement:
    return Settlement(
        id=ending.id,
        claims=0,
        lease_id=0,
        kind=ending.kind,
        output=ending.output,
        outcome=ending.outcome,
        error=ending.error,
        next=ending.next,
        children=ending.children,
    )
