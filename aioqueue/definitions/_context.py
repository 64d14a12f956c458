"""The attempt that is running: what handlers and middlewares see of it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import orjson

from aioqueue.definitions._completion import OWN
from aioqueue.definitions._resources import current_scope
from aioqueue.errors import CallError, TransactionError
from aioqueue.runtime._exits import from_a_signal
from aioqueue.vocabulary._placeholders import filled
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._completion import Completion
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.vocabulary._cancel_reason import CancelReason
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Attempt", "activate", "attempt_in", "current_attempt", "running_attempt"]

P = ParamSpec("P")
T = TypeVar("T")

_current: contextvars.ContextVar[Attempt] = contextvars.ContextVar("aioqueue_attempt")

_LONGEST_OUTCOME_CHARACTERS = 200


class Attempt:
    """One run of a job's handler. `current_attempt()` and middlewares get the same object.

    Attributes:
        job: The job as it was claimed.
        job_type: Its type here.
        worker_id: The worker's name.
        client: The worker's client, for enqueueing more.
        dry_run: Whether this run is only tried out; always False so far.
        resources: What is open for it.
    """

    def __init__(
        self, job: ClaimedJob, job_type: JobType[..., Any, Any], *, worker_id: str, client: Any, resources: ResourceScope
    ) -> None:
        self.job = job
        self.job_type = job_type
        self.worker_id = worker_id
        self.client = client
        self.resources = resources
        self.dry_run = False
        self._cancelled = False
        self._cancel_reason: CancelReason | None = None
        self._outcome: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def number(self) -> int:
        """The number of the attempt, from 1."""
        return self.job.attempt

    @property
    def cancelled(self) -> bool:
        """Whether it should stop: `cancel_reason` says why.

        A handler in a thread can't be interrupted, so a long one should look at this now and then. Any thread may.
        """
        return self._cancelled

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why it should stop: its claim is lost, its job was asked to end, the worker shuts down, or its time is over.

        None while it needn't, and where code of its own has cancelled it. Any thread may look.
        """
        return self._cancel_reason

    @property
    def in_thread(self) -> bool:
        """Whether its handler is a plain function, which runs in a thread."""
        return self._loop is not None

    def enter_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say that its handler runs in a thread, beside this event loop. The worker calls it."""
        self._loop = loop
        self._loop_thread = threading.get_ident()

    def from_thread(self, function: Callable[P, Coroutine[Any, Any, T]], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Call an async function in the worker's event loop, and wait for it here: for handlers that are plain functions.

        `attempt.from_thread(attempt.client.enqueue, charge(order_id))` enqueues from a `def` handler.

        Arguments:
            function: Runs in the event loop, with this handler's context variables.
            arguments, named: What it's called with.

        Returns:
            What the function returns. What it raises is raised here.

        Raises:
            RuntimeError: It isn't called in the thread of a `def` handler (or one that it has started): an `async def`
                handler awaits the function instead. Or the event loop has ended.
        """
        if self._loop is None or threading.get_ident() == self._loop_thread:
            raise RuntimeError(
                "from_thread() is for `def` handlers, which run in a thread: in the event loop, await the function instead"
            )
        call = _call_in_loop(function, arguments, named)
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:
            call.close()
            raise RuntimeError("the worker's event loop has ended: nothing can be called in it any more") from None
        result = future.result()
        if isinstance(result, _Exit):
            raise result.error
        return result

    def enqueue(self, call: Call[Any]) -> None:
        """Enqueue a call together with the outcome of this attempt: in the transaction that completes or continues its job.

        It's there exactly once: with an attempt that fails, puts itself off or is interrupted it's dropped, and the call may be
        enqueued again. Calls whose outputs it takes come along. Nothing is waited for, so plain functions may call it too, in
        any thread. The client's middlewares don't run.

        What can't be stored in the end, such as a call that waits for a job that isn't there, fails the attempt with that
        error, and its retry policy says what is next.

        Arguments:
            call: Such as `send_mail(order_id)`.

        Raises:
            CallAlreadyEnqueued: The call was enqueued before; `call.copy()` makes another.
            CallError: The attempt has ended, or its outcome is settled already (`done` of its `completion()`).
        """
        raise CallError(f"{call!r} can't be enqueued with {self!r}: no worker runs it")

    def completion(self, *, tx: object = OWN) -> AbstractAsyncContextManager[Completion, None]:  # noqa: ARG002 - a worker's takes it
        """Open a transaction in which the job is completed, or its chain goes on: what is written there exists exactly once.

        On entry it's made sure that the job is still this attempt's, and its row is locked: from then on nobody else ends it.
        The block says with `done` how the attempt ends, and the handler returns that: `return tx.done(receipt)`. An error in
        the block rolls back all of it, and is an error of the attempt as any other. Once it's committed, the outcome stands:
        whatever comes later, such as an error of a middleware or a stop of the worker, is only logged.

        It holds a connection, and on SQLite the only right to write: do slow things before it.

        Arguments:
            tx: A connection or session of yours with an open transaction, which you commit: as for `client.enqueue`. The
                handler must have done so when it returns.

        Raises:
            LeaseLost: On entry: the job isn't this attempt's any more; `reason` says why.
            CompletionNotDone: On leaving: `done` wasn't called. All is rolled back.
            BlockerNotFound, BlockerCycle: On leaving: what is to be enqueued waits for what isn't there, or for itself.
            OutsideTransaction: The task is inside `client.transaction()` already. Or `tx` is None.
            TransactionError: The attempt has ended or is completed already; the handler is a plain function, which runs in a
                thread: make it `async def`, and call what blocks with `asyncio.to_thread`.
            StoreUnavailable: The database can't be reached.
        """
        raise TransactionError(f"{self!r} can't be completed: no worker runs it")

    def mark_cancelled(self, reason: CancelReason | None = None) -> None:
        """Ask the attempt to stop. The worker calls it, from any thread; again when there's a weightier reason."""
        if reason is not None:
            self._cancel_reason = reason  # first: whoever sees that it's cancelled finds out why
        self._cancelled = True

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments that were passed, by name, in their annotated types; with the ends of the chains that it waited for.

        Raises:
            ArgumentsError: They don't fit the signature.
        """
        job = self.job
        payload = filled(job.payload, job.blockers) if job.blockers else job.payload
        return self.job_type.decode_arguments(payload)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What was enqueued as `metadata=`, or by enqueue middlewares."""
        value: object = orjson.loads(self.job.metadata)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    @property
    def outcome(self) -> str | None:
        """The label of how the attempt ended that was set last; None without one."""
        return self._outcome

    def set_outcome(self, label: str | None) -> None:
        """Label how the attempt ended, for statistics: such as `"nochange"`. The last one counts.

        Arguments:
            label: At most 200 characters; None takes it back.

        Raises:
            ValueError: It isn't such a text.
        """
        text = str.__str__(label) if isinstance(label, str) else ""
        if label is not None and not 0 < len(text) <= _LONGEST_OUTCOME_CHARACTERS:
            raise ValueError(f"an outcome is a text of 1 to {_LONGEST_OUTCOME_CHARACTERS} characters, not {safe_repr(label)}")
        self._outcome = text or None

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self.job.type} {self.job.id}>"


