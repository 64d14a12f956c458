"""The phases of one attempt: each runs once, and a later attempt has its stored result in place of it.

What is stored, and where, is a `PhaseKeeper`'s matter: a worker's writes it to the store; without a worker it's kept in memory.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from aioqueue.definitions import _signature
from aioqueue.errors import PhaseNotDeclared, PhaseRepeated, PhaseResultError, PhasesOverlap, RegistrationError
from aioqueue.vocabulary._codec import CodecError, ValueCodec
from aioqueue.vocabulary._job_control import Cancel, JobControl, Reschedule
from aioqueue.vocabulary._safe_text import safe_repr, type_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from aioqueue.definitions._job_type import JobType

__all__ = ["MemoryKeeper", "PhaseKeeper", "Phases", "Returned"]


class Returned(NamedTuple):
    """What a plain function has returned in its thread.

    Attributes:
        value: As returned.
        cancelled: The cancellation that came meanwhile: it goes on once the result is stored.
    """

    value: object
    cancelled: asyncio.CancelledError | None = None


class PhaseKeeper(Protocol):
    """Keeps where the phases of one job stand, for one attempt. Each call is awaited before the next one."""

    async def read(self) -> Mapping[str, bytes]:
        """The JSON results of completed phases, by name, those of earlier attempts included."""
        ...

    async def begin(self, name: str) -> None:
        """Note that a phase begins. What is raised here keeps it from beginning."""
        ...

    async def complete(self, name: str, result: bytes) -> None:
        """Store a result. Once this has returned, no later attempt runs the phase again."""
        ...

    async def fail(self, name: str, error: BaseException) -> None:
        """Note that its function has raised. Raises nothing of its own."""
        ...

    def resume(self, name: str) -> None:
        """Note that the result of an earlier attempt takes its place."""
        ...


class MemoryKeeper:
    """Keeps results as long as its attempt lives: where no worker runs it, as in a unit test."""

    def __init__(self) -> None:
        self._results: dict[str, bytes] = {}

    async def read(self) -> Mapping[str, bytes]:
        """See `PhaseKeeper`."""
        return self._results

    async def begin(self, name: str) -> None:
        """See `PhaseKeeper`."""

    async def complete(self, name: str, result: bytes) -> None:
        """See `PhaseKeeper`."""
        self._results[name] = result

    async def fail(self, name: str, error: BaseException) -> None:
        """See `PhaseKeeper`."""

    def resume(self, name: str) -> None:
        """See `PhaseKeeper`."""


class Phases:
    """Runs the phases of one attempt.

    Arguments:
        job_type: With the names.
        keeper: Knows the results.
        in_thread: Runs a plain function in a thread, and waits for it.
        report: Takes how much of the phase that runs is done, in percent.

    Attributes:
        running: The phase that runs; None between phases.
    """

    def __init__(
        self,
        job_type: JobType[..., Any, Any],
        keeper: PhaseKeeper,
        *,
        in_thread: Callable[[Callable[[], object]], Awaitable[Returned]],
        report: Callable[[float], None],
    ) -> None:
        self._job_type = job_type
        self._keeper = keeper
        self._in_thread = in_thread
        self._report = report
        self._finished: set[str] = set()
        self.running: str | None = None

    async def run(self, name: str, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        """Run a phase, or give its stored result. See `Attempt.phase`."""
        self._refuse(name, function)
        codec = self._codec_of(name, function)
        self.running = name
        try:
            stored = (await self._keeper.read()).get(name)
            if stored is not None:
                result = _read(codec, name, stored)
                self._keeper.resume(name)
            else:
                await self._keeper.begin(name)
                self._report(0.0)
                result = await self._run(name, function, arguments, named, codec)
            self._finished.add(name)
            self._report(100.0)
            return result
        finally:
            self.running = None

    async def results(self) -> dict[str, Any]:
        """The results of completed phases as plain JSON values, by name, in the order of the declared names."""
        stored = await self._keeper.read()
        return {name: orjson.loads(stored[name]) for name in self._job_type.phases if name in stored}

    async def _run(self, name: str, function: Callable[..., Any], arguments: Any, named: Any, codec: ValueCodec) -> Any:
        try:
            if _signature.is_async_function(function):
                returned = Returned(await function(*arguments, **named))
            else:
                returned = await self._in_thread(lambda: function(*arguments, **named))
            written = _write(codec, name, returned.value)
        except BaseException as error:
            if _has_failed(error):
                await self._keeper.fail(name, error)
            raise
        await self._keeper.complete(name, written)
        if returned.cancelled is not None:
            self._finished.add(name)
            self._report(100.0)
            raise returned.cancelled
        return returned.value

    def _refuse(self, name: str, function: Any) -> None:
        """Refuse what can't be run as a phase now.

        Raises:
            PhaseNotDeclared, PhaseRepeated, PhasesOverlap, TypeError: See `Attempt.phase`.
        """
        names = self._job_type.phases
        if name not in names:
            has = f"has {', '.join(names)}" if names else 'has none: give them as @registry.job(phases=("download", ...))'
            raise PhaseNotDeclared(f"{self._job_type.name} has no phase {safe_repr(name)}: it {has}", phase=name)
        if name in self._finished:
            raise PhaseRepeated(f"the phase {name!r} has finished in this attempt: each runs once", phase=name)
        if self.running is not None:
            raise PhasesOverlap(
                f"the phase {name!r} can't begin while {self.running!r} runs: await one before the next", phase=name
            )
        if type(function) is type(self._job_type):
            raise TypeError(
                f"phase({name!r}, ...) takes a function, and {function.name} is a job type: pass its function, "
                f"{function.fn.__name__}.fn, or enqueue a job of it"
            )
        if not callable(function):
            raise TypeError(
                f"phase takes a function and its arguments, as phase({name!r}, function, argument), not {type_name(function)}"
            )

    def _codec_of(self, name: str, function: Callable[..., Any]) -> ValueCodec:
        """What reads and writes a function's result: made once for each phase, as long as it's the same function.

        Raises:
            RegistrationError: Its annotation is missing, or can't be used.
        """
        known = self._job_type.phase_codecs
        target = getattr(function, "__func__", function)
        found = known.get(name)
        if found is None or found[0] is not target:
            found = known[name] = target, _made_codec(self._job_type, name, function)
        return found[1]


def _made_codec(job_type: JobType[..., Any, Any], name: str, function: Any) -> ValueCodec:
    label = f"the phase {name!r} of {job_type.name}"
    annotated = function if inspect.isroutine(function) or hasattr(function, "func") else type(function).__call__
    try:
        hints = _signature.read_return_hint(annotated)
    except (NameError, AttributeError, TypeError, ValueError) as error:
        raise RegistrationError(f"{label}: what its function is annotated to return can't be resolved: {error}") from None
    if "return" not in hints:
        raise RegistrationError(
            f"{label}: its function, {safe_repr(function)}, isn't annotated with what it returns, by which a later attempt "
            "reads the stored result: def it with `-> int`, say, or `-> None`"
        )
    try:
        _signature.refuse_hints(hints, is_async=_signature.is_async_function(function))
        return _signature.output_codec(hints["return"], job_type.converters)
    except RegistrationError as error:
        raise RegistrationError(f"{label}: {error}") from None


def _has_failed(error: BaseException) -> bool:
    """Whether a phase has failed with what was raised, and wasn't merely stopped, put off or cancelled."""
    if isinstance(error, JobControl):
        return not isinstance(error, (Reschedule, Cancel))
    return isinstance(error, Exception)


def _write(codec: ValueCodec, name: str, value: object) -> bytes:
    """Make JSON of a result.

    Raises:
        PhaseResultError: It can't be stored exactly.
    """
    try:
        return codec.encode(value, "result")
    except CodecError as error:
        raise PhaseResultError(f"what the phase {name!r} has returned can't be stored: {error}", phase=name) from None


def _read(codec: ValueCodec, name: str, stored: bytes) -> Any:
    """Read a stored result.

    Raises:
        PhaseResultError: It isn't of the function's return type any more.
    """
    try:
        return codec.decode(stored, "result")
    except CodecError as error:
        raise PhaseResultError(
            f"the stored result of the phase {name!r} isn't what its function returns by now: {error}. "
            "retry(from_start=True) forgets what is stored of the job's phases",
            phase=name,
        ) from None
