"""The end of a worker's run: running jobs finish or are interrupted, outcomes are written, the lease is ended."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._context import attempt_in
from aioqueue.runtime._contexts import tasks_whose_context
from aioqueue.runtime._left_behind import bounded, ended_meanwhile, leave, take_out_of_sight
from aioqueue.runtime._log import event
from aioqueue.worker._attempt_span import end_span
from aioqueue.worker._outcome import INTERRUPTED
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from uuid import UUID

    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._gates import Gates
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._processes import HandlerProcesses
    from aioqueue.worker._retention import Retention
    from aioqueue.worker._schedules import Schedules
    from aioqueue.worker._schedules_reconciled import Reconciling
    from aioqueue.worker._stages import Stages
    from aioqueue.worker._tending import Tending
    from aioqueue.worker._threads import HandlerThreads
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._webhooks import Webhooks
    from aioqueue.worker._writer import Writer

__all__ = ["Shutdown", "longest_stop"]

logger = logging.getLogger("aioqueue.worker")

# How long each step may take. `longest_stop` is their sum, which docs/how-to/deployment.md shows.
_LAST_CLAIM_SECONDS = 5.0
"""For the statement that the loop is executing when the stop comes. The grace runs meanwhile."""
_INTERRUPTED_SECONDS = 5.0
"""For jobs that were cancelled at the end of the grace."""
_LOOP_SECONDS = 1.0
"""For a statement of the loop that was cancelled."""
_FLUSH_SECONDS = 10.0
"""For outcomes, after the last job has ended; longer if the grace is."""
_LEASE_SECONDS = 5.0
"""For ending the lease, if as much is left of the time for outcomes."""
_LEASE_LEAST_SECONDS = 1.0
_RESOURCES_SECONDS = 9.0
"""For closing the worker's resources, while outcomes are written."""
_RESOURCES_LEAST_SECONDS = 1.0
"""For a resource that was cancelled."""
_MOST_NAMED = 20
"""Of jobs that still run at the end of the grace, how many the log names."""
_LAST_CANCEL_SECONDS = 0.1
"""For jobs that are cancelled a last time."""
_FORCED_SECONDS = 0.4
"""For each step, once a stop by force is asked for."""


def longest_stop(grace: float) -> float:
    """Give the seconds that `Worker.run` takes at most after a stop was asked for, whatever jobs and the database do.

    Arguments:
        grace: The worker's.
    """
    jobs = max(grace, _LAST_CLAIM_SECONDS) + _INTERRUPTED_SECONDS + _LOOP_SECONDS
    return jobs + _FLUSH_SECONDS + _LEASE_LEAST_SECONDS + 2 * _FORCED_SECONDS


