"""What attempts say while they run: their phases and their progress, and the threads in which plain phases run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.definitions._phases import Returned
from aioqueue.worker._phases import PhaseWriter
from aioqueue.worker._progress import ProgressWriter
from aioqueue.worker._threads import Raised, wait_for_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.telemetry._counters import Counters
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._threads import HandlerThreads

__all__ = ["Stages"]


class Stages:
    """Has the writers of one worker's phases and progress.

    Arguments:
        client: Whose store they go to.
        threads: For phases that are plain functions.
        bodies: Ids of the jobs whose bodies run in this process.
        troubles: Where errors show.
        counters: What the run counts.

    Attributes:
        phases: Writes phases.
        progress: Writes progress.
    """

    def __init__(
        self, client: Client, threads: HandlerThreads, bodies: set[UUID], troubles: Troubles, counters: Counters
    ) -> None:
        self._threads = threads
        self._bodies = bodies
        self._loop = asyncio.get_running_loop()
        self.phases = PhaseWriter(client, counters)
        self.progress = ProgressWriter(client.store, troubles, client.observers)

    async def in_thread(self, slot: Slot, function: Callable[[], object]) -> Returned:
        """Run a phase's plain function in a thread, and wait until it has ended, whatever cancels this: it can't be stopped."""
        job_id = slot.job.id
        over = False

        def ended() -> None:
            nonlocal over
            over = True
            if slot.abandoned or self._loop.is_closed():
                self._bodies.discard(job_id)

        before = slot.in_thread
        future = self._threads.run(function, ended)
        slot.in_thread = True
        try:
            cancelled = await wait_for_thread(slot, future)
        except asyncio.CancelledError:
            if over:  # between the two, before it was seen here that it's abandoned
                self._bodies.discard(job_id)
            raise
        slot.in_thread = before
        try:
            result = future.result()
            if isinstance(result, Raised):
                raise result.error
            return Returned(result, cancelled)
        finally:
            cancelled = result = None  # their tracebacks lead to this frame
            del future

    def let_go(self) -> None:
        """Write nothing more: the worker has ended."""
        self.phases.abort()
        self.progress.let_go()
