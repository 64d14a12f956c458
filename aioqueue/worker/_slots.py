"""The slots: one plain task per running job."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING

from aioqueue.worker._outcome import INTERRUPTED, expired
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    import contextvars
    from uuid import UUID

    from aioqueue._job import ClaimedJob
    from aioqueue.worker._attempt import Attempts
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._outcome import Outcome
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Slots"]

logger = logging.getLogger("aioqueue.worker")

_MOST_ASIDE = 10
"""How many claims per slot may wait for a reason of their own, until they keep others from being claimed."""


class Slots:
    """Runs claimed jobs, a task each, and hands over what became of them.

    Arguments:
        attempts: Runs one.
        concurrency: Tasks at most.
        context: Copied for each attempt.
        bodies: Ids of the jobs whose bodies run in this process.
        holdings: Where the slots are kept.
        writer: Takes the outcomes.
        wakeup: Told when a slot is free again.
    """

    def __init__(
        self,
        attempts: Attempts,
        concurrency: int,
        context: contextvars.Context,
        bodies: set[UUID],
        *,
        holdings: Holdings,
        writer: Writer,
        wakeup: Wakeup,
    ) -> None:
        self._attempts = attempts
        self.concurrency = concurrency
        self._context = context
        self._bodies = bodies
        self._holdings = holdings
        self._writer = writer
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()

    @property
    def free(self) -> int:
        """How many jobs may be claimed: free slots, but with what waits to be written not over twice the slots.

        What waits for a reason of its own doesn't count, up to a number: what it ended with is kept in memory.
        """
        holdings = self._holdings
        waiting = len(holdings.held) - min(len(holdings.aside), _MOST_ASIDE * self.concurrency)
        return min(self.concurrency - len(holdings.running), 2 * self.concurrency - waiting)

    def start(self, job: ClaimedJob) -> None:
        """Begin an attempt of a job that has just been claimed."""
        slot = self._holdings.hold(job)
        if job.expired:
            self._writer.take(slot, expired(job))
            return
        self._holdings.running[slot.claim] = slot
        self._bodies.add(job.id)
        slot.task = self._loop.create_task(self._run(slot), context=self._context.copy())
        # Not in the task's own `finally`: a task that is cancelled before its first step never gets there.
        slot.task.add_done_callback(functools.partial(self._ended, slot), context=self._context)

    async def _run(self, slot: Slot) -> Outcome:
        slot.began = time.monotonic()
        if logger.isEnabledFor(logging.INFO):
            job = slot.job
            logger.info("%s %s: attempt %d begins", one_line(job.type), job.id, job.attempt, extra=slot.extra())
        return await self._attempts.run(slot)

    def _ended(self, slot: Slot, task: asyncio.Task[Outcome]) -> None:
        if not slot.in_thread:
            self._bodies.discard(slot.job.id)
        self._holdings.ended(slot)
        self._wakeup.freed(idle=self._holdings.idle)
        # Cancelled before its first step: nothing of it has run.
        outcome = INTERRUPTED if task.cancelled() else task.result()
        if not slot.abandoned:
            self._writer.take(slot, outcome)

    def runs_body_of(self, job: ClaimedJob) -> bool:
        """Whether an earlier body of this job still runs in this process."""
        return job.id in self._bodies
