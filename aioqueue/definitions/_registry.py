"""Where job types, resources, converters and middlewares are defined."""

from __future__ import annotations

import inspect
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from aioqueue.definitions import _signature
from aioqueue.definitions._decorators import ImplementDecorator, JobDecorator
from aioqueue.definitions._job_options import (
    declared_options,
    read_completion_middlewares,
    read_middlewares,
    read_type_options,
)
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._names import check_prefix
from aioqueue.definitions._registered import Around, Registered
from aioqueue.definitions._resources import Resource, ResourceScope
from aioqueue.definitions._schedules import read_registry_name, read_schedule
from aioqueue.errors import RegistrationError
from aioqueue.vocabulary._codec import Converter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._decorators import DeclareOptions, ImplementOptions, JobOptions
    from aioqueue.definitions._middleware import CompletionMiddleware, Middleware
    from aioqueue.definitions._resources import Scope
    from aioqueue.vocabulary._schedules import CatchUp, NewSchedule, Overlap

__all__ = ["Registry"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

AnyJobType = JobType[..., Any, Any]


class Registry:
    """Holds the job types of a program, or of a part of it (`include` puts parts together).

    Arguments:
        prefix: Before the names of all types defined here, such as `"site."`. Names are fixed where they're defined.
        name: To whom its schedules belong; by default the prefix without what it ends with, `"site"`.
        middlewares: Around every attempt of the types defined here or included; the first is outermost.
        completion_middlewares: Around every block of `attempt.completion()` of these types, in its transaction, once the job's
            row is locked: `@asynccontextmanager async def m(attempt, tx)`, with one `yield`. The first is outermost.
        replace: Whether a later function takes the place of an earlier one of the same name: for notebooks, where a cell
            is changed and run again. Otherwise only the very same one may be registered again, as a reload does.

    Raises:
        RegistrationError: The prefix can't be part of a name, or the name isn't one.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        middlewares: Sequence[Middleware] = (),
        completion_middlewares: Sequence[CompletionMiddleware] = (),
        replace: bool = False,
    ) -> None:
        self._prefix = check_prefix(prefix)
        around = Around(read_middlewares(middlewares), read_completion_middlewares(completion_middlewares))
        self._registered = Registered(read_registry_name(name, prefix), around, replace=replace)
        self._converters: dict[type, Converter] = {}

    @property
    def name(self) -> str | None:
        """To whom its schedules belong; None for one with neither a name nor a prefix, which can't have any."""
        return self._registered.name

    @property
    def types(self) -> Mapping[str, AnyJobType]:
        """Every job type by its name, and by each of its aliases."""
        return MappingProxyType(self._registered.types)

    @property
    def runnable(self) -> Mapping[str, AnyJobType]:
        """Every job type that has a handler here, by its name, and by each of its aliases."""
        return {name: each for name, each in self._registered.types.items() if not each.declared_only}

    @property
    def declared(self) -> frozenset[str]:
        """Names and aliases of job types without a handler here: of those whose jobs others run, or that wait for an answer."""
        return frozenset(name for name, each in self._registered.types.items() if each.declared_only)

    @property
    def schedules(self) -> Sequence[NewSchedule]:
        """Every schedule that is defined here or included, as workers store it: its name begins with this registry's.

        Raises:
            RegistrationError: Some are included, and this registry has neither a name nor a prefix.
        """
        return self._registered.schedules()

    def middlewares_of(self, job_type: AnyJobType) -> tuple[Middleware, ...]:
        """What is around an attempt of this type, from the outside in: of the including registries, of its own, its own."""
        return (*self._registered.around[job_type.name].attempts, *job_type.middlewares)

    def completion_middlewares_of(self, job_type: AnyJobType) -> tuple[CompletionMiddleware, ...]:
        """What is around a completing transaction of this type, from the outside in: of the including registries, its own's."""
        return self._registered.around[job_type.name].completions

    # -- defining ---------------------------------------------------------------------------------------------------

    @overload
    def job(
        self, function: Callable[P, Coroutine[Any, Any, Call[R]]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, Call[R]]]]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> JobType[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def job(self, function: Callable[P, Call[R]], /) -> JobType[P, R, Callable[P, Call[R]]]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> JobType[P, R, Callable[P, R]]: ...
    @overload
    def job(self, /, **options: Unpack[JobOptions]) -> JobDecorator: ...
    def job(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a job type of a function: `async def`, or `def`, which runs in a thread. Bare, or called with options.

        Arguments:
            name: Instead of the function's own; the prefix comes before it.
            aliases: Older full names that are still run: without the prefix.
            retry: A policy; by default the worker's.
            timeout: Seconds or timedelta for one attempt.
            priority: 1 (most urgent) to 4; by default 2.
            expires: Seconds or timedelta after it's due within which it must start.
            keep: Seconds or timedelta that a job is kept after the end of its chain; by default the worker's retention says.
            tags: For every job of the type.
            middlewares: Around each attempt, within the registry's; the first is outermost.
            max_reschedules: How often one job may be rescheduled; by default the worker's.
            concurrency: How many of its jobs one worker runs at once, at most; by default as many as it has slots.
            lease: Seconds or timedelta, at least 1 second: how long a lease of its jobs lives without being renewed, and so
                how long they wait when their worker was killed; by default the worker's. How long they run is no matter.
            phases: Names of its phases, in order, which `current_attempt().phase` runs: a later attempt goes on behind those
                that have completed.
            capture_logs: Whether what its handler logs is kept with the job, and shown by `aioqueue jobs logs`.
            executor: `"process"` runs a `def` handler in a process of its own, by its import name: a timeout or a cancel ends
                it, and when it crashes it's this job alone that has failed. By default `"thread"`.
            dry_run: Whether its jobs may be run dry: its handler looks at `current_attempt().dry_run`, and leaves out what is
                seen outside.
            limit: `Limit(3, by="tenant_id")`: how many of its jobs run at once in all workers; or `"stripe"`, the name of a
                limit that types share, which `client.limits.put` stores; or both, as a tuple.
            rate: `Rate(100, per=timedelta(minutes=1))`: how many of its jobs start in a time, in all workers.
            sequence_by: The name of an argument, or else of a field of the metadata: jobs with the same value run one at a
                time, in the order of their inserts. An `InSequence` says more.
            fairness_by: The name of one, too: the values that have due jobs take turns.

        Returns:
            The job type.

        Raises:
            RegistrationError: The function, its name or an annotation can't be a job's; with the way out.
            ConfigurationError: An option is out of its range.
        """
        return self._define(function, options, sys._getframe(1), declared_only=False)

    @overload
    def declare(
        self, function: Callable[P, Coroutine[Any, Any, Call[R]]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, Call[R]]]]: ...
    @overload
    def declare(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def declare(self, function: Callable[P, Call[R]], /) -> JobType[P, R, Callable[P, Call[R]]]: ...
    @overload
    def declare(self, function: Callable[P, R], /) -> JobType[P, R, Callable[P, R]]: ...
    @overload
    def declare(self, /, **options: Unpack[DeclareOptions]) -> JobDecorator: ...
    def declare(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a job type of a signature alone: for programs that enqueue what others run (`implement`).

        Arguments, Returns, Raises: as `job`, without what is only for whoever runs it.
        """
        return self._define(function, options, sys._getframe(1), declared_only=True)

    def implement(self, declared: JobType[P, R, Any], /, **options: Unpack[ImplementOptions]) -> ImplementDecorator[P, R]:
        """Give a declared type its handler: `@registry.implement(charge)`.

        Arguments:
            declared: What `declare` made, in this registry or another.
            options: As `job`'s; what isn't given is as declared.

        Returns:
            A decorator, for a function with the same parameters and result.

        Raises:
            RegistrationError: It wasn't declared, or the signature isn't the declared one.
        """
        if not isinstance(declared, JobType) or not declared.declared_only:
            raise RegistrationError(f"{declared!r} has a handler already: implement() takes what registry.declare made")
        frame = sys._getframe(1)
        given: dict[str, Any] = {**declared_options(declared), **options}

        def make(function: Callable[..., Any]) -> AnyJobType:
            made = self._make(function, declared.name, given, _locals(frame), implements=declared)
            _refuse_other_signature(declared, made)
            self._registered.add(made)
            return made

        return ImplementDecorator(make)

    def _define(self, function: Callable[..., Any] | None, options: dict[str, Any], frame: Any, *, declared_only: bool) -> Any:
        def make(function: Callable[..., Any]) -> AnyJobType:
            _signature.refuse_function(function)
            name = self._prefix + (options.get("name") or _signature.read_name(function))
            made = self._make(function, name, options, _locals(frame), declared_only=declared_only)
            self._registered.add(made)
            return made

        return JobDecorator(make) if function is None else make(function)

    def _make(
        self,
        function: Callable[..., Any],
        name: str,
        given: Mapping[str, Any],
        namespace: Mapping[str, Any],
        *,
        declared_only: bool = False,
        implements: AnyJobType | None = None,
    ) -> AnyJobType:
        _signature.refuse_function(function)
        options = read_type_options(
            name, given, converters=self._converters, declared_only=declared_only, implements=implements
        )
        return JobType(function, name, options, namespace)

    def schedule(
        self,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        catch_up: CatchUp = "latest",
        grace: float | timedelta = 3600,
        catch_up_limit: int = 100,
        overlap: Overlap = "allow",
    ) -> None:
        """Have a call enqueued again and again, by the workers that serve this registry as a whole.

        Each tick, which is one time at which it's due, is enqueued once, however many workers there are.

        Arguments:
            call: Of which each tick enqueues a job with an id of its own; its `job.nominal_time` says which tick it's for.
                Neither `at=` and `id=` nor outputs of other calls can be in it.
            cron: When, as an expression: five fields, six with seconds first, or a name such as `@daily`. Or:
            every: Seconds or timedelta, at least 1 second, from one tick to the next, counted from when it's first stored.
            timezone: Of the expression, such as `"Europe/Berlin"`.
            name: By which it's known, within this registry; by default the name of the call's job type.
            catch_up: What becomes of ticks that were missed while no worker ran: of `"latest"` the newest is enqueued, if it's
                late by `grace` at most; of `"none"` none is; of `"all"` each, the newest `catch_up_limit` of them.
            grace: Seconds or timedelta.
            catch_up_limit: How many, from 1 to 1,000.
            overlap: `"skip"` leaves out ticks while the chain of the one before hasn't ended.

        Raises:
            RegistrationError: This registry has neither a name nor a prefix, or the schedule's name is taken.
            ConflictingOptions: Both or neither of `cron` and `every` are given, or the call can't be a schedule's.
            ConfigurationError: The expression can't be read or would never fire, there is no such time zone, something is out
                of its range, or the extra `cron` isn't installed, which expressions need.
        """
        self._registered.add_schedule(
            read_schedule(
                call,
                name,
                cron=cron,
                every=every,
                timezone=timezone,
                catch_up=catch_up,
                grace=grace,
                catch_up_limit=catch_up_limit,
                overlap=overlap,
            )
        )

    # -- putting together ------------------------------------------------------------------------------------------

    def include(self, other: Registry) -> None:
        """Take in another registry's types and schedules, those it has and those it will get. Its middlewares run within these.

        Arguments:
            other: Its names stay as they are.

        Raises:
            RegistrationError: A name is taken, or the registries would include each other.
        """
        self._registered.include(other._registered)

    def check(self) -> None:
        """Resolve every annotation now; otherwise that happens at first use, or when a worker starts.

        Raises:
            RegistrationError: One can't be resolved, or has no converter; or there are schedules of included registries, and
                this one has no name.
        """
        self._registered.schedules()
        for job_type in dict.fromkeys(self._registered.types.values()):
            job_type.check()

    # -- what handlers use ------------------------------------------------------------------------------------------

    def converter(
        self,
        type: type[T],  # noqa: A002 - positional: the name is only shown, and this is what it is
        /,
        *,
        encode: Callable[[T], object],
        decode: Callable[[Any], T],
    ) -> None:
        """Teach values of a type to be stored: before the job types that use it are defined here.

        Arguments:
            type: The class, exactly: not its subclasses.
            encode: Gives JSON values (dict, list, str, int, float, bool, None).
            decode: Makes the value of them again; a ValueError says that they don't fit.

        Raises:
            RegistrationError: It has one, or isn't a class.
        """
        if not inspect.isclass(type):
            raise RegistrationError(f"a converter is for a class, not {type!r}")
        if type in self._converters:
            raise RegistrationError(f"{type.__qualname__} has a converter already")
        self._converters[type] = Converter(encode, decode)

    @overload
    def resource(self, factory: Callable[[], AsyncIterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, /, *, scope: Scope = "worker") -> Callable[[Callable[[], AsyncIterator[T]]], Resource[T]]: ...
    def resource(self, factory: Callable[[], AsyncIterator[Any]] | None = None, /, *, scope: Scope = "worker") -> Any:
        """Make a resource of an async generator function that yields once: what follows the `yield` closes it.

        Arguments:
            scope: `"worker"`: opened once per worker, at first use; `"attempt"`: once per attempt.

        Returns:
            A typed key: `client = await http.get()` in handlers, middlewares and other resources.

        Raises:
            RegistrationError: It isn't such a function.
        """
        if scope not in ("worker", "attempt"):
            raise RegistrationError(f'scope must be "worker" or "attempt", not {scope!r}')

        def make(factory: Callable[[], AsyncIterator[T]]) -> Resource[T]:
            if not inspect.isasyncgenfunction(factory):
                raise RegistrationError(f"{factory!r} must be an async generator function: async def with one `yield`")
            if any(each.default is each.empty for each in inspect.signature(factory).parameters.values()):
                raise RegistrationError(f"{factory.__qualname__} takes parameters, and nothing would pass them")
            return Resource(factory, scope)

        return make if factory is None else make(factory)

    def resource_scope(self, resources: Mapping[Resource[Any], Any] | None = None) -> ResourceScope:
        """Make resources reachable without a worker: `async with registry.resource_scope({http: fake}): await job.fn()`.

        Arguments:
            resources: Values to be given instead of opening anything.
        """
        return ResourceScope(resources)

    def __repr__(self) -> str:
        return f"<Registry {self._prefix!r}: {', '.join(sorted(self._registered.types)) or 'empty'}>"


def _locals(frame: Any) -> Mapping[str, Any]:
    """Names of the function in which a job is defined, so that its local classes can be annotations."""
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _refuse_other_signature(declared: AnyJobType, made: AnyJobType) -> None:
    try:
        ours, theirs = declared.signature(), made.signature()
    except NameError:  # compared as text while a type can't be resolved yet
        ours, theirs = inspect.signature(declared.fn), inspect.signature(made.fn)
    if _comparable(ours) != _comparable(theirs):
        raise RegistrationError(f"{made.name}: the handler's signature {theirs} isn't the declared one, {ours}")


def _comparable(signature: inspect.Signature) -> inspect.Signature:
    """A signature as its callers see it: whether the handler continues its chain is nothing to them."""
    return signature.replace(return_annotation=_signature.result_of(signature.return_annotation))
