"""The decorators' types: four overloads each, in this order, since the first that matches counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import timedelta

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._gates import InSequence, Limit, Rate
    from aioqueue.definitions._import_names import Executor
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._middleware import Middleware
    from aioqueue.vocabulary._job import Priority
    from aioqueue.vocabulary._retry import Retry

__all__ = ["DeclareOptions", "ImplementDecorator", "ImplementOptions", "JobDecorator", "JobOptions"]

P = ParamSpec("P")
R = TypeVar("R")


class DeclareOptions(TypedDict, total=False):
    """The options of `Registry.declare`, whose handler is elsewhere; `Registry.job` says what each is."""

    name: str | None
    aliases: Iterable[str]
    retry: Retry | None
    timeout: float | timedelta | None
    priority: Priority
    expires: float | timedelta | None
    keep: float | timedelta | None
    tags: Iterable[str]
    dry_run: bool
    limit: Limit | str | tuple[Limit | str, ...] | None
    rate: Rate | None
    sequence_by: str | InSequence | None
    fairness_by: str | None


class JobOptions(DeclareOptions, total=False):
    """The options of `Registry.job`, which says what each is."""

    middlewares: Sequence[Middleware]
    max_reschedules: int | None
    concurrency: int | None
    lease: float | timedelta | None
    phases: Iterable[str]
    capture_logs: bool
    executor: Executor


class ImplementOptions(TypedDict, total=False):
    """The options of `Registry.implement`; what isn't given is as declared."""

    aliases: Iterable[str]
    retry: Retry | None
    timeout: float | timedelta | None
    middlewares: Sequence[Middleware]
    max_reschedules: int | None
    concurrency: int | None
    lease: float | timedelta | None
    phases: Iterable[str]
    capture_logs: bool
    executor: Executor
    dry_run: bool
    limit: Limit | str | tuple[Limit | str, ...] | None
    rate: Rate | None
    fairness_by: str | None


class JobDecorator:
    """What `registry.job(...)` and `registry.declare(...)` give when they're called with options."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobType[..., Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Call[R]]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, Call[R]]]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(self, function: Callable[P, Call[R]], /) -> JobType[P, R, Callable[P, Call[R]]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R, Callable[P, R]]: ...
    def __call__(self, function: Callable[..., Any], /) -> JobType[..., Any, Any]:
        """Make the job type of a function: the same four overloads as `Registry.job`."""
        return self._make(function)


class ImplementDecorator(Generic[P, R]):
    """What `registry.implement(declared)` gives: takes a function of exactly the declared signature."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobType[..., Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Call[R]]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, Call[R]]]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobType[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(self, function: Callable[P, Call[R]], /) -> JobType[P, R, Callable[P, Call[R]]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R, Callable[P, R]]: ...
    def __call__(self, function: Callable[..., Any], /) -> JobType[..., Any, Any]:
        """Make the job type that can be run of a function: the same four overloads as `Registry.job`."""
        return self._make(function)
