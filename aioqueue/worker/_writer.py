"""Writes outcomes and gives claims back: batched, and tried again until it's done or no longer matters."""

from __future__ import annotations

import asyncio
import functools
import logging
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import ClientClosed, RowRejected, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._batcher import NOT_ABOUT_ROWS, Batcher
from aioqueue.telemetry._counters import AttemptOutcome
from aioqueue.telemetry._tracing import Tracing
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult
from aioqueue.worker._attempt_log import log_cancelled, log_end, log_interrupted
from aioqueue.worker._attempt_span import end_span
from aioqueue.worker._attempt_told import tell_at_last, written_as_cancelled
from aioqueue.worker._outcome import INTERRUPTED, Interrupted, Outcome, put_off, refused, unless_asked_to_end
from aioqueue.worker._postponed import Postponed
from aioqueue.worker._refusal import Refusal
from aioqueue.worker._settling import Settling, settlement_of
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioqueue.abc import Store
    from aioqueue.errors import AioqueueError
    from aioqueue.vocabulary._job import Claim, ClaimedJob, Settlement
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._policy import Policies
    from aioqueue.worker._tending import Tending
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Writer"]

logger = logging.getLogger("aioqueue.worker")

_BUSY_FOR_LONG_SECONDS = 10.0
_REFUSED_RELEASE_SECONDS = 60.0


class _Late(NamedTuple):
    """An outcome that couldn't be written at once: whose, and what is to be written."""

    slot: Slot
    settlement: Settlement


