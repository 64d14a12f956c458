"""Registries: names, what can be a job, declarations and handlers, putting registries together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pytest

from aioqueue import ArgumentsError, Call, ConfigurationError, JobType, RegistrationError, Registry, Retry

if TYPE_CHECKING:
    from nowhere import Never_Imported

T = TypeVar("T")

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")


@pytest.fixture
def registry() -> Registry:
    return Registry("site.")


async def plain(a: int, b: str = "x") -> str:
    """Say something."""
    return b * a


async def another(a: int) -> str:
    """Say something else."""
    return str(a)


async def middleware(attempt: Any, call_next: Any) -> object:
    return await call_next()


# -- names --------------------------------------------------------------------------------------------------------------


def test_the_name_is_the_prefix_and_the_functions(registry: Registry) -> None:
    job = registry.job(plain)
    assert job.name == "site.plain"
    assert registry.types == {"site.plain": job}
    assert registry.runnable == {"site.plain": job}
    assert registry.job(name="other")(plain).name == "site.other"


def test_a_job_type_keeps_the_function_and_looks_like_it(registry: Registry) -> None:
    job = registry.job(plain)
    assert job.fn is plain
    assert asyncio.run(job.fn(2, b="y")) == "yy"
    assert job.__doc__ == "Say something."
    assert job.__name__ == "plain"
    assert repr(job) == "<JobType site.plain (async) (a: 'int', b: 'str' = 'x') -> 'str'>"
    assert job.is_async
    assert not job.declared_only


def test_a_def_is_not_async(registry: Registry) -> None:
    @registry.job
    def add(a: int, b: int) -> int:
        return a + b

    assert not add.is_async
    assert add.fn(1, 2) == 3


@pytest.mark.parametrize("prefix", ["a.", "a/b:", "a-", "A_", "x"])
def test_prefixes(prefix: str) -> None:
    assert Registry(prefix).job(plain).name == f"{prefix}plain"


@pytest.mark.parametrize("prefix", [".", "a b.", "1", "a..", "ä.", 5])
def test_bad_prefixes_are_refused(prefix: Any) -> None:
    with pytest.raises(RegistrationError, match="prefix"):
        Registry(prefix)


@pytest.mark.parametrize("name", ["a b", "ä", "a.", "a..b", "x" * 200, "a\n", "a\0"])
def test_bad_names_are_refused(registry: Registry, name: str) -> None:
    with pytest.raises(RegistrationError, match="can't be a name"):
        registry.job(name=name)(plain)
    with pytest.raises(RegistrationError, match="can't be a name"):
        registry.job(aliases=(name * 2,))(plain)


def test_a_name_is_given_once(registry: Registry) -> None:
    registry.job(plain)
    first, second = plain.__code__.co_firstlineno, another.__code__.co_firstlineno
    where = r"test_registry\.{} \(.*test_registry\.py, line {}\)"
    taken = f"taken by .*{where.format('plain', first)}, so .*{where.format('another', second)} can't"
    with pytest.raises(RegistrationError, match=taken):
        registry.job(name="plain")(another)
    with pytest.raises(RegistrationError, match="taken"):
        registry.job(retry=Retry(max_attempts=2))(plain)
    with pytest.raises(RegistrationError, match="taken"):
        registry.job(name="other", aliases=("site.plain",))(plain)
    assert list(registry.types) == ["site.plain"]


def test_aliases_are_full_names(registry: Registry) -> None:
    job = registry.job(aliases=("old", "older.name", "old"))(plain)
    assert job.aliases == ("old", "older.name")
    assert registry.types == {"site.plain": job, "old": job, "older.name": job}
    with pytest.raises(RegistrationError, match="several names"):
        registry.job(name="b", aliases="old")(plain)


def test_the_types_cannot_be_changed_from_outside(registry: Registry) -> None:
    with pytest.raises(TypeError):
        registry.types["a"] = None


# -- options ------------------------------------------------------------------------------------------------------------


def test_options(registry: Registry) -> None:
    retry = Retry(max_attempts=3)
    job = registry.job(retry=retry, timeout=5, priority=1, expires=7, tags=["a", "a"], middlewares=[middleware],
                       max_reschedules=4)(plain)  # fmt: skip
    assert (job.retry, job.timeout, job.priority, job.expires) == (retry, 5.0, 1, 7.0)
    assert (job.tags, job.middlewares, job.max_reschedules) == (("a",), (middleware,), 4)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"retry": 3},
    {"timeout": 0},
    {"timeout": -1},
    {"priority": 9},
    {"expires": -1},
    {"tags": "a"},
    {"middlewares": [5]},
    {"max_reschedules": -1},
    {"max_reschedules": True},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=repr)
def test_bad_options_are_refused(registry: Registry, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        registry.job(**options)(plain)
    assert not registry.types


def test_unknown_options_are_refused(registry: Registry) -> None:
    with pytest.raises(TypeError, match="retries"):
        registry.job(retries=3)(plain)
    with pytest.raises(TypeError, match="middlewares"):
        registry.declare(middlewares=[])(plain)


# -- what can't be a job ------------------------------------------------------------------------------------------------


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


async def continues(a: int) -> Call[int]:
    raise NotImplementedError


async def may_continue(a: int) -> int | Call[int]:
    raise NotImplementedError


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
    (continues, "isn't supported yet"),
    (may_continue, "isn't supported yet"),
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


# -- outputs ------------------------------------------------------------------------------------------------------------


def test_outputs_round_trip(registry: Registry) -> None:
    job = registry.job(plain)
    assert job.decode_output(job.encode_output("é")) == "é"
    with pytest.raises(ValueError, match="output"):
        job.encode_output(5)
    with pytest.raises(ValueError, match="output"):
        job.encode_output(None)
    with pytest.raises(ValueError, match="output"):
        job.decode_output(b"5")

    @registry.job
    async def nothing() -> None: ...

    assert nothing.encode_output(None) == b"null"
    assert nothing.decode_output(b"null") is None


# -- declare and implement ----------------------------------------------------------------------------------------------


@pytest.fixture
def declared(registry: Registry) -> JobType[..., Any, Any]:
    @registry.declare(retry=Retry(max_attempts=2), tags=["t"], timeout=3)
    async def charge(order: int, *, note: str = "") -> str: ...

    return charge


def test_a_declared_type_can_be_called_but_not_run(registry: Registry, declared: JobType[..., Any, Any]) -> None:
    assert declared.declared_only
    assert declared(1).arguments == {"order": 1}
    assert registry.types == {"site.charge": declared}
    assert registry.runnable == {}


def test_another_registry_implements_it(declared: JobType[..., Any, Any]) -> None:
    other = Registry("other.")

    @other.implement(declared, timeout=4)
    def handler(order: int, *, note: str = "") -> str:
        return note * order

    assert handler.name == "site.charge"
    assert other.runnable == {"site.charge": handler}
    assert (handler.retry, handler.tags, handler.timeout) == (declared.retry, ("t",), 4.0)
    assert handler.fn(2, note="a") == "aa"
    assert handler(1) == declared(1)


def test_the_same_registry_implements_it(registry: Registry, declared: JobType[..., Any, Any]) -> None:
    @registry.implement(declared)
    async def charge(order: int, *, note: str = "") -> str:
        return note

    assert registry.types == {"site.charge": charge}

    async def other(order: int, *, note: str = "") -> str:
        return f"{order}"

    with pytest.raises(RegistrationError, match="taken"):
        registry.implement(declared)(other)
    with pytest.raises(RegistrationError, match="taken"):
        registry.job(charge.fn)
    with pytest.raises(RegistrationError, match="has a handler already"):
        registry.implement(charge)


def test_declaration_and_handler_meet_by_include(registry: Registry, declared: JobType[..., Any, Any]) -> None:
    handlers = Registry()

    @handlers.implement(declared)
    async def charge(order: int, *, note: str = "") -> str:
        return note

    for first, second in ((registry, handlers), (handlers, registry)):
        app = Registry()
        app.include(first)
        app.include(second)
        assert app.runnable == {"site.charge": charge}


def test_a_handler_with_another_signature_is_refused(declared: JobType[..., Any, Any]) -> None:
    async def other_type(order: str, *, note: str = "") -> str: ...
    async def other_name(order_id: int, *, note: str = "") -> str: ...
    async def other_default(order: int, *, note: str = "x") -> str: ...
    async def other_result(order: int, *, note: str = "") -> int: ...
    async def more(order: int, *, note: str = "", extra: int = 0) -> str: ...

    for handler in (other_type, other_name, other_default, other_result, more):
        registry = Registry()
        with pytest.raises(RegistrationError, match="isn't the declared one"):
            registry.implement(declared)(handler)
        assert not registry.types


# -- include ------------------------------------------------------------------------------------------------------------


def test_include_takes_what_is_there_and_what_will_come() -> None:
    app, site, deep = Registry(), Registry("site."), Registry("deep.")
    before = site.job(plain)
    app.include(site)
    site.include(deep)
    app.include(site)  # twice is once
    after = deep.job(aliases=("old",))(plain)
    assert app.types == {"site.plain": before, "deep.plain": after, "old": after}


def test_include_refuses_taken_names_and_circles() -> None:
    app, site = Registry(), Registry()
    app.job(plain)
    site.job(plain)
    with pytest.raises(RegistrationError, match="taken"):
        app.include(site)
    with pytest.raises(RegistrationError, match="itself"):
        app.include(app)
    one, two, three = Registry(), Registry(), Registry()
    one.include(two)
    two.include(three)
    with pytest.raises(RegistrationError, match="itself"):
        three.include(one)


def test_a_later_name_that_an_including_registry_has_is_refused() -> None:
    app, site = Registry(), Registry()
    app.job(plain)
    app.include(site)
    with pytest.raises(RegistrationError, match="taken"):
        site.job(plain)
    assert not site.types


def test_middlewares_are_listed_from_the_outside_in() -> None:
    async def outer(attempt: Any, call_next: Any) -> object:
        return await call_next()

    async def inner(attempt: Any, call_next: Any) -> object:
        return await call_next()

    app, site = Registry(middlewares=[outer]), Registry(middlewares=[middleware])
    app.include(site)
    job = site.job(middlewares=[inner])(plain)
    assert site.middlewares_of(job) == (middleware, inner)
    assert app.middlewares_of(job) == (outer, middleware, inner)
    with pytest.raises(RegistrationError, match="isn't a middleware"):
        Registry(middlewares=["x"])


# -- resources ----------------------------------------------------------------------------------------------------------


def test_resources_are_async_generator_functions(registry: Registry) -> None:
    @registry.resource
    async def http() -> AsyncIterator[int]:
        """Open it."""
        yield 1

    assert http.scope == "worker"
    assert "http" in repr(http)
    assert http.__doc__ == "Open it."

    @registry.resource(scope="attempt")
    async def session() -> AsyncIterator[int]:
        yield 1

    assert session.scope == "attempt"

    async def needs(a: int) -> AsyncIterator[int]:
        yield a

    for wrong in (plain, needs, 5):
        with pytest.raises(RegistrationError):
            registry.resource(wrong)
    with pytest.raises(RegistrationError, match="scope"):
        registry.resource(scope="process")
