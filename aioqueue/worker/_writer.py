"""Writes outcomes and gives claims back: batched, and tried again until it's done or no longer matters."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING, TypeVar

from aioqueue._batcher import Batcher
from aioqueue._job import LostReason, SettlementKind, SettleResult
from aioqueue.errors import RowRejected
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._outcome import Outcome, failed
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue._job import AttemptError, Claim, ClaimedJob, Settlement
    from aioqueue.abc import Store
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Writer"]

logger = logging.getLogger("aioqueue.worker")

T = TypeVar("T")

_WORDS = {
    SettlementKind.COMPLETED: "completed",
    SettlementKind.FAILED: "failed",
    SettlementKind.CANCELLED: "cancelled",
    SettlementKind.RETRIED: "failed, will be tried again",
    SettlementKind.RESCHEDULED: "rescheduled",
}

_QUOTING = frozenset({"ArgumentsError", "OutputError"})
"""Their texts may quote values, which don't belong in logs."""


def _told(error: AttemptError) -> str:
    if error.type in _QUOTING:
        return f"{error.type}: the job's history says which"
    return one_line(str(error))


class Writer:
    """Takes outcomes over from the slots.

    Arguments:
        store: Where they go.
        holdings: What the worker holds: a claim is let go when its outcome is written.
        wakeup: Told when something was written.
        troubles: Where errors show.

    Attributes:
        written: How many outcomes of each kind were written.
    """

    def __init__(self, store: Store, holdings: Holdings, wakeup: Wakeup, troubles: Troubles) -> None:
        self._store = store
        self._holdings = holdings
        self._wakeup = wakeup
        self._troubles = troubles
        self._settles: Batcher[Settlement, SettleResult] = Batcher(self._settle, name="settling of outcomes")
        self._releases: Batcher[tuple[int, Claim], None] = Batcher(self._release, name="giving back of claims")
        self.written: dict[SettlementKind, int] = {}
        self._aborted = False

    def take(self, slot: Slot, outcome: Outcome) -> None:
        """Write what became of an attempt, or give its claim back; later. The claim is held until then."""
        if slot.lost is not None:
            return
        if outcome.kind is None:
            self.give_back(slot.job.lease_id, slot.claim)
            return
        self._log(slot, outcome)
        self._submit(slot, outcome, again=True)

    def give_back(self, lease_id: int, claim: Claim) -> None:
        """Release a claim, with no attempt used."""
        future = self._releases.submit_nowait((lease_id, claim))
        self._holdings.unwritten += 1

        def ended(future: asyncio.Future[None]) -> None:
            self._holdings.unwritten -= 1
            if future.cancelled() and not self._aborted:
                self.give_back(lease_id, claim)
                return
            self._holdings.let_go(claim)
            self._wakeup.freed(idle=self._holdings.idle)

        future.add_done_callback(ended)

    def put_off(self, job: ClaimedJob, delay: float) -> None:
        """Let a job be claimed again later, with no attempt used: an earlier body of it still runs in this process.

        Releasing it would make it due at once, for us to claim it again.
        """
        slot = self._holdings.hold(job)
        self._submit(slot, Outcome(kind=SettlementKind.RESCHEDULED, delay=delay), again=True)

    def _submit(self, slot: Slot, outcome: Outcome, *, again: bool) -> None:
        self._holdings.unwritten += 1
        future = self._settles.submit_nowait(outcome.settlement(slot.job))
        future.add_done_callback(lambda future: self._settled(slot, outcome, future, again=again))

    def _settled(self, slot: Slot, outcome: Outcome, future: asyncio.Future[SettleResult], *, again: bool) -> None:
        self._holdings.unwritten -= 1
        if future.cancelled():
            if not self._aborted:  # the end of the event loop cancels every task of it, the batcher's too
                self._submit(slot, outcome, again=again)
            return
        error = future.exception()
        result = future.result() if error is None else SettleResult(LostReason.ERROR, str(error))
        lost, message = result.lost, result.message
        if lost is LostReason.ERROR and slot.lost is None:
            job, reason = slot.job, one_line(message)
            logger.error("%s %s: the outcome was refused: %s", job.type, job.id, reason, extra=slot.extra())
            if again:
                instead = failed(job, "OutcomeRefused", f"the outcome was refused: {reason[:500]}")
                self._submit(slot, instead, again=False)
                return
        if lost is None:
            assert outcome.kind is not None
            self.written[outcome.kind] = self.written.get(outcome.kind, 0) + 1
            self._holdings.let_go(slot.claim)
        else:
            self._holdings.lose([slot], lost)
        self._wakeup.freed(idle=self._holdings.idle)

    def _log(self, slot: Slot, outcome: Outcome) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        assert outcome.kind is not None
        duration = time.monotonic() - slot.began if slot.began else 0.0
        job, error = slot.job, outcome.error
        logger.info(
            "%s %s: attempt %d %s after %.3f s%s",
            one_line(job.type),
            job.id,
            job.attempt,
            _WORDS[outcome.kind],
            duration,
            "" if error is None else f": {_told(error)}",
            extra={**slot.extra(), "duration": duration},
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        return await self._insist("settle", lambda: self._store.settle(settlements))

    async def _release(self, claims: Sequence[tuple[int, Claim]]) -> Sequence[None]:
        by_lease: dict[int, list[Claim]] = {}
        for lease_id, claim in claims:
            by_lease.setdefault(lease_id, []).append(claim)
        for lease_id, own in by_lease.items():
            await self._insist("release", functools.partial(self._store.release, lease_id, own))
        return [None] * len(claims)

    async def _insist(self, verb: str, write: Callable[[], Awaitable[T]]) -> T:
        """Repeat a write until the database has taken it. The fence makes repeating safe, also after a lost answer."""
        backoff = Backoff()
        while True:
            try:
                result = await write()
            except RowRejected:
                raise
            except Exception as error:  # noqa: BLE001 - logged; nothing is given up because of an error
                self._troubles.add(verb, error)
                await asyncio.sleep(backoff.next())
            else:
                self._troubles.clear(verb)
                return result

    async def flush(self) -> None:
        """Wait until everything that was handed over is written."""
        while self._holdings.unwritten:
            await asyncio.gather(self._settles.drained(), self._releases.drained())
            await asyncio.sleep(0)

    def abort(self) -> None:
        """Write no more."""
        self._aborted = True
        self._settles.abort()
        self._releases.abort()