class Writer:
    """Takes outcomes over from the slots.

    What ends together is written together, by one statement at a time. What can't be written now (somebody has locked the row,
    a trigger raises, the database is away) is tried again apart from that, and holds nothing else up.

    Arguments:
        store: Where they go.
        policies: What counts for jobs whose outcome can't be stored as it is.
        holdings: What the worker holds: a claim is let go when its outcome is written.
        wakeup: Told when something was written.
        tending: Told when not all were told who wait for a chain that has ended.
        troubles: Where errors show.
        tracing: Makes the batches' spans; none by default.

    Attributes:
        written: How many outcomes of each kind were written.
        interrupted: How many attempts were interrupted.
    """

    def __init__(
        self,
        store: Store,
        policies: Policies,
        holdings: Holdings,
        wakeup: Wakeup,
        tending: Tending,
        troubles: Troubles,
        tracing: Tracing | None = None,
    ) -> None:
        self._store = store
        self._policies = policies
        self._tending = tending
        self._settling = Settling(store, Tracing(on=False) if tracing is None else tracing)
        self._holdings = holdings
        self._wakeup = wakeup
        self._troubles = troubles
        self._settles: Batcher[Settlement, SettleResult] = Batcher(
            self._settle, size=attrgetter("size"), name="settling of outcomes"
        )
        self._late: Postponed[_Late, SettleResult] = Postponed(
            self._settle_late,
            busy=lambda result: result.busy,
            on_wait=self._settle_waits,
            size=attrgetter("settlement.size"),
            name="settling of outcomes that waited",
        )
        self._releases: Batcher[tuple[int, Claim], None] = Batcher(self._release, name="giving back of claims")
        self._late_releases: Postponed[tuple[int, Claim], None] = Postponed(
            self._release,
            busy=lambda _: False,
            on_wait=self._release_waits,
            size=lambda _: 0,
            name="giving back of claims that waited",
        )
        self.written: dict[SettlementKind, int] = {}
        self.interrupted = 0
        self._given_up = False
        self._flushed = asyncio.Event()
        self._aborted = False

    # -- what the others ask for --------------------------------------------------------------------------------------

    def take(self, slot: Slot, outcome: Outcome | Interrupted) -> None:
        """Write what became of an attempt, or give its claim back; later. The claim is held until then."""
        if slot.lost is not None:
            slot.drop_enqueued()
            return
        if isinstance(outcome, Interrupted):
            self.interrupted += 1
            self._holdings.counters.of(slot.job.type).outcomes[AttemptOutcome.INTERRUPTED] += 1
            self.give_back(slot.job.lease_id, slot.claim)
            log_interrupted(slot)
            return
        if slot.completing is not None and slot.completing.sealed is outcome:
            self._holdings.unwritten += 1  # only to be counted, and told
            self._wrote(slot, outcome, None)
            log_end(slot, outcome)
            if slot.completing.cancelled:
                log_cancelled(slot, outcome)
            return
        # Waiting to be written may take long: an exception would keep everything that its frames hold.
        self._submit(slot, outcome if outcome.exception is None else outcome.without_exception())
        if not slot.told_late:
            log_end(slot, outcome)

    def give_back(self, lease_id: int, claim: Claim) -> None:
        """Release a claim, with no attempt used; later. Asking for it again meanwhile does nothing."""
        if claim in self._holdings.returning:
            return
        self._holdings.returning.add(claim)
        self._holdings.unwritten += 1
        self._submit_release(lease_id, claim)

    def put_off(self, job: ClaimedJob, delay: float) -> None:
        """Let a job be claimed again later, with no attempt used: an earlier body of it still runs in this process.

        Releasing it would make it due at once, for us to claim it again.
        """
        slot = self._holdings.hold(job)
        self._submit(slot, put_off(delay))

    async def flush(self) -> None:
        """Wait until everything that was handed over is written, or never will be: see `unwritten_slots`.

        What the database has refused for good isn't waited for. It takes as long as the database is away, or somebody locks
        one of the rows: the caller sets a bound.
        """
        self._late.hurry()
        self._late_releases.hurry()
        while self._holdings.unwritten and not self._given_up:
            self._flushed.clear()
            await self._flushed.wait()

    def unwritten_slots(self) -> Iterator[Slot]:
        """Attempts that have ended and of which nothing is written yet, and claims that aren't given back yet.

        While there is one the lease must be left to run out: ending it would give the job back with its attempt uncounted.
        Attempts that still run, or were left behind, aren't among them.
        """
        running = self._holdings.running
        return (slot for slot in list(self._holdings.held.values()) if slot.claim not in running and not slot.abandoned)

    def abort(self) -> None:
        """Write nothing more: the worker has ended. What waits stays held, and its lease runs out."""
        self._aborted = True
        for each in (self._settles, self._late, self._releases, self._late_releases):
            each.abort()

    @property
    def _open(self) -> bool:
        return not (self._given_up or self._aborted)

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _submit(self, slot: Slot, outcome: Outcome) -> None:
        self._holdings.unwritten += 1
        if not (self._given_up or self._aborted):
            future = self._settles.submit_nowait(settlement_of(slot, outcome))
            future.add_done_callback(functools.partial(self._settled, slot, outcome, None))

    def _submit_late(self, slot: Slot, outcome: Outcome, refusal: Refusal | None, wait: float | None = None) -> None:
        if self._open:
            future = self._late.submit_nowait(_Late(slot, settlement_of(slot, outcome)), wait=wait)
            future.add_done_callback(functools.partial(self._settled, slot, outcome, refusal))

    def _settled(self, slot: Slot, outcome: Outcome, refusal: Refusal | None, future: asyncio.Future[SettleResult]) -> None:
        """See what the store has answered about an outcome, and what is next for it. Every outcome comes here, usually once.

        Arguments:
            slot: Whose outcome it is.
            outcome: What was to be written.
            refusal: What was refused about it before, if anything.
            future: The answer, or the error in its place.
        """
        if future.cancelled():  # the end of the event loop cancels every task of it
            self._submit_late(slot, outcome, refusal, 0.0 if refusal is None else refusal.wait)
            return
        error = future.exception()
        if error is None:
            result = future.result()
            if result.lost is None and not result.busy and result.refused is None:
                if result.cancelled:
                    outcome = written_as_cancelled(slot, outcome)
                self._wrote(slot, outcome, refusal)
                if result.more:
                    self._tending.soon()
                return
        elif isinstance(error, ClientClosed):
            self._give_up(error)
            return
        else:
            result = SettleResult(LostReason.ERROR, str(error))
        lost = result.lost
        if slot.lost is not None:
            self._done_with(slot, refusal)
        elif result.refused is not None:
            self._write_failure(slot, result.refused)
        elif lost is None or (error is not None and not isinstance(error, RowRejected)):
            if not isinstance(error, NOT_ABOUT_ROWS):
                self._holdings.stuck.add(slot.claim)
            self._submit_late(slot, outcome, refusal)
        elif lost is LostReason.ERROR:
            self._refuse(slot, one_line(result.message), refusal)
        else:
            self._holdings.lose([slot], lost)
            self._done_with(slot, refusal)

    def _wrote(self, slot: Slot, outcome: Outcome, refusal: Refusal | None) -> None:
        self.written[outcome.kind] = self.written.get(outcome.kind, 0) + 1
        if slot.counted is not None:
            slot.counted.outcomes[outcome.counted_as] += 1
        elif outcome.kind is not SettlementKind.RESCHEDULED:  # what was put off unbegun is no attempt
            self._holdings.counters.of(slot.job.type).outcomes[outcome.counted_as] += 1
        self._holdings.wrote(slot, outcome)
        if slot.outbox is not None and refusal is None:
            slot.outbox.written(self._holdings.counters)
        if slot.told_late:
            tell_at_last(slot, outcome)
        if refusal is not None:
            job = slot.job
            logger.error(
                "%s %s: it has failed, since its outcome was refused: %s",
                one_line(job.type),
                job.id,
                refusal.reason,
                extra=slot.event("attempt.outcome_refused"),
            )
        self._done_with(slot, refusal)

    def _done_with(self, slot: Slot, refusal: Refusal | None) -> None:
        """Count a claim about which nothing more is to be written."""
        holdings = self._holdings
        if slot.outbox is not None:
            slot.drop_enqueued()  # unless it was written
        if slot.told_late:  # it's lost
            slot.told_late = False
            end_span(slot, INTERRUPTED)
        if holdings.stuck:
            holdings.stuck.discard(slot.claim)
        if self._troubles.current and not holdings.stuck:
            self._troubles.clear("outcome")
        if refusal is None or not refusal.hopeless:
            self._one_less_unwritten()
        self._wakeup.slot_freed()

    def _one_less_unwritten(self) -> None:
        """Count one less of what a stop waits for: it's written, or never will be."""
        self._holdings.unwritten -= 1
        if not self._holdings.unwritten:
            self._flushed.set()
            self._holdings.tell_if_idle()

    def _write_failure(self, slot: Slot, error: AioqueueError) -> None:
        """Write in place of an outcome that the attempt has failed, since the jobs that come with it can't be stored."""
        slot.drop_enqueued()
        outcome = refused(slot.job, self._policies.of(slot.job), error)
        if slot.asked is not None:
            outcome = unless_asked_to_end(slot.job, outcome, slot.asked)
        tell_at_last(slot, outcome)
        outcome = outcome.without_exception()
        if self._open:
            future = self._settles.submit_nowait(settlement_of(slot, outcome))
            future.add_done_callback(functools.partial(self._settled, slot, outcome, None))

    def _refuse(self, slot: Slot, reason: str, refusal: Refusal | None) -> None:
        """Write less of an outcome that its row refuses. Its claim stays held: given back, it would run again, uncounted."""
        job, first = slot.job, refusal is None or not refusal.hopeless
        refusal = Refusal(reason) if refusal is None else refusal.again()
        if refusal.hopeless:
            self._holdings.stuck.add(slot.claim)
            if first:
                logger.error(
                    "%s %s: nothing can be written about it, not even that it has failed: %s. It doesn't run again while this "
                    "worker lives; then it's taken for lost",
                    one_line(job.type),
                    job.id,
                    reason,
                    extra=slot.event("attempt.outcome_impossible"),
                )
                self._one_less_unwritten()
                self._wakeup.slot_freed()
            self._troubles.add("outcome", RowRejected(f"{job.type} {job.id}: nothing can be written about it: {reason}"))
        self._submit_late(slot, refusal.instead(job), refusal, refusal.wait)

    def _settle_waits(self, late: _Late, error: BaseException | None, seconds: float) -> None:
        """Called after each try of an outcome that was in vain: show it, if it isn't shown otherwise."""
        if isinstance(error, NOT_ABOUT_ROWS) and "settle" in self._troubles.current:
            return  # the database is away: that's told already
        job = late.slot.job
        self._holdings.stuck.add(late.slot.claim)
        if error is not None or seconds >= _BUSY_FOR_LONG_SECONDS:
            reason = "somebody has locked its row" if error is None else one_line(str(error))
            self._troubles.add(
                "outcome",
                StoreUnavailable(f"{job.type} {job.id}: what became of it can't be written for {seconds:.0f} s: {reason}"),
            )

    def _give_up(self, error: Exception) -> None:
        """End the worker, since nothing will ever be written. What waits stays held, and unwritten."""
        self._given_up = True
        self._flushed.set()
        self._wakeup.fail(error)

    # -- claims that are given back -----------------------------------------------------------------------------------

    def _submit_release(self, lease_id: int, claim: Claim) -> None:
        if self._open:
            future = self._releases.submit_nowait((lease_id, claim))
            future.add_done_callback(functools.partial(self._released, lease_id, claim))

    def _released(self, lease_id: int, claim: Claim, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            self._submit_release(lease_id, claim)
            return
        error = future.exception()
        if error is None:
            if not len(self._late_releases):
                self._troubles.clear("release")
            self._holdings.given_back(claim)
            self._one_less_unwritten()
            self._wakeup.slot_freed()
        elif isinstance(error, ClientClosed):
            self._give_up(error)
        elif self._open:
            self._troubles.add("release", error)
            wait = _REFUSED_RELEASE_SECONDS if isinstance(error, RowRejected) else None
            late = self._late_releases.submit_nowait((lease_id, claim), wait=wait)
            late.add_done_callback(functools.partial(self._released, lease_id, claim))

    def _release_waits(self, _: tuple[int, Claim], error: BaseException | None, __: float) -> None:
        if error is not None:
            self._troubles.add("release", error)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """Write outcomes. The fence makes repeating it safe, also after a lost answer."""
        try:
            results = await self._settling.write(settlements)
        except NOT_ABOUT_ROWS as error:
            self._troubles.add("settle", error)
            raise
        self._troubles.clear("settle")
        self._late.worked()
        return results

    async def _settle_late(self, lates: Sequence[_Late]) -> Sequence[SettleResult]:
        try:
            results = await self._settling.write([late.settlement for late in lates])
        except StoreIncompatible:
            try:
                await self._settling.check_schema()
            except StoreIncompatible as error:
                self._give_up(error)
            raise
        self._troubles.clear("settle")
        return results

    async def _release(self, claims: Sequence[tuple[int, Claim]]) -> Sequence[None]:
        by_lease: dict[int, list[Claim]] = {}
        for lease_id, claim in claims:
            by_lease.setdefault(lease_id, []).append(claim)
        for lease_id, own in by_lease.items():
            await self._store.release(lease_id, own)
        self._late_releases.worked()
        return [None] * len(claims)
