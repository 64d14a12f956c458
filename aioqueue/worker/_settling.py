"""The statement that writes outcomes, within a span if somebody takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.telemetry._tracing import Tracing
    from aioqueue.vocabulary._job import SettleResult
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._outcome import Outcome

__all__ = ["Settling", "settlement_of"]


def settlement_of(slot: Slot, outcome: Outcome) -> Settlement:
    """What is written of an outcome, with what belongs to its attempt: who has run it, and what its handler has logged."""
    return outcome.settlement(slot.job, ran_by=slot.worker if slot.began else "", captured=slot.captured)


class Settling:
    """Has the store write what the `Writer` gives it.

    Arguments:
        store: Where outcomes go.
        tracing: Makes the batches' spans.
    """

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    async def write(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """Write some. Raises as `Store.settle`."""
        span = self._tracing.settle(len(settlements))
        if span is None:
            return await self._store.settle(settlements)
        try:
            results = await self._store.settle(settlements)
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        return results

    async def check_schema(self) -> None:
        """Look whether the schema fits. A trigger of the user's that looks for a missing table fails in the same way, but not
        where no row is written: so it's tried with a job that doesn't exist.

        Raises:
            StoreIncompatible: It doesn't.
        """
        nobody = Settlement(id=new_id(), claims=1, lease_id=1, kind=SettlementKind.FAILED)
        await self._store.settle([nobody])
