"""One run of a job's handler, as a row of steps: open, arguments, call, close, encode."""

from __future__ import annotations

import asyncio
import functools
import os
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._context import activate
from aioqueue.definitions._dry_runs import not_declared
from aioqueue.definitions._middleware import fold
from aioqueue.errors import ArgumentsError, ConfigurationError
from aioqueue.runtime._exits import from_a_signal
from aioqueue.telemetry._tracing import Tracing
from aioqueue.vocabulary._time import seconds
from aioqueue.worker._captured import begin_capturing
from aioqueue.worker._gate_fields import GateFields
from aioqueue.worker._outcome import Unreadable, raised
from aioqueue.worker._returned import marked, outcome_of
from aioqueue.worker._slot_attempt import SlotAttempt
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._threads import HandlerThreads, Raised, leave_if_forked, wait_for_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from aioqueue.definitions._context import Attempt
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.worker._completion import Completions
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._interruption import Interruptions
    from aioqueue.worker._outcome import Interrupted, Outcome
    from aioqueue.worker._policy import Policies
    from aioqueue.worker._processes import HandlerProcesses
    from aioqueue.worker._stages import Stages

__all__ = ["Attempts"]


class Attempts:
    """Runs attempts: what is the same for all of one worker's.

    Arguments:
        registry: Where the handlers are.
        policies: What counts for jobs that fail.
        interruptions: Say what an attempt costs that was stopped.
        worker_id: The worker's name.
        client: For handlers.
        resources: What is open for the whole worker.
        threads: For handlers that are plain functions.
        processes: For those of them that run in processes of their own.
        bodies: Ids of the jobs whose bodies run in this process, whatever became of their claims.
        completions: Make the blocks in which attempts complete their jobs.
        stages: Take their phases and their progress.
        tracing: Makes the spans of what attempts enqueue; none by default.
    """

    def __init__(
        self,
        registry: Registry,
        policies: Policies,
        interruptions: Interruptions,
        *,
        worker_id: str,
        client: object,
        resources: ResourceScope,
        threads: HandlerThreads,
        processes: HandlerProcesses,
        bodies: set[UUID],
        completions: Completions,
        stages: Stages,
        tracing: Tracing | None = None,
    ) -> None:
        self._registry = registry
        self._policies = policies
        self._interruptions = interruptions
        self._worker_id = worker_id
        self._client = client
        self._resources = resources
        self._threads = threads
        self._processes = processes
        self._bodies = bodies
        self._completions = completions
        self._stages = stages
        self._tracing = Tracing(on=False) if tracing is None else tracing
        self._gate_fields = GateFields()
        self._pid = os.getpid()
        self._known: dict[str, tuple[JobType[..., Any, Any], Callable[[Attempt], Awaitable[object]]]] = {}

    async def run(self, slot: Slot) -> Outcome | Interrupted:
        """Run one attempt to its end. Whatever the handler raises becomes part of the outcome.

        Raises:
            Exception: Something around the handler is broken: `Slots` makes a failed attempt of it.
            KeyboardInterrupt: Ctrl-C, which means the program.
        """
        attempt: SlotAttempt | None = None
        try:
            attempt = self._open(slot)
            with activate(attempt):
                try:
                    if slot.reasons:  # cancelled before it began
                        raise asyncio.CancelledError
                    _arguments(attempt)
                    output = await self._call(attempt)
                except BaseException as error:
                    await _close(attempt, error)
                    raise
                if not attempt.resources.empty:  # most attempts open nothing, and needn't pay for one more coroutine
                    await _close(attempt, None)
                if slot.completing is not None and (sealed := await self._completions.returned(attempt, output)) is not None:
                    return sealed
                return outcome_of(attempt, output)
        except Unreadable as error:
            return error.outcome(slot.job)
        except BaseException as error:
            if attempt is None or from_a_signal(error):
                raise
            if slot.completing is not None and (sealed := await self._completions.raised(attempt, error)) is not None:
                return sealed
            return self._failed(attempt, error)
        finally:
            if attempt is not None:
                attempt.end()

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _open(self, slot: Slot) -> SlotAttempt:
        """Find the handler, make the attempt, and begin its time.

        Raises:
            Unreadable: What is stored as its timeout isn't a time. Or a dry run has begun its chain, and its type isn't, or is
                no longer, declared for that.
        """
        name = slot.job.type
        job_type = (self._known.get(name) or self._learn(name))[0]
        if slot.job.origin is not None and slot.job.origin.dry_run and not job_type.dry_run:
            raise Unreadable(not_declared(name), "DryRunRefused")
        timeout = _timeout(slot, job_type)
        attempt = slot.attempt = SlotAttempt(
            slot,
            job_type,
            worker_id=self._worker_id,
            client=self._client,
            resources=self._resources.child(),
            tracing=self._tracing,
            block=self._completions.block,
            stages=self._stages,
        )
        if job_type.gate_rules is not None:
            self._gate_fields.look(slot, job_type, job_type.gate_rules)
        if job_type.capture_logs:
            slot.captured = begin_capturing()
        if timeout is not None:
            attempt.timeout = timeout
            slot.over_at = slot.began + timeout
            attempt.timer = asyncio.get_running_loop().call_later(timeout, slot.cancel, StopReason.TIMEOUT)
        return attempt

    def _call(self, attempt: SlotAttempt) -> Awaitable[object]:
        """Call the handler, through its middlewares."""
        return self._known[attempt.job.type][1](attempt)

    def _failed(self, attempt: SlotAttempt, error: BaseException) -> Outcome | Interrupted:
        """What is made of an error of the handler's, of a middleware's or of a resource's. The attempt is closed already."""
        slot = attempt.slot
        error, reason = self._interruptions.explained(slot, error)
        policy = self._policies.of(slot.job)
        return raised(slot.job, policy, error, label=attempt.outcome, reason=reason, timeout=attempt.timeout)

    # -- how a handler is called --------------------------------------------------------------------------------------

    def _learn(self, name: str) -> tuple[JobType[..., Any, Any], Callable[[Attempt], Awaitable[object]]]:
        """Find a job type, and fold its middlewares: once for each name under which jobs are stored."""
        job_type = self._registry.types[name]
        handler: Callable[[Attempt], Awaitable[object]] = self._in_loop if job_type.is_async else self._in_thread
        if job_type.executor == "process":
            handler = self._in_process
        if job_type.continues and job_type.is_async:
            handler = _using(handler)
        known = self._known[name] = job_type, fold(self._registry.middlewares_of(job_type), handler)
        return known

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
        function: Callable[[], object] = functools.partial(attempt.job_type.fn, **attempt.arguments)
        if attempt.job_type.continues:
            # In the thread, and not where it's awaited: one that was left behind returns to nobody.
            function = functools.partial(_used, function)
        future = self._threads.run(function, lambda: self._bodies.discard(job_id))
        slot.in_thread = True
        cancelled = await wait_for_thread(slot, future)
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

    async def _in_process(self, attempt: Attempt) -> object:
        assert isinstance(attempt, SlotAttempt)
        return await self._processes.run(attempt)


