"""The slots: what becomes of a job that was claimed. It's begun, in one plain task for each, or put off, or given back."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING

from aioqueue.runtime._exits import from_a_signal
from aioqueue.telemetry._tracing import Tracing
from aioqueue.worker._attempt_log import log_begin
from aioqueue.worker._attempt_span import end_span
from aioqueue.worker._observed import tell_started
from aioqueue.worker._outcome import INTERRUPTED, Outcome, asked_to_end, broken, expired, unless_asked_to_end
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.worker._attempt import Attempts
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._interruption import Interruptions
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._outcome import Interrupted
    from aioqueue.worker._stages import Stages
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Slots"]

logger = logging.getLogger("aioqueue.worker")

_MOST_STUCK_PER_SLOT = 10
"""How many claims per slot may wait for a reason of their own, until they keep others from being claimed."""
_BODY_RUNS_SECONDS = 5.0
"""For how long a job is put off while an earlier body of it still runs in this process."""


class Slots:
    """Runs claimed jobs, a task each, and hands over what became of them.

    Arguments:
        attempts: Runs one.
        interruptions: Judges those that were stopped before their end.
        concurrency: Tasks at most.
        bodies: Ids of the jobs whose bodies run in this process.
        holdings: Where the slots are kept.
        writer: Takes the outcomes.
        wakeup: Told when a slot is free again.
        leases: Whose jobs may be begun.
        stages: Store the last progress of attempts that end.
        tracing: Makes the attempts' spans; none by default.
        pause_between: Seconds that a slot rests after each attempt.
    """

    def __init__(
        self,
        attempts: Attempts,
        interruptions: Interruptions,
        concurrency: int,
        bodies: set[UUID],
        *,
        holdings: Holdings,
        writer: Writer,
        wakeup: Wakeup,
        leases: Leases,
        stages: Stages,
        tracing: Tracing | None = None,
        pause_between: float = 0.0,
    ) -> None:
        self._attempts = attempts
        self._interruptions = interruptions
        self.concurrency = concurrency
        self._context = contextvars.Context()
        self._bodies = bodies
        self._holdings = holdings
        self._writer = writer
        self._wakeup = wakeup
        self._leases = leases
        self._stages = stages
        self._tracing = Tracing(on=False) if tracing is None else tracing
        self._tracer = self._tracing.tracer()
        self._stopping = False
        self._pause_between = pause_between
        self._resting: deque[float] = deque()  # until when, by the monotonic clock; no timers: the main loop asks
        self._loop = asyncio.get_running_loop()

    @property
    def free(self) -> int:
        """How many jobs may be claimed: free slots, but with what waits to be written not over twice the slots.

        What waits for a reason of its own doesn't count, up to a number: what it ended with is kept in memory.
        """
        holdings = self._holdings
        waiting = len(holdings.held) - min(len(holdings.stuck), _MOST_STUCK_PER_SLOT * self.concurrency)
        return min(self.concurrency - len(holdings.running) - self._rest(), 2 * self.concurrency - waiting)

    @property
    def rested_in(self) -> float:
        """Seconds until the next slot that rests has done so; infinite if none does."""
        return max(0.0, self._resting[0] - time.monotonic()) if self._rest() else math.inf

    def _rest(self) -> int:
        """How many slots rest."""
        if self._resting:
            now = time.monotonic()
            while self._resting and self._resting[0] <= now:
                self._resting.popleft()
        return len(self._resting)

    def stop(self) -> None:
        """Begin nothing more: what is claimed from now on is given back."""
        self._stopping = True

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """Begin what has just been claimed. What may not be begun is given back, or put off."""
        self._tracer = self._tracing.tracer()
        if self._holdings.observers.active:
            tell_started(self._holdings.observers, jobs)
        live = {lease_id for lease_id in {job.lease_id for job in jobs} if self._leases.may_start(lease_id)}
        for job in jobs:
            if self._stopping or job.lease_id not in live:
                self._holdings.hold(job)  # until it's given back, so that a stop can name it
                self._writer.give_back(job.lease_id, job.claim)
            elif self.runs_body_of(job):
                self._writer.put_off(job, _BODY_RUNS_SECONDS)
            else:
                self.start(job)

    def start(self, job: ClaimedJob) -> None:
        """Begin an attempt, unless the job has expired, or its chain was asked to end since it was claimed."""
        slot = self._holdings.hold(job)
        if job.expired:
            self._writer.take(slot, expired(job))
            return
        asked = self._holdings.asked
        if asked and (why := asked.get(job.lease_id, {}).get(slot.claim)) is not None:
            self._writer.take(slot, asked_to_end(job, why))
            return
        self._holdings.running[slot.claim] = slot
        self._bodies.add(job.id)
        # From an empty context: nothing of whoever has started the worker, or enqueued the job in this process.
        slot.task = self._loop.create_task(self._run(slot), context=contextvars.Context())
        # Not in the task's own `finally`: a task that is cancelled before its first step never gets there.
        slot.on_end = functools.partial(self._ended, slot)
        slot.task.add_done_callback(slot.on_end, context=self._context)

    async def _run(self, slot: Slot) -> Outcome | Interrupted:
        """Run the attempt. Whatever goes wrong around it, also in our own code, is an outcome: no claim is left to nobody."""
        try:
            slot.began = time.monotonic()
            job = slot.job
            slot.counted = counted = self._holdings.counters.of(job.type)
            delay = (job.started_at - job.run_at).total_seconds()
            counted.begun(delay if delay > 0 else 0.0)
            if self._tracer is not None:
                slot.span = self._tracing.process(self._tracer, job)
            log_begin(slot)
            outcome = await self._attempts.run(slot)
            if slot.reports is not None:
                await self._stages.progress.ended(slot)
        except GeneratorExit:
            end_span(slot, INTERRUPTED)
            raise  # it's dropped: its event loop was closed before its end, and nobody waits for what becomes of it
        except BaseException as error:
            if from_a_signal(error) or slot.abandoned:
                raise  # it ends the event loop, as it would have done anywhere else; or the loop is closed, and nobody asks
            outcome = broken(slot.job, error)
            self._log_broken(slot, outcome)
        if outcome is not INTERRUPTED and slot.task is not None and slot.on_end is not None:
            # What the callback would do, without another turn of the event loop for each job.
            slot.task.remove_done_callback(slot.on_end)
            self._finish(slot, outcome)
        return outcome

    def _log_broken(self, slot: Slot, outcome: Outcome) -> None:
        job, error = slot.job, outcome.error
        logger.error(
            "%s %s: attempt %d has failed outside of its handler, and the default policy says what is next: %s\n%s",
            one_line(job.type),
            job.id,
            job.attempt,
            one_line(error),
            "" if error is None else error.traceback,
            extra=slot.event("attempt.broken"),
        )

    def _ended(self, slot: Slot, task: asyncio.Task[Outcome | Interrupted]) -> None:
        self._finish(slot, self._outcome(slot, task))

    def _finish(self, slot: Slot, outcome: Outcome | Interrupted) -> None:
        if not slot.in_thread:
            self._bodies.discard(slot.job.id)
        ended_at = time.monotonic()
        if slot.captured is not None:
            slot.captured.close()
        if slot.reports is not None:
            self._stages.progress.close(slot.reports)
        if slot.completing is not None and slot.completing.sealed is not None:
            outcome = slot.completing.sealed  # whatever came later
        elif slot.asked is not None:
            outcome = unless_asked_to_end(slot.job, outcome, slot.asked)
        if slot.told_late:
            slot.told_late, slot.ended_at = slot.lost is None and not slot.abandoned, ended_at
        if slot.span is not None and not slot.told_late:
            end_span(slot, outcome)
        if self._pause_between:
            self._resting.append(ended_at + self._pause_between)
        self._holdings.ended(slot)
        try:
            if not slot.abandoned:
                self._writer.take(slot, outcome)
        finally:
            # Behind the writing: a claim before it wouldn't find a chain's next step.
            self._wakeup.slot_freed()
        if slot.counted is not None:  # last: whatever it does, the slot is free, and the outcome is with the writer
            slot.counted.ended(ended_at - slot.began)

    def _outcome(self, slot: Slot, task: asyncio.Task[Outcome | Interrupted]) -> Outcome | Interrupted:
        if task.cancelled():  # before its first step: nothing of it has run
            return INTERRUPTED
        if (error := task.exception()) is not None:
            return INTERRUPTED if from_a_signal(error) else broken(slot.job, error)
        outcome = task.result()
        if outcome is not INTERRUPTED:
            return outcome
        try:
            return self._interruptions.judged(slot)
        except Exception as second:  # noqa: BLE001 - classified: as in `_run`, of which this is the last step
            return broken(slot.job, second)

    def runs_body_of(self, job: ClaimedJob) -> bool:
        """Whether an earlier body of this job still runs in this process."""
        return job.id in self._bodies
