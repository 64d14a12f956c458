"""A named, typed job: what `@registry.job` makes of a function."""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import orjson

from aioqueue.definitions import _signature
from aioqueue.definitions._call import Call
from aioqueue.definitions._gate_options import GateOptions, refuse_unordered_values, refuse_waiting_values, rules_of
from aioqueue.definitions._import_names import refuse_unreachable, refuse_without_import_name
from aioqueue.errors import ArgumentsError, ConflictingOptions, RegistrationError
from aioqueue.vocabulary._codec import ArgumentsCodec, ValueCodec
from aioqueue.vocabulary._unordered import has_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioqueue.definitions._gates import Limit
    from aioqueue.definitions._import_names import Executor
    from aioqueue.vocabulary._codec import Converter, Placed
    from aioqueue.vocabulary._job import Priority
    from aioqueue.vocabulary._retry import Retry

__all__ = ["JobType", "TypeOptions"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeOptions:
    """The options of one job type, validated. `_job_options.read_type_options` makes them; `JobType` says what each is."""

    aliases: tuple[str, ...] = ()
    retry: Retry | None = None
    timeout: float | None = None
    priority: Priority = 2
    expires: float | None = None
    keep: float | None = None
    tags: tuple[str, ...] = ()
    middlewares: tuple[Any, ...] = ()
    max_reschedules: int | None = None
    concurrency: int | None = None
    lease: float | None = None
    phases: tuple[str, ...] = ()
    capture_logs: bool = False
    executor: Executor = "thread"
    dry_run: bool = False
    gates: GateOptions = field(default_factory=GateOptions)
    declared_only: bool = False
    implements: JobType[..., Any, Any] | None = None
    converters: Mapping[type, Converter] = field(default_factory=dict["type", "Converter"])


class JobType(Generic[P, R, F]):
    """A job that can be called: calling it makes a `Call`, and runs nothing.

    `@registry.job` makes them. Arguments are bound and checked when it's called, so that a wrong one fails there.

    Attributes:
        fn: The plain function, for tests and reuse.
        name: The full name, by which workers find it.
        aliases: Older names that workers still run.
        retry: Its policy; None leaves it to the worker.
        timeout: Seconds for one attempt; None for no limit.
        priority: 1 (most urgent) to 4.
        expires: Seconds after it's due within which it must start; None for no limit.
        keep: Seconds that a job is kept after the end of its chain; None leaves it to the worker.
        tags: Of every job of this type.
        middlewares: Around each attempt, from the outside in: the registry's, then its own.
        max_reschedules: How often one job may be rescheduled; None leaves it to the worker.
        concurrency: How many of its jobs one worker runs at once; None for as many as it has slots.
        lease: Seconds that a lease of its jobs lives without being renewed; None leaves it to the worker.
        phases: The names of its phases, in order; none for most.
        capture_logs: Whether what its handler logs is kept with the job.
        executor: Where a plain function runs: in a `"thread"`, or in a `"process"` of its own.
        dry_run: Whether its jobs may be run dry: its handler looks at `current_attempt().dry_run`.
        limit: Its own limit, the name of the one that it shares with others, both, or neither.
        rate: How many of its jobs start in a time; None for any number.
        sequence_by: What puts its jobs in sequences; None leaves that to calls.
        fairness_by: The name of the argument, or the field of the metadata, whose values take turns; None for none.
        gate_rules: What these mean, for stores; None without any.
        converters: The registry's.
        phase_codecs: For `Phases`: by phase, its function and what reads and writes its result.
        is_async: Whether the function is a coroutine function; if not, it runs in a thread.
        implements: The declared type of which this is the handler, if it is one.
        declared_only: Whether there is no handler here: it can be enqueued, but not run.
        continues: Whether its handler returns a `Call`, to continue its chain or to end it with `done(value)`. False until its
            annotations are resolved.
    """

    def __init__(self, fn: F, name: str, options: TypeOptions, namespace: Mapping[str, Any] | None = None) -> None:
        function = cast("Callable[..., Any]", fn)
        self.fn = fn
        self.name = name
        self._options = options
        self.aliases = options.aliases
        self.retry = options.retry
        self.timeout = options.timeout
        self.priority: Priority = options.priority
        self.expires = options.expires
        self.keep = options.keep
        self.tags = options.tags
        self.middlewares = options.middlewares
        self.max_reschedules = options.max_reschedules
        self.concurrency = options.concurrency
        self.lease = options.lease
        self.phases = options.phases
        self.capture_logs = options.capture_logs
        self.executor: Executor = options.executor
        self.dry_run = options.dry_run
        self.limit = options.gates.limit
        self.rate = options.gates.rate
        self.sequence_by = options.gates.sequence_by
        self.fairness_by = options.gates.fairness_by
        self.declared_only = options.declared_only
        self.implements = options.implements
        self.is_async = inspect.iscoroutinefunction(function)
        self.continues = False
        self.converters = options.converters
        self.phase_codecs: dict[str, tuple[object, ValueCodec]] = {}
        self._parameters = _signature.read_parameters(function, name)
        self.gate_rules = rules_of(name, options.gates, self._parameters.names)
        self._codecs: tuple[ArgumentsCodec, ValueCodec] | None = None
        if options.executor == "process":
            refuse_without_import_name(function, name)
        functools.update_wrapper(cast("Any", self), function, updated=())
        self._resolve(namespace, required=False)

    @property
    def own_limit(self) -> Limit | None:
        """The limit of this type alone."""
        return self._options.gates.own

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its function's parameters."""
        return tuple(self._parameters.names)

    @property
    def place(self) -> str:
        """Where its function is defined: module, name, file and line."""
        function: Any = self.fn
        name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', self.name)}"
        code = getattr(inspect.unwrap(function), "__code__", None)
        return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"

    def defines_the_same(self, other: JobType[..., Any, Any]) -> bool:
        """Whether the other one is the same definition made again, as when a module is reloaded or a cell is run twice."""
        return self._options == other._options and _definition(self.fn) == _definition(other.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make a call: bind the arguments, check and copy them. Nothing runs.

        Raises:
            ArgumentsError: They don't fit the signature, or can't be stored exactly; or an output of another call, or a set,
                says at which limit, rate or sequence the job would wait.
            RegistrationError: An annotation can't be resolved.
        """
        frame = sys._getframe(1)
        codec, arguments = self._resolved()[0], self._parameters.bind(args, kwargs)
        placed: Sequence[Placed] = ()
        if self.gate_rules is not None:
            refuse_unordered_values(self.gate_rules, arguments)
        try:
            payload = codec.encode(arguments)
        except ArgumentsError as error:
            # Only now, so that calls without outputs needn't be searched for any.
            payload, placed = codec.encode_places(arguments)
            if not placed:
                raise error from None
            if self.gate_rules is not None:
                refuse_waiting_values(self.gate_rules, placed)
        return Call(self, payload, (frame.f_code.co_filename, frame.f_lineno), placed)

    def read_default(self, parameter: str) -> object:
        """The default of a parameter as a JSON value: what a key has in place of an argument that wasn't passed.

        Raises:
            ConflictingOptions: There is no such parameter, or its default can't be stored.
        """
        names, defaults = self._parameters.names, self._parameters.defaults
        if parameter not in defaults:
            raise ConflictingOptions(f"{self.name} has no parameter {parameter!r} (by=); it takes {', '.join(names) or 'none'}")
        try:
            written: dict[str, object] = orjson.loads(self._resolved()[0].encode({parameter: defaults[parameter]}))
        except ArgumentsError as error:
            raise ConflictingOptions(
                f"{self.name}: the default of {parameter!r} can't be in a key (by=): {error}. Pass the argument, or give key="
            ) from None
        return written[parameter]

    def has_set(self, parameter: str, payload: bytes) -> bool:
        """Whether a parameter has a set, or a value with one within: as it was passed, or by default.

        Arguments:
            parameter: Its name.
            payload: The arguments as stored: those that were passed.
        """
        return has_set(self._resolved()[0].decode_one(payload, parameter, self._parameters.defaults.get(parameter)))

    def decode_arguments(self, payload: bytes) -> dict[str, Any]:
        """Read stored arguments into the annotated types.

        Raises:
            ArgumentsError: They don't fit the signature.
        """
        return self._resolved()[0].decode(payload)

    def encode_output(self, output: object) -> bytes:
        """Write the value that the handler has returned, or has ended its chain with.

        Raises:
            CodecError: A ValueError: it can't be stored exactly, or isn't of the annotated type.
        """
        return b"null" if output is None and self._returns_none() else self._resolved()[1].encode(output, "output")

    def _returns_none(self) -> bool:
        return self._resolved()[1].annotation in (None, type(None), Any)

    def decode_output(self, stored: bytes) -> R:
        """Read a stored output.

        Raises:
            CodecError: A ValueError: it isn't of the annotated type.
        """
        return cast("R", self._resolved()[1].decode(stored, "output"))

    def check(self) -> None:
        """Resolve the annotations, if that couldn't be done yet.

        Raises:
            RegistrationError: One can't be resolved, or has no converter; or a process of its own couldn't import its handler.
        """
        self._resolved()
        if self.executor == "process":
            refuse_unreachable(self, self.fn, self.name)

    def signature(self) -> inspect.Signature:
        """The signature with its annotations resolved.

        Raises:
            NameError: One isn't there yet.
        """
        return _signature.resolved(cast("Callable[..., Any]", self.fn))

    def _resolved(self) -> tuple[ArgumentsCodec, ValueCodec]:
        if self._codecs is None:
            self._resolve(None, required=True)
        assert self._codecs is not None
        return self._codecs

    def _resolve(self, namespace: Mapping[str, Any] | None, *, required: bool) -> None:
        function = cast("Callable[..., Any]", self.fn)
        try:
            hints = _signature.read_hints(function, namespace)
        except (NameError, AttributeError) as error:
            if required:
                raise RegistrationError(
                    f"{self.name}: an annotation can't be resolved: {error}. Import the type at run time, not only under "
                    "`if TYPE_CHECKING:`, and define it at module level"
                ) from None
            return
        try:
            _signature.refuse_hints(hints, is_async=self.is_async)
            annotations = {name: hints.get(name, Any) for name in self._parameters.names}
            result, self.continues = _signature.read_result(hints.get("return", Any))
            if self.continues and self.executor == "process":
                raise RegistrationError(
                    'executor="process" and -> Call don\'t go together: return a value, and continue in a job that waits for it'
                )
            arguments = ArgumentsCodec(annotations, self._parameters.required, self.converters)
            self._codecs = arguments, _signature.output_codec(result, self.converters)
        except RegistrationError as error:
            raise RegistrationError(f"{self.name}: {error}") from None

    def __repr__(self) -> str:
        kind = "declared" if self.declared_only else "async" if self.is_async else "sync"
        return f"<JobType {self.name} ({kind}) {_signature.shown(cast('Callable[..., Any]', self.fn))}>"


def _definition(function: Any) -> tuple[object, ...]:
    """What a function is made of, wherever it stands in its file."""
    bare = inspect.unwrap(function)
    code = getattr(bare, "__code__", None)
    defaults = repr((getattr(bare, "__defaults__", None), getattr(bare, "__kwdefaults__", None)))
    return (bare.__module__, bare.__qualname__, defaults, bare if code is None else _instructions(code))


def _instructions(code: CodeType) -> tuple[object, ...]:
    constants = [_instructions(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return (code.co_name, code.co_flags, code.co_varnames, code.co_freevars, code.co_names, code.co_code, *constants)
