"""Job types that are declared in one place and get their handler in another."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue import JobType, RegistrationError, Registry, Retry

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")


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