def _timeout(slot: Slot, job_type: JobType[..., Any, Any]) -> float | None:
    """Seconds for the attempt. What is stored with a job may be anything, and an odd time would disorder the loop's timers.

    Raises:
        Unreadable: What is stored isn't a time.
    """
    stored = slot.job.timeout
    if stored is None:
        return job_type.timeout
    try:
        return seconds(stored, "the job's timeout", positive=True)
    except ConfigurationError as error:
        raise Unreadable(error, "ConfigurationError") from None


def _arguments(attempt: SlotAttempt) -> None:
    """Decode the arguments, once: the handler and its middlewares find them at the attempt.

    Raises:
        Unreadable: They don't fit the signature.
    """
    try:
        _ = attempt.arguments
    except ArgumentsError as error:
        raise Unreadable(error, "ArgumentsError") from None


async def _close(attempt: SlotAttempt, error: BaseException | None) -> None:
    """Close what was opened for the attempt, telling it of the error with which the handler has ended.

    Raises:
        BaseException: Closing has failed, or was cancelled: that's what the attempt ends with then.
    """
    if not attempt.resources.empty:
        await attempt.resources.aclose(error)


def _using(handler: Callable[[Attempt], Awaitable[object]]) -> Callable[[Attempt], Awaitable[object]]:
    """Wrap an async handler that may continue its chain, so that a call which it returns counts as used."""

    async def call(attempt: Attempt) -> object:
        return marked(await handler(attempt))

    return call


def _used(function: Callable[[], object]) -> object:
    """Run a plain function that may continue its chain; a call which it returns counts as used."""
    return marked(function())
