"""What can be a job, and what is refused with the way out: functions, parameters, annotations."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pytest

from aioqueue import ArgumentsError, RegistrationError, Registry
from tests.unit.handlers import plain

if TYPE_CHECKING:
    from nowhere import Never_Imported

T = TypeVar("T")

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")


class Holder:
    async def method(self, a: int) -> None: ...

    @staticmethod
    async def static(a: int) -> None: ...

    def __call__(self) -> None: ...


@overload
def overloaded(a: int) -> int: ...
@overload
def overloaded(a: str) -> str: ...
def overloaded(a: Any) -> Any:
    return a


def with_args(*a: int) -> None: ...
def with_kwargs(**a: int) -> None: ...
def positional_only(a: int, /) -> None: ...
def mutable(a: list[int] = []) -> None: ...  # noqa: B006 - on purpose
def mutable_dataclass(a: object = {"x": 1}) -> None: ...
def generic(a: T) -> T:
    return a


def generic_result(a: int) -> list[T]:
    raise NotImplementedError


def returns_awaitable(a: int) -> Awaitable[int]:
    raise NotImplementedError


def returns_coroutine(a: int) -> Coroutine[Any, Any, int]:
    raise NotImplementedError


@functools.wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return plain(*args, **kwargs)


async def agenerator(a: int) -> AsyncIterator[int]:
    yield a


def generator(a: int) -> Iterator[int]:
    yield a


class Unknown: ...


class Box(Generic[T]): ...


async def takes_unknown(a: list[Unknown]) -> None: ...
async def returns_unknown() -> Unknown:
    raise NotImplementedError


CANNOT: list[tuple[Any, str]] = [
    (Holder.method, "is a method"),
    (Holder().method, "is a method"),
    (Holder.static, "is a method"),
    (Holder.__dict__["static"], "is a method"),
    (Holder, "can't be a job: use a function"),
    (Holder(), "wrap the object's call in a function"),
    (5, "can't be a job: use a function"),
    (overloaded, "has overloads"),
    (lambda a: a, "has no name"),
    (functools.partial(plain, b="y"), "has no name"),
    (with_args, "take a list or tuple"),
    (with_kwargs, "take a dict or TypedDict"),
    (positional_only, "remove the `/`"),
    (mutable, "mutable default"),
    (mutable_dataclass, "mutable default"),
    (generic, "type variable"),
    (generic_result, "type variable"),
    (returns_awaitable, "make it async def"),
    (returns_coroutine, "make it async def"),
    (wrapped, "make the wrapper async def"),
    (agenerator, "return a list"),
    (generator, "return a list"),
    (functools.partial(Holder.method, None), "is a method"),
    (takes_unknown, r"parameter 'a': there is no converter for Unknown.*registry\.converter"),
    (returns_unknown, r"the result: there is no converter for Unknown"),
]


@pytest.mark.parametrize(("function", "reason"), CANNOT, ids=lambda each: getattr(each, "__qualname__", None))
def test_what_cannot_be_a_job_is_refused_with_the_way_out(registry: Registry, function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=reason):
        registry.job(function)
    assert not registry.types


def test_a_job_in_a_class_body_is_refused(registry: Registry) -> None:
    with pytest.raises(RegistrationError, match="is a method"):

        class _Service:
            @registry.job
            async def run(self, a: int) -> None: ...


def test_lambdas_and_partials_with_a_name(registry: Registry) -> None:
    job: Any = registry.job(name="partial")(functools.partial(plain, b="y"))
    assert job.name == "site.partial"
    assert job.is_async
    assert job(3).arguments == {"a": 3}
    with pytest.raises(ArgumentsError):
        job("3")
    assert registry.job(name="lambda_")(lambda: None)().arguments == {}


def test_an_async_wrapper_is_fine(registry: Registry) -> None:
    @functools.wraps(plain)
    async def around(*args: Any, **kwargs: Any) -> str:
        return await plain(*args, **kwargs)

    job: Any = registry.job(around)
    assert job(1, b="z").arguments == {"a": 1, "b": "z"}


def test_immutable_defaults_are_fine(registry: Registry) -> None:
    @registry.job
    async def job(a: tuple[int, ...] = (), b: frozenset[int] = frozenset(), c: str | None = None) -> None: ...

    assert job().arguments == {}


# -- annotations --------------------------------------------------------------------------------------------------------


def test_local_classes_can_be_annotations(registry: Registry) -> None:
    @dataclass
    class Local:
        a: int

    @registry.job
    async def job(local: Local) -> Local:
        return local

    assert job(Local(1)).arguments == {"local": Local(1)}


async def later(a: Defined_Later) -> None: ...  # noqa: F821 - on purpose


def test_annotations_are_resolved_at_first_use(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    job = registry.job(later)
    with pytest.raises(RegistrationError, match="can't be resolved"):
        job(1)
    with pytest.raises(RegistrationError, match="Defined_Later"):
        registry.check()
    monkeypatch.setitem(globals(), "Defined_Later", int)
    registry.check()
    assert job(1).arguments == {"a": 1}


def test_a_refusal_can_come_at_first_use_too(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.job(later)
    monkeypatch.setitem(globals(), "Defined_Later", Unknown)
    with pytest.raises(RegistrationError, match=r"site\.later: parameter 'a': there is no converter"):
        registry.check()


def test_types_imported_for_checking_only_are_explained(registry: Registry) -> None:
    @registry.job
    async def job(a: Never_Imported) -> None: ...

    with pytest.raises(RegistrationError, match="not only under `if TYPE_CHECKING:`"):
        job(1)


def test_without_annotations_json_is_taken_as_it_is(registry: Registry) -> None:
    @registry.job
    async def job(a, b=None):
        return a

    assert job({"x": [1]}).arguments == {"a": {"x": [1]}}
    with pytest.raises(ArgumentsError):
        job((1,))


# -- converters ---------------------------------------------------------------------------------------------------------


def test_converters(registry: Registry) -> None:
    registry.converter(Unknown, encode=lambda _: "u", decode=lambda _: Unknown())
    job = registry.job(takes_unknown)
    (value,) = job([Unknown()]).arguments["a"]
    assert isinstance(value, Unknown)
    with pytest.raises(RegistrationError, match="already"):
        registry.converter(Unknown, encode=lambda _: "u", decode=lambda _: Unknown())
    with pytest.raises(RegistrationError, match="class"):
        registry.converter(Box[int] | None, encode=str, decode=str)
