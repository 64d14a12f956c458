"""One run of a job's handler, as a few named steps."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._context import Attempt, activate
from aioqueue.definitions._middleware import fold
from aioqueue.errors import ArgumentsError, ConfigurationError
from aioqueue.runtime._exits import exits_in, from_a_signal
from aioqueue.vocabulary._time import seconds
from aioqueue.worker._event_loop_end import EventLoopEnd, event_loop_end
from aioqueue.worker._outcome import (
    INTERRUPTED,
    CancelReason,
    Outcome,
    Policy,
    completed,
    interrupted_too_often,
    interruptions,
    raised,
    unreadable,
)
from aioqueue.worker._text import described, one_line
from aioqueue.worker._threads import HandlerThreads, Raised, leave_if_forked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.vocabulary._retry import Retry
    from aioqueue.worker._holdings import Slot

__all__ = ["Attempts", "SlotAttempt"]

logger = logging.getLogger("aioqueue.worker")

_MOST_INTERRUPTIONS = 5
"""How often a job may have been interrupted before it's suspected of ending the event loop, where nothing shows who did."""


class Attempts:
    """Runs attempts: what is the same for all of one worker's.

    Arguments:
        registry: Where the handlers are.
        settings: The worker's.
        worker_id: Its name.
        client: For handlers.
        resources: What is open for the whole worker.
        threads: For handlers that are plain functions.
        bodies: Ids of the jobs whose bodies run in this process, whatever became of their claims.
        ending: Whether the worker's own task was cancelled: the event loop's end cancels every task, attempts too.
    """

    def __init__(
        self,
        registry: Registry,
        settings: WorkerSettings,
        *,
        worker_id: str,
        client: object,
        resources: ResourceScope,
        threads: HandlerThreads,
        bodies: set[UUID],
        ending: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._default_retry: Retry = settings.default_retry
        self._max_reschedules = settings.max_reschedules
        self._worker_id = worker_id
        self._client = client
        self._resources = resources
        self._threads = threads
        self._bodies = bodies
        self._ending = ending
        self._pid = os.getpid()
        self._loop_end = EventLoopEnd(None)
        self._told: set[int] = set()  # ids of the exits with which an attempt's own body has ended last
        self._folded: dict[str, tuple[JobType[..., Any, Any], Callable[[Attempt], Awaitable[object]]]] = {}

    def policy(self, slot: Slot) -> Policy:
        """The policy that counts for a job."""
        job = slot.job
        return Policy.of(job, self._registry.types.get(job.type), self._default_retry, self._max_reschedules)

    async def run(self, slot: Slot) -> Outcome:
        """Run one attempt to its end. Whatever the handler raises becomes part of the outcome.

        Raises:
            Exception: Something around the handler is broken: `Slots` makes a failed attempt of it.
            KeyboardInterrupt: Ctrl-C, which means the program.
        """
        job_type, run = self._runner(slot.job.type)
        try:
            timeout = _timeout(slot, job_type)
        except ConfigurationError as error:
            return unreadable(slot.job, error, "ConfigurationError")
        attempt = slot.attempt = SlotAttempt(
            slot.job, job_type, worker_id=self._worker_id, client=self._client, resources=self._resources.child()
        )
        attempt.slot = slot
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, slot.cancel, CancelReason.TIMEOUT)
        try:
            if slot.reasons:  # cancelled before it began
                raise asyncio.CancelledError
            with activate(attempt):
                return await self._body(slot, attempt, run)
        except BaseException as error:
            if from_a_signal(error):
                raise
            return self._raised(slot, attempt, error, timeout)
        finally:
            if timer is not None:
                timer.cancel()

    def _raised(self, slot: Slot, attempt: Attempt, error: BaseException, timeout: float | None) -> Outcome:
        reason = slot.reason
        if slot.exit is not None and reason is CancelReason.EXIT and isinstance(error, asyncio.CancelledError):
            error = slot.exit
        elif exits := {id(each) for each in exits_in(error)}:
            self._told = exits
            # Once the loop has ended, whoever raises an exit has ended it, and isn't interrupted by its end.
            reason = None if reason is CancelReason.SHUTDOWN and self._ending() else reason
        elif reason is None and self._ending():
            reason = CancelReason.SHUTDOWN  # the loop's end cancels every task, also before we do
        return raised(slot.job, self.policy(slot), error, label=attempt.outcome, reason=reason, timeout=timeout)

    def look_for_an_exit(self) -> None:
        """See why the event loop has ended, if it has. Called when the worker is cancelled: later there may be less to see."""
        if self._loop_end.error is None:
            self._loop_end = event_loop_end()

    def interrupted(self, slot: Slot) -> Outcome:
        """What an attempt costs that was interrupted: nothing, unless it's the one that has ended the event loop.

        Called from a callback, while the slot still has its attempt.
        """
        attempt, task = slot.attempt, slot.task
        if not self._ending() or attempt is None or task is None:
            return INTERRUPTED
        self.look_for_an_exit()
        end = self._loop_end
        if end.error is not None and end.attempt is attempt:
            _log_guilty(slot, end.error)
            return raised(slot.job, self.policy(slot), end.error, label=attempt.outcome, reason=None, timeout=None)
        known = end.known or id(end.error) in self._told
        by_the_loop = task.cancelling() > len(slot.reasons)
        if by_the_loop and not known and interruptions(slot.job) >= _MOST_INTERRUPTIONS:
            return interrupted_too_often(slot.job, self.policy(slot))
        return INTERRUPTED

    async def _body(self, slot: Slot, attempt: Attempt, run: Callable[[Attempt], Awaitable[object]]) -> Outcome:
        try:
            _ = attempt.arguments
        except ArgumentsError as error:
            return unreadable(slot.job, error, "ArgumentsError")
        try:
            output = await run(attempt)
        except BaseException as error:
            if not attempt.resources.empty:
                await attempt.resources.aclose(error)
            raise
        if not attempt.resources.empty:
            await attempt.resources.aclose()
        try:
            encoded = attempt.job_type.encode_output(output)
        except Exception as error:  # noqa: BLE001 - classified: looking at an output runs its own code, which may raise anything
            return unreadable(slot.job, error, "OutputError")
        return completed(encoded, attempt.outcome)

    def _runner(self, name: str) -> tuple[JobType[..., Any, Any], Callable[[Attempt], Awaitable[object]]]:
        found = self._folded.get(name)
        if found is None:
            job_type = self._registry.types[name]
            handler = self._in_loop if job_type.is_async else self._in_thread
            found = self._folded[name] = job_type, fold(self._registry.middlewares_of(job_type), handler)
        return found

    async def _in_loop(self, attempt: Attempt) -> object:
        try:
            return await attempt.job_type.fn(**attempt.arguments)
        finally:
            leave_if_forked(self._pid)

    async def _in_thread(self, attempt: Attempt) -> object:
        """Run the handler in a thread, and wait until it has ended, whatever cancels this: it can't be stopped.

        Its value counts even after its timeout or the grace: it has done its work. Only a worker that is forced to
        stop leaves it behind.
        """
        assert isinstance(attempt, SlotAttempt)
        slot, job_id = attempt.slot, attempt.job.id
        attempt.enter_thread(asyncio.get_running_loop())
        function = functools.partial(attempt.job_type.fn, **attempt.arguments)
        future = self._threads.run(function, lambda: self._bodies.discard(job_id))
        slot.in_thread = True
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                if slot.abandoned:
                    raise
                attempt.mark_cancelled()
                cancelled = error
        slot.in_thread = False
        try:
            result = future.result()
            if cancelled is not None and not slot.reasons:
                raise cancelled  # a middleware's own timeout, for example
            if isinstance(result, Raised):
                raise result.error
            return result
        finally:
            cancelled = result = None  # their tracebacks lead to this frame
            del future


class SlotAttempt(Attempt):
    """An attempt that knows its slot: what handlers and middlewares get."""

    slot: Slot


def _log_guilty(slot: Slot, error: BaseException) -> None:
    job = slot.job
    logger.error(
        "%s %s: attempt %d has ended the event loop and this worker: a task or callback that it has started has raised %s",
        one_line(job.type),
        job.id,
        job.attempt,
        described(error),
        extra=slot.extra(),
    )


def _timeout(slot: Slot, job_type: JobType[..., Any, Any]) -> float | None:
    """Seconds for the attempt. What is stored with a job may be anything, and an odd time would disorder the loop's timers.

    Raises:
        ConfigurationError: What is stored isn't a time.
    """
    stored = slot.job.timeout
    return job_type.timeout if stored is None else seconds(stored, "the job's timeout", positive=True)
