"""The slots: one plain task per running job, held here; and what this worker holds claims of."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aioqueue.worker._outcome import CancelReason, expired
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from aioqueue._context import Attempt
    from aioqueue._job import Claim, ClaimedJob, LostReason
    from aioqueue.worker._attempt import Attempts
    from aioqueue.worker._outcome import Outcome

__all__ = ["Slot", "Slots"]

logger = logging.getLogger("aioqueue.worker")


class Slot:
    """One claimed job, from its claim until its outcome is written.

    Attributes:
        reason: Why its attempt was cancelled; None if it wasn't, by us.
        lost: Why the claim is no longer ours.
        in_thread: Whether a thread runs its body.
        abandoned: Whether nobody waits for the thread any more.
    """

    __slots__ = ("abandoned", "attempt", "began", "claim", "in_thread", "job", "lost", "reason", "task")

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.claim = job.claim
        self.attempt: Attempt | None = None
        self.task: asyncio.Task[None] | None = None
        self.began = 0.0
        self.reason: CancelReason | None = None
        self.lost: LostReason | None = None
        self.in_thread = False
        self.abandoned = False

    def cancel(self, reason: CancelReason) -> None:
        """Ask the attempt to stop. The first reason counts, except that a lost claim outdoes all."""
        if self.reason is None or reason is CancelReason.LOST:
            first, self.reason = self.reason, reason
            if self.attempt is not None:
                self.attempt.mark_cancelled()
            if first is None and self.task is not None:
                self.task.cancel(reason.value)

    def extra(self) -> dict[str, object]:
        """For log records."""
        job = self.job
        return {"job_id": str(job.id), "job_type": job.type, "attempt": job.attempt}


class Slots:
    """Runs claimed jobs, a task each.

    Arguments:
        attempts: Runs one.
        concurrency: Tasks at most.
        context: Copied for each attempt.
        bodies: Ids of the jobs whose bodies run in this process.
        on_outcome: Writes an outcome.
        on_free: Called when a slot is free again.
    """

    def __init__(
        self,
        attempts: Attempts,
        concurrency: int,
        context: contextvars.Context,
        bodies: set[UUID],
        *,
        on_outcome: Callable[[Slot, Outcome], None],
        on_free: Callable[[], None],
    ) -> None:
        self._attempts = attempts
        self.concurrency = concurrency
        self._context = context
        self._bodies = bodies
        self._on_outcome = on_outcome
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self.running: dict[Claim, Slot] = {}
        self.held: dict[Claim, Slot] = {}
        self._ended = asyncio.Event()

    @property
    def free(self) -> int:
        """How many jobs may be claimed: free slots, but with what waits to be written not over twice the slots."""
        return min(self.concurrency - len(self.running), 2 * self.concurrency - len(self.held))

    def start(self, job: ClaimedJob) -> None:
        """Begin an attempt of a job that has just been claimed."""
        slot = Slot(job)
        self.held[slot.claim] = slot
        if job.expired:
            self._on_outcome(slot, expired(job))
            return
        self.running[slot.claim] = slot
        self._bodies.add(job.id)
        slot.task = self._loop.create_task(self._run(slot), context=self._context.copy())

    async def _run(self, slot: Slot) -> None:
        slot.began = time.monotonic()
        try:
            if logger.isEnabledFor(logging.INFO):
                job = slot.job
                logger.info("%s %s: attempt %d begins", one_line(job.type), job.id, job.attempt, extra=slot.extra())
            outcome = await self._attempts.run(slot)
        finally:
            if not slot.in_thread:
                self._bodies.discard(slot.job.id)
            del self.running[slot.claim]
            slot.task = slot.attempt = None
            self._ended.set()
            self._on_free()
        if not slot.abandoned:
            self._on_outcome(slot, outcome)

    def runs_body_of(self, job: ClaimedJob) -> bool:
        """Whether an earlier body of this job still runs in this process."""
        return job.id in self._bodies

    def lose(self, slots: Iterable[Slot], reason: LostReason) -> None:
        """Stop attempts whose claims are no longer ours."""
        for slot in list(slots):
            if slot.lost is not None or self.held.pop(slot.claim, None) is None:
                continue
            slot.lost = reason
            job = slot.job
            logger.warning(
                "%s %s: attempt %d is lost: %s", one_line(job.type), job.id, job.attempt, reason.value, extra=slot.extra()
            )
            slot.cancel(CancelReason.LOST)

    def cancel_all(self, reason: CancelReason) -> None:
        """Ask every attempt to stop."""
        for slot in list(self.running.values()):
            slot.cancel(reason)

    def abandon(self) -> list[Slot]:
        """Wait no longer for those that still run. Their claims stay: their bodies go on.

        Returns:
            Those that were left.
        """
        left = list(self.running.values())
        for slot in left:
            slot.abandoned = True
            if slot.task is not None:
                slot.task.cancel()
        return left

    async def all_ended(self) -> None:
        """Wait until no attempt runs."""
        while self.running:
            self._ended.clear()
            await self._ended.wait()
