"""Registries: names, options, outputs, resources, putting registries together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from aioqueue import ConfigurationError, RegistrationError, Registry, Retry
from tests.unit.handlers import another, middleware, plain

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")


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
    where = r"handlers\.{} \(.*handlers\.py, line {}\)"
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
    job = registry.job(retry=retry, timeout=5, priority=1, expires=7, keep=timedelta(days=1), tags=["a", "a"],
                       middlewares=[middleware], max_reschedules=4)(plain)  # fmt: skip
    assert (job.retry, job.timeout, job.priority, job.expires, job.keep) == (retry, 5.0, 1, 7.0, 86_400.0)
    assert (job.tags, job.middlewares, job.max_reschedules) == (("a",), (middleware,), 4)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"retry": 3},
    {"timeout": 0},
    {"timeout": -1},
    {"priority": 9},
    {"expires": -1},
    {"keep": "a day"},
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