class _Exit:
    """Carries an exit to the thread that has to hear of it: out of a task of the event loop's it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _call_in_loop(function: Callable[..., Coroutine[Any, Any, T]], arguments: Any, named: Any) -> T | _Exit:
    try:
        return await function(*arguments, **named)
    except (SystemExit, KeyboardInterrupt) as error:
        if from_a_signal(error):
            raise
        return _Exit(error)


def current_attempt() -> Attempt:
    """Give the attempt in which this code runs: in a handler, its middlewares, and tasks and threads they started.

    Raises:
        RuntimeError: No attempt is running here.
    """
    attempt = running_attempt()
    if attempt is None:
        raise RuntimeError("current_attempt() is only there while a worker runs a job, in its handler and middlewares")
    return attempt


def running_attempt() -> Attempt | None:
    """Give the attempt in which this code runs, or None where there is none: for what is called anywhere, such as logging."""
    return _current.get(None)


def attempt_in(context: contextvars.Context) -> Attempt | None:
    """Give the attempt in whose context something was started: a task, a callback, a thread."""
    return context.get(_current)


@contextmanager
def activate(attempt: Attempt) -> Generator[Attempt]:
    """Make an attempt the current one, and its resources reachable, within the block. The worker calls it."""
    token, scope_token = _current.set(attempt), current_scope.set(attempt.resources)
    try:
        yield attempt
    finally:
        current_scope.reset(scope_token)
        _current.reset(token)
