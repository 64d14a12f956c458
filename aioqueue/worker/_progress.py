"""Stores how far attempts have come: of each what was said last, batched, and now and then."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import ClientClosed
from aioqueue.runtime._batcher import NOT_ABOUT_ROWS
from aioqueue.runtime._left_behind import leave
from aioqueue.vocabulary._phases import ProgressWrite
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._observed import tell_progress
from aioqueue.worker._reports import Reports
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._observers import Observers
    from aioqueue.vocabulary._phases import Progress
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Slot

__all__ = ["ProgressWriter"]

logger = logging.getLogger("aioqueue.worker")

_EVERY_SECONDS = 0.1
"""Between two writes of one job. They're at the same moments for all jobs, so that one statement has them all."""
_MOST_JOBS = 500
"""In one statement."""
_LONGEST_SECONDS = 30.0
"""That a statement may take until it's taken for one that hangs."""
_LAST_SECONDS = 1.0
"""For which an attempt's outcome waits for the last value to be stored: behind it the fence would refuse it."""

_FIRST_WAIT_SECONDS = 0.5
"""After a statement that has failed; then longer ones, up to 5 s."""

_making = threading.Lock()


class _Taken(NamedTuple):
    """A value that is being written."""

    slot: Slot
    reports: Reports
    progress: Progress