class Shutdown:
    """Stops a worker's parts in order, each step within its bound.

    Arguments:
        settings: With the grace.
        name: The worker's.
        bodies: Ids of the jobs whose bodies run in this process.
        holdings, writer, leases, threads, processes, resources, stages, wakeup, webhooks: The worker's parts.
        tending: Those that tend to what no claim leads to: ticks that are being decided have as long as running jobs.

    Attributes:
        over: Whether `run` has gone to its end.
        left_behind: How many jobs didn't stop, or weren't written: each was named in the log.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        name: str,
        bodies: set[UUID],
        *,
        holdings: Holdings,
        writer: Writer,
        leases: Leases,
        threads: HandlerThreads,
        processes: HandlerProcesses,
        resources: ResourceScope,
        tending: tuple[Tending, Retention, Schedules, Reconciling, Gates],
        stages: Stages,
        wakeup: Wakeup,
        webhooks: Webhooks | None,
    ) -> None:
        self._grace, self._single = settings.grace, settings.singleton is not None
        self._name = one_line(name)
        self._bodies = bodies
        self._holdings = holdings
        self._writer = writer
        self._leases = leases
        self._threads = threads
        self._processes = processes
        self._resources = resources
        self._tending = tending
        self._stages = stages
        self._wakeup = wakeup
        self._webhooks = webhooks
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._forced = asyncio.Event()
        self._asked_at: float | None = None
        self._let_go = False
        self.over = False
        self.left_behind = 0

    # -- being asked --------------------------------------------------------------------------------------------------

    def ask(self, *, force: bool) -> None:
        """Stop; with `force`, at once."""
        if self._asked_at is None:
            self._asked_at = self._loop.time()
        self._asked.set()
        if force:
            self._forced.set()

    async def asked_within(self, seconds: float) -> None:
        """Wait until a stop is asked for, for at most so many seconds."""
        await _first(None, self._asked.wait(), seconds)

    async def unless_asked(self, call: Coroutine[Any, Any, object]) -> bool:
        """Wait for a call until a stop is asked for; then it's cancelled. Raises as the call. Returns whether it has ended."""
        task = self._loop.create_task(call, name="aioqueue opening of leases")
        return await ended_meanwhile(task, _first(task, self._asked.wait()))

    async def loop_ended(self, working: asyncio.Task[None]) -> None:
        """Wait until the worker's loop has ended. The statement that it executes when a stop is asked for has some seconds."""
        try:
            await _first(working, self._asked.wait())
            await _first(working, self._forced.wait(), _LAST_CLAIM_SECONDS)
        finally:
            working.cancel()

    # -- stopping -----------------------------------------------------------------------------------------------------

    async def run(self, working: asyncio.Task[None]) -> None:
        """Let running jobs finish, write what became of them, and end the lease: within `longest_stop`.

        Cancelling it leaves the rest undone; it may be called again.

        Arguments:
            working: The worker's loop, which was told to end.
        """
        if self._asked_at is None:
            self._asked_at = self._loop.time()
        left = await self._drain(self._asked_at + self._grace)
        await self._loop_interrupted(working)
        deadline = max(self._asked_at + self._grace, self._loop.time() + _FLUSH_SECONDS)
        closing = self._loop.create_task(self._close_resources(), name="aioqueue closing of resources")
        sending = self._loop.create_task(self._end_webhooks(deadline), name="aioqueue end of webhooks")
        try:
            await self._flush(deadline)
            if self._single:  # what a resource stands for is the next one's once it has the name
                await asyncio.wait([closing], timeout=max(deadline - self._loop.time(), 0.0))
            unwritten = self._name_unwritten()
            longest = self._unless_forced(min(max(deadline - self._loop.time(), _LEASE_LEAST_SECONDS), _LEASE_SECONDS))
            keep = bool(unwritten) or any(slot.lost is None for slot in left)
            ending = self._leases.end(keep=keep, longest=longest, late=_FORCED_SECONDS)
            if not await bounded(ending, longest + _FORCED_SECONDS, name="aioqueue end of a lease"):
                logger.warning(
                    "worker %s: the lease wasn't ended: it runs out by itself",
                    self._name,
                    extra=event("lease.not_ended", worker=self._name),
                )
            await sending
            self.let_go()
            await closing
            await self._leases.close(_FORCED_SECONDS)
        finally:
            closing.cancel()
            sending.cancel()
        self.left_behind = len(left) + unwritten
        self.over = True

    def let_go(self) -> None:
        """See that nothing more is written, renewed or woken: at once, also if `run` never began. Called at every end."""
        if not self._let_go:
            self._let_go = True
            self._writer.abort()
            for each in self._tending:
                each.let_go()
            self._stages.let_go()
            if self._webhooks is not None:
                self._webhooks.let_go()
            self._wakeup.close()
            self._processes.close()
            self._threads.close()
            self._leases.let_go()

    @property
    def _tending_tasks(self) -> list[asyncio.Task[Any]]:
        return [task for each in self._tending for task in each.tasks]

    def _unless_forced(self, seconds: float) -> float:
        return _FORCED_SECONDS if self._forced.is_set() else seconds

    async def _drain(self, end_of_grace: float) -> Sequence[Slot]:
        """Wait for the slots, interrupt them, wait once more. Returns those that had to be left behind."""
        running = self._holdings.running
        if running and not self._forced.is_set():
            await self._wait_for_slots(end_of_grace - self._loop.time())
        if not running:
            return ()
        still = ", ".join(f"{one_line(slot.job.type)} {slot.job.id}" for slot in list(running.values())[:_MOST_NAMED])
        more = f" and {len(running) - _MOST_NAMED} more" if len(running) > _MOST_NAMED else ""
        logger.info(
            "worker %s: asked to stop, since they still run: %s%s",
            self._name,
            still,
            more,
            extra=event("worker.cancelling", worker=self._name, jobs=len(running)),
        )
        self._holdings.cancel_all(StopReason.SHUTDOWN)
        await self._wait_for_slots(_INTERRUPTED_SECONDS)
        if running and self._forced.is_set():
            await self._wait_for_slots_in_any_case(_FORCED_SECONDS)
        last = self._holdings.abandon()
        if last:
            await self._wait_for_slots_in_any_case(_LAST_CANCEL_SECONDS)
        left = [slot for slot in last if slot.in_thread or slot.claim in running]
        for slot in left:
            slot.abandoned = True
            self._leave(slot)
        return left

    def _leave(self, slot: Slot) -> None:
        logger.warning(
            "worker %s: %s %s doesn't stop, and is left behind still running; others get it when the lease has run out",
            self._name,
            one_line(slot.job.type),
            slot.job.id,
            extra=slot.event("attempt.left_behind"),
        )
        end_span(slot, INTERRUPTED)
        if slot.task is None:  # a thread runs it
            return
        self._leave_task(slot.task, dead=functools.partial(self._bodies.discard, slot.job.id))
        attempt = slot.attempt
        for task in tasks_whose_context(lambda context: attempt is not None and attempt_in(context) is attempt):
            if task is not slot.task:
                task.cancel()
                self._leave_task(task)

    def _leave_task(self, task: asyncio.Task[Any], *, dead: Callable[[], None] | None = None) -> None:
        leave(task, dead=dead)
        if self._forced.is_set():  # it had no time yet
            self._loop.call_later(_INTERRUPTED_SECONDS, take_out_of_sight, task, context=contextvars.Context())
        else:
            take_out_of_sight(task)

    async def _wait_for_slots(self, longest: float) -> None:
        """Wait until no attempt runs, or force is asked for, for at most so many seconds."""
        ended = self._loop.create_task(self._holdings.all_ended())
        try:
            await _first(ended, self._forced.wait(), max(longest, 0.0))
        finally:
            ended.cancel()
            await asyncio.wait([ended])

    async def _wait_for_slots_in_any_case(self, seconds: float) -> None:
        """Wait until no attempt runs, for at most so many seconds, whatever is asked for meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._holdings.all_ended()
        except TimeoutError:
            pass

    async def _loop_interrupted(self, working: asyncio.Task[None]) -> None:
        """Wait for the loop, whose last statement was cancelled: what that one has claimed is given back. And for tending."""
        unfinished: set[asyncio.Task[Any]] = {task for task in (working, *self._tending_tasks) if not task.done()}
        if unfinished:
            await asyncio.wait(unfinished, timeout=self._unless_forced(_LOOP_SECONDS))
        if not working.done():
            logger.warning(
                "worker %s: a statement of its loop doesn't end, and is left behind",
                self._name,
                extra=event("worker.loop_left_behind", worker=self._name),
            )
            leave(working)
            return
        if not working.cancelled():
            working.exception()  # looked at: `Worker` raises it, unless it was cancelled itself
        if not all(task.done() for task in self._tending_tasks):
            logger.warning(
                "worker %s: a statement that tends doesn't end, and is left behind",
                self._name,
                extra=event("worker.loop_left_behind", worker=self._name),
            )

    async def _flush(self, deadline: float) -> None:
        flushing = self._loop.create_task(self._flush_all())
        try:
            await _first(flushing, self._forced.wait(), deadline - self._loop.time())
            if not flushing.done() and self._forced.is_set():
                await asyncio.wait([flushing], timeout=_FORCED_SECONDS)
        finally:
            flushing.cancel()
            await asyncio.wait([flushing])

    async def _flush_all(self) -> None:
        """In a task: the future of a `gather` that is cancelled complains unless it's awaited."""
        await asyncio.gather(self._writer.flush(), self._stages.progress.flush())

    async def _end_webhooks(self, deadline: float) -> None:
        """Wait for what is being sent, in the time for outcomes, beside these; then have it stopped."""
        if self._webhooks is None:
            return
        finishing = self._loop.create_task(self._webhooks.finish())
        try:
            await _first(finishing, self._forced.wait(), max(deadline - self._loop.time(), 0.0))
        finally:
            finishing.cancel()
            await asyncio.wait([finishing])
            self._webhooks.let_go()
        await self._webhooks.ended(_FORCED_SECONDS)

    def _name_unwritten(self) -> int:
        """Tell of each job that has ended, and of which the database doesn't know. Returns how many they are."""
        unwritten = list(self._writer.unwritten_slots())
        for slot in unwritten:
            logger.error(
                "worker %s: what became of %s %s couldn't be written; it runs again when the lease has run out",
                self._name,
                one_line(slot.job.type),
                slot.job.id,
                extra=slot.event("attempt.unwritten"),
            )
            end_span(slot, INTERRUPTED)  # of one whose end is told only when it's written
        return len(unwritten)

    async def _close_resources(self) -> None:
        closing = self._loop.create_task(self._resources.aclose(), name="aioqueue closing of resources")
        try:
            await _first(closing, self._forced.wait(), _RESOURCES_SECONDS)
            if not closing.done() and self._forced.is_set():
                await asyncio.wait([closing], timeout=_FORCED_SECONDS)
            if closing.done():
                closing.result()
        except Exception:
            logger.exception(
                "worker %s: a resource has failed to close",
                self._name,
                extra=event("worker.resource_not_closed", worker=self._name),
            )
        finally:
            closing.cancel()
            leave(closing)
        for task in await self._resources.abandon(self._unless_forced(_RESOURCES_LEAST_SECONDS)):
            logger.warning(
                "worker %s: left behind, since it doesn't close: %s",
                self._name,
                one_line(task.get_name()),
                extra=event("worker.resource_left_behind", worker=self._name),
            )
            self._leave_task(task)


async def _first(task: asyncio.Future[Any] | None, event: Awaitable[object], longest: float | None = None) -> None:
    """Wait until the task has ended or the event has come; the task goes on, whatever cancels this."""
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([waiting] if task is None else [task, waiting], timeout=longest, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
