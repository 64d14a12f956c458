"""One run of a job's handler, as a few named steps."""

from __future__ import annotations

import asyncio
import functools
import os
from typing import TYPE_CHECKING, Any

from aioqueue._context import Attempt, activate
from aioqueue._middleware import fold
from aioqueue.errors import ArgumentsError
from aioqueue.worker._outcome import CancelReason, Outcome, Policy, completed, raised, unreadable
from aioqueue.worker._threads import HandlerThreads, Raised, leave_if_forked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from aioqueue._job_type import JobType
    from aioqueue._registry import Registry
    from aioqueue._resources import ResourceScope
    from aioqueue._retry import Retry
    from aioqueue._settings import WorkerSettings
    from aioqueue.worker._holdings import Slot

__all__ = ["Attempts"]


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
        self._folded: dict[str, tuple[JobType[..., Any, Any], Callable[[Attempt], Awaitable[object]]]] = {}

    def policy(self, slot: Slot) -> Policy:
        """The policy that counts for a job."""
        job = slot.job
        return Policy.of(job, self._registry.types.get(job.type), self._default_retry, self._max_reschedules)

    async def run(self, slot: Slot) -> Outcome:
        """Run one attempt to its end. Never raises; whatever the handler raises becomes part of the outcome."""
        job_type, run = self._runner(slot.job.type)
        timeout = slot.job.timeout if slot.job.timeout is not None else job_type.timeout
        attempt = slot.attempt = _SlotAttempt(
            slot.job, job_type, worker_id=self._worker_id, client=self._client, resources=self._resources.child()
        )
        attempt.slot = slot
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, slot.cancel, CancelReason.TIMEOUT)
        try:
            if slot.reason is not None:  # cancelled before it began
                raise asyncio.CancelledError
            with activate(attempt):
                return await self._body(slot, attempt, run)
        except BaseException as error:  # noqa: BLE001 - classified: an attempt must not take its worker with it
            if isinstance(error, asyncio.CancelledError) and slot.reason is None and self._ending():
                slot.reason = CancelReason.SHUTDOWN
            return raised(slot.job, self.policy(slot), error, label=attempt.outcome, reason=slot.reason, timeout=timeout)
        finally:
            if timer is not None:
                timer.cancel()

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
        except (ValueError, TypeError, RecursionError) as error:
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
        assert isinstance(attempt, _SlotAttempt)
        slot, job_id = attempt.slot, attempt.job.id
        slot.in_thread = True
        self._bodies.add(job_id)
        function = functools.partial(attempt.job_type.fn, **attempt.arguments)
        future = self._threads.run(function, lambda: self._bodies.discard(job_id))
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
            if cancelled is not None and slot.reason is None:
                raise cancelled  # a middleware's own timeout, for example
            if isinstance(result, Raised):
                raise result.error
            return result
        finally:
            cancelled = result = None  # their tracebacks lead to this frame
            del future


class _SlotAttempt(Attempt):
    """Knows its slot."""

    slot: Slot