class ProgressWriter:
    """Takes progress from attempts, in any thread, and stores it: one statement at a time, so none overtakes another.

    There's neither a task nor a timer while nobody reports. What can't be stored is tried again, unless a later value has
    taken its place; nothing but the last value of an attempt that ends is waited for, and that not for long.

    Arguments:
        store: Where it goes.
        troubles: Where errors show, as `progress`.
        observers: Told of what is stored.
    """

    def __init__(self, store: Store, troubles: Troubles, observers: Observers) -> None:
        self._store = store
        self._troubles = troubles
        self._observers = observers
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: dict[Reports, Slot] = {}
        self._woken = asyncio.Event()
        self._backoff = Backoff(_FIRST_WAIT_SECONDS, 5.0)
        self._failing = self._over = False
        self._task: asyncio.Task[None] | None = None

    # -- what the others ask for --------------------------------------------------------------------------------------

    def show(self, slot: Slot, progress: Progress) -> None:
        """Store what an attempt says, soon. May be called from any thread."""
        reports = slot.reports
        if reports is None:
            with _making:
                reports = slot.reports = slot.reports or Reports()
        reports.latest = progress
        if reports.queued:  # set before `latest` is taken, so that a value isn't left
            return
        reports.queued = True
        if threading.get_ident() == self._thread:
            self._queue(slot, reports)
            return
        try:
            self._loop.call_soon_threadsafe(self._queue, slot, reports, context=contextvars.Context())
        except RuntimeError:  # the event loop has ended
            reports.queued = False

    async def flushed(self, slot: Slot) -> None:
        """Wait until what an attempt has said last is stored, for a second at most. A cancellation goes on."""
        reports = slot.reports
        if reports is None or not reports.unwritten or self._over or slot.lost is not None:
            return
        if self._failing and not reports.writing:  # who knows for how long
            return
        reports.due = 0.0
        reports.waiter = self._loop.create_future()
        self._queue(slot, reports)
        try:
            await asyncio.wait([reports.waiter], timeout=_LAST_SECONDS)
        finally:
            reports.waiter = None

    async def ended(self, slot: Slot) -> None:
        """Store the last value of an attempt that has ended. A cancellation only ends the wait: its outcome is known."""
        with suppress(asyncio.CancelledError):
            await self.flushed(slot)
        if slot.reports is not None:
            self.close(slot.reports)

    def close(self, reports: Reports) -> None:
        """Write nothing more of an attempt."""
        reports.closed, reports.latest = True, None
        self._waiting.pop(reports, None)
        reports.tell()

    async def flush(self) -> None:
        """Write what waits now, of attempts that still run; for a second at most."""
        for reports in list(self._waiting):
            reports.due = 0.0
        self._woken.set()
        if self._task is not None and not self._failing:
            await asyncio.wait([self._task], timeout=_LAST_SECONDS)

    def let_go(self) -> None:
        """Write nothing more: the worker has ended."""
        self._over = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            leave(self._task)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _queue(self, slot: Slot, reports: Reports) -> None:
        if reports.closed or self._over:
            return
        reports.queued = True
        self._waiting[reports] = slot
        self._woken.set()
        if self._task is None:
            context = contextvars.Context()
            self._task = self._loop.create_task(self._run(), name="aioqueue writing of progress", context=context)
            self._task.add_done_callback(self._ended, context=context)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():  # by the end of the worker or its event loop, or by whoever cancels all tasks that there are
            for reports in list(self._waiting):  # nobody may be left waiting; the next value begins another task
                self._waiting.pop(reports)
                reports.queued, reports.latest = False, None
                reports.tell()
            return
        if (error := task.exception()) is not None:
            self._troubles.add("progress", error)
        if self._waiting and not self._over:  # what came after its last look
            reports, slot = next(iter(self._waiting.items()))
            self._queue(slot, reports)

    async def _run(self) -> None:
        while self._waiting:
            now = self._loop.time()
            self._woken.clear()
            due = [reports for reports in self._waiting if reports.due <= now][:_MOST_JOBS]
            if not due:
                await self._pause(min(reports.due for reports in self._waiting) - now)
                continue
            taken: list[_Taken] = []
            for reports in due:
                slot = self._waiting.pop(reports)
                reports.queued = False
                progress, reports.latest = reports.latest, None
                if progress is not None:
                    reports.due = _next_moment(now, first=not reports.due)
                    reports.writing = True
                    taken.append(_Taken(slot, reports, progress))
            try:
                if taken:
                    await self._write(taken)
            finally:
                for _, reports, _ in taken:
                    reports.writing = False
                    reports.tell()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _write(self, taken: Sequence[_Taken]) -> None:
        """Write a batch; what failed because of a row is halved, until that's alone."""
        error = await self._written([_write_of(slot, progress) for slot, _, progress in taken])
        if error is not None and len(taken) > 1 and not isinstance(error, (*NOT_ABOUT_ROWS, TimeoutError)):
            middle = len(taken) // 2
            await self._write(taken[:middle])
            await self._write(taken[middle:])
            return
        for _, reports, _ in taken:
            reports.writing = False  # before what comes is queued again
        if error is None:
            self._failing = False
            self._backoff.reset()
            self._troubles.clear("progress")
            if self._observers.active:
                for slot, _, progress in taken:
                    tell_progress(self._observers, slot.job, progress)
        elif isinstance(error, (*NOT_ABOUT_ROWS, TimeoutError)):
            self._try_again(taken, error)
        else:
            self._refused(taken[0], error)

    async def _written(self, writes: Sequence[ProgressWrite]) -> Exception | None:
        """Have the store write, in a task that is left alone if it hangs. Returns what went wrong."""
        statement = self._loop.create_task(self._store.write_progress(writes), name="aioqueue statement for progress")
        try:
            await asyncio.wait([statement], timeout=_LONGEST_SECONDS)
        finally:
            if not statement.done():
                statement.cancel()
                leave(statement)
        if not statement.done() or statement.cancelled():
            return TimeoutError(f"it takes longer than {_LONGEST_SECONDS:.0f} s, or was cancelled")
        error = statement.exception()
        if error is None or isinstance(error, Exception):
            return error
        raise error

    def _try_again(self, taken: Sequence[_Taken], error: Exception) -> None:
        self._failing = True
        self._troubles.add("progress", error)
        later = self._loop.time() + self._backoff.next()
        for slot, reports, progress in taken:
            reports.due = later
            if isinstance(error, ClientClosed) or reports.closed:
                continue
            if reports.latest is None:
                reports.latest = progress
            self._queue(slot, reports)
        for reports in list(self._waiting):  # who waits for the last value waits in vain
            if reports.waiter is not None and not reports.waiter.done():
                reports.waiter.set_result(None)

    def _refused(self, taken: _Taken, error: Exception) -> None:
        if taken.reports.refused:
            return
        taken.reports.refused = True
        slot, job = taken.slot, taken.slot.job
        logger.warning(
            "%s %s: its progress isn't stored, since the store refuses it: %s",
            one_line(job.type),
            job.id,
            one_line(error),
            extra=slot.event("attempt.progress_refused"),
        )


def _next_moment(now: float, *, first: bool) -> float:
    """When a job may be written again. The moments are the same for all, so the first one is left out: it may be too near."""
    return (now // _EVERY_SECONDS + (2 if first else 1)) * _EVERY_SECONDS


def _write_of(slot: Slot, progress: Progress) -> ProgressWrite:
    job = slot.job
    return ProgressWrite(
        id=job.id,
        claims=job.claims,
        lease_id=job.lease_id,
        percent=progress.percent,
        message=progress.message,
        phase=progress.phase,
        phases=progress.phases,
    )
