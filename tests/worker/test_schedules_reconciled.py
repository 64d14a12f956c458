"""Schedules that stand in code: those of the newest code that live workers have are the ones that tick."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, RegistrationError, Registry, Worker
from aioqueue.worker import _schedules_reconciled
from tests.worker.scheduling import Troubled, decided, definition, known, stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

ran: list[str] = []
live: list[Troubled] = []
"""The stores of those that say what their code schedules."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done each half a minute is done all the time; the store's clock says what lives."""
    monkeypatch.setattr(_schedules_reconciled, "EVERY_SECONDS", 0.005)
    ran.clear()
    live.clear()


@pytest.fixture
async def store() -> AsyncIterator[Troubled]:
    store = Troubled()
    async with Client(store):
        yield store


def code(version: str, **schedules: float) -> Registry:
    """A state of a service's code: its schedules are these, with their intervals."""
    registry = Registry(name="shop")

    @registry.job
    async def work(place: str) -> None:
        ran.append(place)

    for name, every in schedules.items():
        registry.schedule(work(f"{version} {name}"), name=name, every=every)
    return registry


OLD = {"kept": 60.0, "changed": 60.0, "removed": 60.0}
NEW = {"kept": 60.0, "changed": 30.0, "added": 60.0}


@asynccontextmanager
async def running(store: Troubled, registry: Registry, **settings: Any) -> AsyncIterator[Worker]:
    """A worker of its own process, as far as the store can tell."""
    own = Troubled(database=store.database)
    settings = {"lease": 200_000, "poll_interval": 60, "grace": 5, **settings}
    async with Client(own) as client, Worker(client, registry, **settings) as worker:
        live.append(own)
        try:
            yield worker
        finally:
            live.remove(own)


async def scheduled(store: Troubled) -> dict[str, float | None]:
    page = await store.list_schedules(100)
    return {each.name.removeprefix("shop/"): each.definition.every for each in page.schedules}


async def until_scheduled(store: Troubled, schedules: dict[str, float]) -> None:
    while await scheduled(store) != schedules:
        await asyncio.sleep(0.001)


async def a_while() -> None:
    """Until each worker that lives has said a few times what it has."""
    said = {each: each.called["reconcile_schedules"] for each in live}
    while any(each.called["reconcile_schedules"] < count + 3 for each, count in said.items() if each in live):
        await asyncio.sleep(0.001)


