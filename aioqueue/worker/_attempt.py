"""One run of a job's handler, as a row of steps: open, arguments, call, close, encode."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, TypeGuard

from aioqueue.definitions._call import Call
from aioqueue.definitions._context import Attempt, activate
from aioqueue.definitions._continuation import Done, next_job
from aioqueue.definitions._middleware import fold
from aioqueue.errors import ArgumentsError, CallError, ConfigurationError, ConflictingOptions
from aioqueue.runtime._exits import from_a_signal
from aioqueue.telemetry._tracing import Tracing
from aioqueue.vocabulary._codec import CodecError
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.vocabulary._time import seconds
from aioqueue.worker._outbox import Outbox
from aioqueue.worker._outcome import CancelReason, Unreadable, completed, continued, raised
from aioqueue.worker._threads import HandlerThreads, Raised, leave_if_forked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._interruption import Interruptions
    from aioqueue.worker._outcome import Interrupted, Outcome
    from aioqueue.worker._policy import Policies

__all__ = ["Attempts", "SlotAttempt"]

_making = threading.Lock()
"""Held while an outbox is made: a handler may enqueue in several threads."""


class SlotAttempt(Attempt):
    """An attempt that knows its slot: what handlers and middlewares get.

    Attributes:
        slot: In which it runs.
        timeout: Seconds that it has; None for no limit.
        timer: Cancels it after these.
    """

    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        slot: Slot,
        job_type: JobType[..., Any, Any],
        *,
        worker_id: str,
        client: object,
        resources: ResourceScope,
        tracing: Tracing,
    ) -> None:
        super().__init__(slot.job, job_type, worker_id=worker_id, client=client, resources=resources)
        self.slot = slot
        self._tracing = tracing
        self._over = False

    def enqueue(self, call: Call[Any]) -> None:
        """Collect a call, and those that come along. See `Attempt`."""
        if not _is_call(call):
            raise TypeError(f"enqueue takes a call, such as job_type(...), not {type_name(call)}")
        call.mark_used()
        if self._over:
            raise CallError(f"{self!r} has ended: nothing can be enqueued with its outcome any more")
        tracer = self._tracing.tracer()
        span = None if tracer is None else self._tracing.send(tracer, [call.job_type.name])
        try:
            call.mark_enqueueing()
            try:
                row = call.to_new_job(None if span is None else span.trace)
                self._outbox().put([call], [row], span)
            except BaseException:
                call.mark_failed()
                raise
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise

    def _outbox(self) -> Outbox:
        slot = self.slot
        if slot.outbox is None:
            with _making:
                slot.outbox = slot.outbox or Outbox()
        if self._over:  # looked at once more, since whoever ends it sets this first, and looks for the box then
            slot.outbox.drop()
        return slot.outbox

    def end(self) -> None:
        """It has ended: its time too, and what it has enqueued is dropped, unless it goes along with its outcome."""
        if self.timer is not None:
            self.timer.cancel()
        if not self._over:
            self._over = True
            if self.slot.outbox is not None:
                self.slot.outbox.drop()

    def close(self) -> tuple[NewJob, ...]:
        """Enqueue nothing more. Returns the jobs that are stored with its outcome, if it ended well."""
        self._over = True
        outbox = self.slot.outbox
        return () if outbox is None else outbox.close()


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
        bodies: Ids of the jobs whose bodies run in this process, whatever became of their claims.
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
        bodies: set[UUID],
        tracing: Tracing | None = None,
    ) -> None:
        self._registry = registry
        self._policies = policies
        self._interruptions = interruptions
        self._worker_id = worker_id
        self._client = client
        self._resources = resources
        self._threads = threads
        self._bodies = bodies
        self._tracing = Tracing(on=False) if tracing is None else tracing
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
                if attempt.job_type.continues:
                    step = _step(attempt, output)
                    slot.untold = step.may_be_refused
                    return step
                encoded = _encode(attempt, output)
            children = attempt.close()
            slot.untold = bool(children)
            return completed(encoded, attempt.outcome, children)
        except Unreadable as error:
            return error.outcome(slot.job)
        except BaseException as error:
            if attempt is None or from_a_signal(error):
                raise
            return self._failed(attempt, error)
        finally:
            if attempt is not None:
                attempt.end()

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _open(self, slot: Slot) -> SlotAttempt:
        """Find the handler, make the attempt, and begin its time.

        Raises:
            Unreadable: What is stored as its timeout isn't a time.
        """
        name = slot.job.type
        job_type = (self._known.get(name) or self._learn(name))[0]
        timeout = _timeout(slot, job_type)
        attempt = slot.attempt = SlotAttempt(
            slot,
            job_type,
            worker_id=self._worker_id,
            client=self._client,
            resources=self._resources.child(),
            tracing=self._tracing,
        )
        if timeout is not None:
            attempt.timeout = timeout
            slot.over_at = slot.began + timeout
            attempt.timer = asyncio.get_running_loop().call_later(timeout, slot.cancel, CancelReason.TIMEOUT)
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
        return _marked(await handler(attempt))

    return call


def _used(function: Callable[[], object]) -> object:
    """Run a plain function that may continue its chain; a call which it returns counts as used."""
    return _marked(function())


def _marked(returned: object) -> object:
    """Say of a returned call that it was used, whatever becomes of the attempt: it doesn't warn when it's dropped."""
    if _is_call(returned):
        returned.mark_used()
    return returned


def _step(attempt: SlotAttempt, returned: object) -> Outcome:
    """Make of what a handler has returned that may continue its chain what that says: the chain's end, or its next job.

    Raises:
        Unreadable: It isn't a call, the value can't be stored, the call has a key, or its tags or metadata are too much, with
            those of the job.
        CallAlreadyEnqueued: The call was enqueued, or returned, before. That isn't taken back if the outcome can't be written:
            it may be there all the same.
    """
    job = attempt.job
    if not _is_call(returned):
        error = CallError(
            f"the handler of {job.type} is annotated to return a Call, and it, or a middleware, has returned a value "
            f"({type_name(returned)}): return done(value) to end the chain, or a call of a job type to continue it"
        )
        raise Unreadable(error, "CallError")
    if isinstance(returned, Done):
        return completed(_encode(attempt, returned.value), attempt.outcome, attempt.close())
    span = attempt.slot.span
    trace = job.trace if span is None else span.next_trace(job, returned.job_type.name)
    try:
        following = next_job(returned, job, trace)
    except (ConflictingOptions, CodecError) as error:
        raise Unreadable(error, type(error).__name__) from None
    return continued(following, attempt.outcome, attempt.close())


def _is_call(returned: object) -> TypeGuard[Call[Any]]:
    """As `isinstance`, without asking the value: its `__class__` may lie, or raise."""
    return issubclass(type(returned), Call)


def _encode(attempt: SlotAttempt, output: object) -> bytes:
    """Make JSON of what the handler has returned.

    Raises:
        Unreadable: It can't be stored.
    """
    try:
        return attempt.job_type.encode_output(output)
    except Exception as error:  # noqa: BLE001 - classified: looking at an output runs its own code, which may raise anything
        if _is_call(output):
            output.mark_used()
            raise Unreadable(_misplaced(attempt), "CallError") from None
        raise Unreadable(error, "OutputError") from None


def _misplaced(attempt: SlotAttempt) -> CallError:
    """What is wrong where a call stands in the place of a value."""
    if attempt.job_type.continues:
        return CallError(
            f"the handler of {attempt.job.type} has returned done(…) with a Call in it: return the call itself to continue the "
            "chain, or done(value) to end it"
        )
    return CallError(
        f"the handler of {attempt.job.type} has returned a Call, and isn't annotated to: -> Call[R] lets it continue its "
        "chain, where R is the type of the chain's result, and done(value) ends it"
    )
