"""The attempt that is running: what handlers and middlewares see of it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

import orjson

from aioqueue.definitions._completion import OWN
from aioqueue.definitions._dry_runs import is_dry
from aioqueue.definitions._phases import MemoryKeeper, Phases, Returned
from aioqueue.definitions._progress import read_message, read_percent, shown_progress
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
    from aioqueue.definitions._phases import PhaseKeeper
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.vocabulary._cancel_reason import CancelReason
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._phases import Progress

__all__ = ["Attempt", "activate", "attempt_in", "current_attempt", "running_attempt", "runs_dry"]

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
        dry_run: Whether this run is only tried out: nothing of it is to be seen outside.
        resources: What is open for it.
        last_progress: What `progress` was last told, or the beginning or end of a phase says; None before that.
    """

    _phases: Phases | None = None
    last_progress: Progress | None = None

    def __init__(
        self, job: ClaimedJob, job_type: JobType[..., Any, Any], *, worker_id: str, client: Any, resources: ResourceScope
    ) -> None:
        self.job = job
        self.job_type = job_type
        self.worker_id = worker_id
        self.client = client
        self.resources = resources
        self.dry_run = is_dry(job.origin)
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

    # -- phases and progress ------------------------------------------------------------------------------------------

    @overload
    async def phase(
        self, name: str, function: Callable[P, Coroutine[Any, Any, T]], /, *arguments: P.args, **named: P.kwargs
    ) -> T: ...
    @overload
    async def phase(self, name: str, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T: ...
    async def phase(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Run a phase of the job, and store its result; if an earlier attempt has done so, give that result and run nothing.

        `path = await attempt.phase("download", download, url)`. So a retry, a crash or a restart goes on with the phase that
        was interrupted. That one runs again: a crash between its end and the storing of its result repeats it.

        Arguments:
            name: One of the job type's `phases=`.
            function: `async def`, or `def`, which runs in a thread. It's annotated with what it returns: JSON is stored.
            arguments, named: What it's called with. The stored result stands even if they have changed since.

        Returns:
            What the function has returned, or the stored result, converted to its return type.

        Raises:
            PhaseNotDeclared: The job type has no such phase.
            PhaseRepeated: It has finished in this attempt.
            PhasesOverlap: Another phase of the attempt is running.
            PhaseResultError: The result can't be stored exactly, or a stored one isn't of the return type any more.
            RegistrationError: The function isn't annotated with what it returns, or with what can't be read back.
            LeaseLost: The job isn't this attempt's any more; `reason` says why.
            TransactionError: A block of `completion()` is open.
            StoreError: The store can't be reached for a while, or refuses the result.
            BaseException: What the function raises.
        """
        return await self._own_phases().run(name, function, arguments, named)

    async def phase_results(self) -> dict[str, Any]:
        """The stored results of the job's completed phases: plain JSON values by name, in the order of `phases=`."""
        return await self._own_phases().results()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Say how far the attempt has come. Returns at once; may be called as often as you like, from any thread.

        It's stored up to ten times a second, the last one in any case, and shown by `handle.progress()`, `result(on_progress=)`
        and `aioqueue jobs show`. After the attempt's end it's ignored.

        Arguments:
            percent: 0 to 100: of the phase that is running, otherwise of the whole job.
            message: One line; what is over 1,000 characters is cut off.

        Raises:
            ValueError: The percentage isn't one, or the message no text.
        """
        self._report(read_percent(percent), read_message(message))

    def _report(self, percent: float, message: str | None = None) -> None:
        running = None if self._phases is None else self._phases.running
        self.last_progress = shown = shown_progress(self.job_type.phases, running, percent, message)
        self._show(shown)

    def _show(self, progress: Progress) -> None:
        """Take what was reported; a worker stores it."""

    def _own_phases(self) -> Phases:
        if self._phases is None:
            self._phases = Phases(self.job_type, self._keeper(), in_thread=self._in_thread, report=self._report)
        return self._phases

    def _keeper(self) -> PhaseKeeper:
        """Who keeps the results of its phases."""
        return MemoryKeeper()

    async def _in_thread(self, function: Callable[[], object]) -> Returned:
        """Run a phase's plain function in a thread."""
        return Returned(await asyncio.to_thread(function))

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


def runs_dry() -> bool:
    """Whether this code is part of a dry run: what it enqueues is, too."""
    attempt = _current.get(None)
    return attempt is not None and attempt.dry_run


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