async def test_they_are_stored_and_tick(store: Troubled, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioqueue")
    async with running(store, code("1", **OLD), name="w"):
        await until_scheduled(store, OLD)
        await known(store, "shop/kept")
        store.pass_time(61)
        await decided(store, "shop/kept")
        while "1 kept" not in ran:
            await asyncio.sleep(0)
        assert (await stored(store, "shop/kept")).definition.owner == "shop"
    told = [record for record in caplog.records if record.event.startswith("schedule.re")]
    assert [(record.event, record.registry, record.changed) for record in told] == [
        ("schedule.reconciled", "shop", ["shop/changed", "shop/kept", "shop/removed"])
    ]


async def test_what_was_removed_stops_and_other_services_are_left_alone(store: Troubled) -> None:
    other = Registry(name="other")

    @other.job
    async def tidy() -> None: ...

    other.schedule(tidy(), every=60.0)
    await store.put_schedules([definition(tidy(), "by hand")])
    theirs: dict[str, float] = {"other/tidy": 60.0, "by hand": 60.0}
    async with running(store, other), running(store, code("1", **OLD)):
        await until_scheduled(store, {**OLD, **theirs})
    async with running(store, code("2", **NEW)):
        await until_scheduled(store, {**NEW, **theirs})
        await known(store, "shop/changed")
        ran.clear()
        store.pass_time(121)
        for name in ("shop/kept", "shop/changed", "shop/added", "other/tidy", "by hand"):
            await decided(store, name)
        while len(ran) < 3:
            await asyncio.sleep(0)
        assert sorted(ran) == ["2 added", "2 changed", "2 kept"]
    async with running(store, code("3")):
        await until_scheduled(store, theirs)


async def test_a_rolling_deploy_goes_from_the_old_to_the_new_once(store: Troubled, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever starts again in between: also a worker of the old code."""
    caplog.set_level(logging.INFO, "aioqueue")
    async with AsyncExitStack() as old, AsyncExitStack() as new:
        for number in range(3):
            await old.enter_async_context(running(store, code("1", **OLD), name=f"old{number}"))
        await until_scheduled(store, OLD)
        await new.enter_async_context(running(store, code("2", **NEW), name="new"))
        await until_scheduled(store, NEW)
        since = {name: (await stored(store, f"shop/{name}")).since for name in NEW}
        async with running(store, code("1", **OLD), name="crashed and back"):
            await a_while()
        assert await scheduled(store) == NEW
        await old.aclose()
        await a_while()
        assert await scheduled(store) == NEW
        assert {name: (await stored(store, f"shop/{name}")).since for name in NEW} == since
    superseded = [record.worker for record in caplog.records if record.event == "schedule.superseded"]
    assert sorted(superseded) == ["crashed and back", "old0", "old1", "old2"]


async def test_a_rollback_comes_about_once_the_newer_code_is_gone(store: Troubled, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioqueue")
    async with running(store, code("1", **OLD)):
        await until_scheduled(store, OLD)
    async with running(store, code("2", **NEW)):
        await until_scheduled(store, NEW)
    async with running(store, code("1", **OLD), name="back"):
        await a_while()
        assert await scheduled(store) == NEW
        store.advance(91)
        await until_scheduled(store, OLD)
        while not [record for record in caplog.records if record.event == "schedule.current"]:
            await asyncio.sleep(0.001)
    said = [record.event for record in caplog.records if record.event.startswith("schedule.") and record.worker == "back"]
    assert [each for each in said if each != "schedule.ticked"] == [
        "schedule.superseded",
        "schedule.current",
        "schedule.reconciled",
    ]


async def test_a_number_of_the_release_decides_at_once(store: Troubled) -> None:
    async with running(store, code("2", **NEW), release=8), running(store, code("1", **OLD), release=7):
        await until_scheduled(store, NEW)
        await a_while()
        assert await scheduled(store) == NEW
        async with running(store, code("1", **OLD), release=9):  # a rollback while the newer one still lives
            await until_scheduled(store, OLD)
            await a_while()
            assert await scheduled(store) == OLD


async def test_a_name_that_somebody_else_has_taken_is_told_of(store: Troubled, caplog: pytest.LogCaptureFixture) -> None:
    """Or its schedule would be silent, and nobody knew. Once the name is free, it's stored."""

    @Registry(name="other").job
    async def tidy() -> None: ...

    await store.put_schedules([definition(tidy(), "shop/kept")])
    async with running(store, code("1", **OLD), name="w") as worker:
        while "reconcile" not in worker.health().troubles:
            await asyncio.sleep(0.001)
        assert "shop/kept" in worker.health().troubles["reconcile"]
        assert worker.health().ready
        await a_while()
        await store.delete_schedules(["shop/kept"])
        while "reconcile" in worker.health().troubles:
            await asyncio.sleep(0.001)
        assert (await stored(store, "shop/kept")).definition.owner == "shop"
    told = [(record.event, record.names) for record in caplog.records if record.levelno >= logging.ERROR]
    assert told == [("schedule.name_taken", ["shop/kept"])]


async def test_a_release_that_is_there_with_other_schedules_is_refused(
    store: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(store, code("1", **OLD), release=7):
        await until_scheduled(store, OLD)
        async with running(store, code("2", **NEW), release=7, name="w2") as refused:
            while "reconcile" not in refused.health().troubles:
                await asyncio.sleep(0.001)
            await a_while()
            health = refused.health()
            assert (health.ready, health.ok) == (True, True)
            assert "give a higher number" in health.troubles["reconcile"]
            assert await scheduled(store) == OLD
    told = [(record.event, record.worker) for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == [("schedule.release_refused", "w2")]


async def test_workers_of_a_few_types_and_nameless_registries_say_nothing(store: Troubled) -> None:
    nameless = Registry()

    @nameless.job
    async def work(place: str) -> None: ...

    async with running(store, code("1", **OLD)):
        await until_scheduled(store, OLD)
    store.advance(91)
    async with (
        running(store, code("2", **NEW), types=["work"], poll_interval=0.01),
        running(store, nameless, poll_interval=0.01),
    ):
        stores = list(live)
        while any(each.called["next_due"] < 10 for each in stores):
            await asyncio.sleep(0.001)
        store.pass_time(61)
        await decided(store, "shop/kept")
    assert [each.called["reconcile_schedules"] for each in stores] == [0, 0]
    assert await scheduled(store) == OLD


async def test_a_nameless_registry_cannot_take_in_schedules(store: Troubled) -> None:
    outer = Registry()
    outer.include(code("1", **OLD))
    with pytest.raises(RegistrationError, match="give it one"):
        async with running(store, outer):
            pass


async def test_what_is_included_belongs_to_the_registry_that_is_served(store: Troubled) -> None:
    outer = Registry(name="outer")
    outer.include(code("1", kept=60.0))
    async with running(store, outer):
        await until_scheduled(store, {"outer/kept": 60.0})


async def test_one_that_cannot_be_stored_is_tried_again(store: Troubled) -> None:
    async with Client(Troubled(database=store.database)) as client:
        client.store.troubles_of["reconcile_schedules"] = [RuntimeError("odd"), asyncio.Event()]
        async with Worker(client, code("1", **OLD), lease=200_000, grace=5) as worker:
            while "reconcile" not in worker.health().troubles:
                await asyncio.sleep(0)
            assert worker.health().ready
            while client.store.troubles_of["reconcile_schedules"]:
                await asyncio.sleep(0)
    async with running(store, code("1", **OLD)):
        await until_scheduled(store, OLD)


async def test_a_worker_that_runs_once_stores_them_too(store: Troubled) -> None:
    async with Client(Troubled(database=store.database)) as client:
        for minute in range(3):
            await Worker(client, code("1", **OLD), lease=200_000).run_once()
            assert await scheduled(store) == OLD
            assert len(ran) == 3 * minute
            store.advance(61)
