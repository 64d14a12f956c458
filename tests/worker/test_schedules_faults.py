"""What is wrong with one schedule, one tick or one statement about them stops nothing else, and costs little."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.errors import StoreUnavailable
from aioqueue.vocabulary._schedules import Tick
from aioqueue.worker import _schedules, _schedules_decided
from aioqueue.worker._backoff import Backoff
from tests.worker.insides import parts
from tests.worker.scheduling import Troubled, decided, definition, known, outcomes, stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def good() -> None: ...


@registry.job
async def bad() -> None: ...


@pytest.fixture
def store() -> Troubled:
    return Troubled()


@pytest.fixture
async def client(store: Troubled) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may take many seconds may take some tenths."""
    monkeypatch.setattr(_schedules_decided, "STATEMENT_SECONDS", 0.3)
    monkeypatch.setattr(_schedules, "STATEMENT_SECONDS", 0.3)
    monkeypatch.setattr(_schedules, "_DECISION_SECONDS", 0.5)


def worker(client: Client, **settings: Any) -> Worker:
    return Worker(client, registry, **{"grace": 5, "poll_interval": 60, "lease": 200_000, **settings})


GOOD = [f"good{number}" for number in range(20)]


def twenty_good(*others: Any) -> list[Any]:
    return [*(definition(good(), name) for name in GOOD), *others]


async def good_ones_tick(store: Troubled, ticks: int = 1) -> None:
    for name in GOOD:
        assert {each.outcome.name for each in await decided(store, name, ticks)} == {"ENQUEUED"}


async def test_a_job_that_the_database_refuses_is_taken_out_of_its_batch(client: Client, store: Troubled) -> None:
    """Its tick is recorded as skipped, with the reason, and its schedule goes on."""
    await store.put_schedules(twenty_good(definition(bad())))
    async with worker(client) as running:
        await known(store, "bad", *GOOD)
        store.refused.add("bad")
        store.pass_time(61)
        await good_ones_tick(store)
        await decided(store, "bad")
        assert await outcomes(store, "bad") == [("skipped", "the database refuses its job: a trigger says no", 1)]
        store.refused.clear()
        store.pass_time(60)
        await good_ones_tick(store, 2)
        await decided(store, "bad", 2)
        assert [each[0] for each in await outcomes(store, "bad")] == ["skipped", "enqueued"]
        assert running.health().ok


async def test_a_tick_whose_key_somebody_holds_is_put_off_and_goes_alone(
    client: Client, store: Troubled, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.worker._schedules_put_off._FIRST_SECONDS", 0.02)
    await store.put_schedules(twenty_good(definition(bad())))
    async with worker(client) as running:
        await known(store, "bad", *GOOD)
        store.contended.add("bad")
        store.pass_time(61)
        await good_ones_tick(store)
        while [each for each in store.batches if each == ["bad"]][:2] != [["bad"]] * 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        store.batches.clear()
        store.pass_time(60)
        await good_ones_tick(store, 2)
        assert all("bad" not in batch or batch == ["bad"] for batch in store.batches)
        assert running.health().ok
        store.contended.clear()
        await decided(store, "bad")
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.event, record.schedule) for record in told] == [("schedule.put_off", "bad")]
    assert "StoreContended" in told[0].message


@pytest.mark.parametrize(
    "what",
    [
        {"timezone": "Mars/Olympus", "cron": "* * * * *"},
        {"cron": "* * * * * * * bad"},
        {"template": b'{"from": "newer code"}'},
        {"template": b"no JSON"},
    ],
    ids=["zone", "expression", "newer", "unreadable"],
)
async def test_one_that_cannot_be_worked_out_stops_no_other_and_costs_little(
    client: Client, store: Troubled, caplog: pytest.LogCaptureFixture, what: dict[str, Any]
) -> None:
    """It's due all the while, and stays so; the main loop says so at each turn."""
    broken = replace(definition(good(), "broken", every=what.pop("every", 60.0)), **{"every": 60.0, **what})
    broken = replace(broken, every=None if broken.cron else 60.0)
    await store.put_schedules(twenty_good(broken))
    async with worker(client, poll_interval=0.01) as running:
        for minute in (1, 2):
            await known(store, *GOOD)
            store.pass_time(61)
            await good_ones_tick(store, minute)
        asked, looked = store.called["next_due"], store.called["due_schedules"]
        while store.called["next_due"] < asked + 60:
            await asyncio.sleep(0.001)
        assert store.called["due_schedules"] <= looked + 30
        assert (await stored(store, "broken")).ticks == ()
        assert running.health().ok
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.event, record.schedule) for record in told] == [("schedule.put_off", "broken")]


@pytest.mark.parametrize("fault", ["hanging", "away"])
async def test_a_tick_that_takes_others_with_it_does_so_once(
    client: Client,
    store: Troubled,
    hurried: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    """It hangs, or makes the database seem away. From then on it goes alone, and they go without it."""
    monkeypatch.setattr("aioqueue.worker._schedules_put_off._FIRST_SECONDS", 0.02)
    monkeypatch.setattr(_schedules, "_DECISION_SECONDS", 30)
    await store.put_schedules(twenty_good(definition(bad())))
    async with worker(client) as running:
        await known(store, "bad", *GOOD)
        at_fault: set[str] = getattr(store, fault)
        at_fault.add("bad")
        store.pass_time(61)
        await good_ones_tick(store)
        store.batches.clear()
        store.pass_time(60)
        await good_ones_tick(store, 2)
        assert all("bad" not in batch or batch == ["bad"] for batch in store.batches)
        while "schedule.put_off" not in [getattr(record, "event", "") for record in caplog.records]:
            await asyncio.sleep(0)
        at_fault.clear()
        await decided(store, "bad")
        while not running.health().ok:
            await asyncio.sleep(0)
    put_off = [record.schedule for record in caplog.records if getattr(record, "event", "") == "schedule.put_off"]
    assert put_off == ["bad"]


@pytest.mark.parametrize("verb", ["due_schedules", "recompute_schedules"])
async def test_a_statement_that_hangs_or_fails_is_tried_again(
    client: Client, store: Troubled, hurried: None, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.worker._schedules_reconciled._STATEMENT_SECONDS", 0.3)
    for module in ("_schedules", "_schedules_reconciled"):
        monkeypatch.setattr(f"aioqueue.worker.{module}.Backoff", lambda *_: Backoff(0.02, 0.1))
    store.troubles_of[verb] = [asyncio.Event(), StoreUnavailable("away"), RuntimeError("odd")]
    await store.put_schedules([definition(good())])
    async with worker(client) as running:
        while "schedules" not in running.health().troubles:
            await asyncio.sleep(0)
        assert running.health().ready
        await known(store, "good")
        store.pass_time(61)
        await decided(store, "good")
        while "schedules" in running.health().troubles or store.troubles_of[verb]:
            await asyncio.sleep(0.001)


async def test_ticks_are_decided_once_the_database_is_back(
    client: Client, store: Troubled, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails then is no single schedule's fault: none waits longer for it than the others, and it's one trouble."""
    await store.put_schedules(twenty_good())
    async with worker(client) as running:
        await known(store, *GOOD)

        async def away(ticks: Any) -> Any:
            store.batches.append([each.name for each in ticks])
            raise StoreUnavailable("away")

        monkeypatch.setattr(store, "tick", away)
        store.pass_time(61)
        while "schedules" not in running.health().troubles:
            await asyncio.sleep(0)
        monkeypatch.undo()
        await good_ones_tick(store)
        while not running.health().ok:
            await asyncio.sleep(0)
    told = [record.event for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["part.failing", "part.works_again"]


@pytest.mark.parametrize("fault", ["raises", "cancels", "hangs"])
async def test_an_enqueue_middleware_that_fails_for_one_fails_for_one(
    store: Troubled, hurried: None, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = True

    async def about_bad(jobs: Sequence[NewJob], call_next: Any) -> Sequence[Inserted]:
        if broken and jobs[0].type == "bad":
            if fault == "raises":
                raise RuntimeError("no tenant")
            if fault == "cancels":  # as something that it waits for was cancelled
                raise asyncio.CancelledError
            while True:  # nor does it end
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    if not broken:
                        raise
        inserted: Sequence[Inserted] = await call_next(jobs)
        return inserted

    async with Client(store, middlewares=[about_bad]) as client:
        await store.put_schedules(twenty_good(definition(bad())))
        async with worker(client) as running:
            await known(store, "bad", *GOOD)
            for minute in (1, 2):
                store.pass_time(61)
                await good_ones_tick(store, minute)
            assert (await stored(store, "bad")).ticks == ()
            assert running.health().ok
            while "bad" not in [getattr(record, "schedule", "") for record in caplog.records]:
                await asyncio.sleep(0.001)
            broken = False
            await decided(store, "bad")
            for task in asyncio.all_tasks():
                if task.get_name() == "aioqueue tick":
                    task.cancel()


async def test_a_middleware_that_fails_after_the_tick_was_decided_changes_nothing(
    store: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    async def afterwards(jobs: Sequence[NewJob], call_next: Any) -> Sequence[Inserted]:
        await call_next(jobs)
        raise RuntimeError("too late")

    async with Client(store, middlewares=[afterwards]) as client:
        await store.put_schedules([definition(good())])
        async with worker(client):
            await known(store, "good")
            store.pass_time(61)
            await decided(store, "good")
            while "schedule.middleware_failed" not in {getattr(record, "event", "") for record in caplog.records}:
                await asyncio.sleep(0)
            store.pass_time(60)
            await decided(store, "good", 2)
        assert [each[0] for each in await outcomes(store, "good")] == ["enqueued"] * 2


async def test_three_hundred_at_once(client: Client, store: Troubled) -> None:
    names = [f"s{number}" for number in range(300)]
    await store.put_schedules([definition(good(), name) for name in names])
    async with worker(client):
        await known(store, *names)
        looked = store.called["due_schedules"]
        store.pass_time(61)
        for name in names:
            await decided(store, name)
        assert store.called["due_schedules"] <= looked + 6
    assert max(len(batch) for batch in store.batches) <= 100


async def test_catching_up_on_many_ticks_of_many_schedules_is_cut_into_transactions(store: Troubled) -> None:
    jobs = tuple(bad().to_new_job() for _ in range(1000))
    ticks = [Tick(name=f"s{number}", version=1, expected=None, next_at=None, jobs=jobs) for number in range(10)]
    await store.open()
    decisions = _schedules_decided.Decisions(store)
    became = await asyncio.gather(*(decisions.decide(each, alone=False) for each in ticks))
    assert [each.decided for each in became] == [False] * 10
    assert [len(batch) for batch in store.batches] == [2] * 5
    await store.close()


async def test_a_stop_lets_what_is_being_decided_end(client: Client, store: Troubled) -> None:
    gate = asyncio.Event()
    await store.put_schedules([definition(good())])
    running = worker(client)
    async with running:
        await known(store, "good")
        store.troubles_of["tick"] = [gate]
        store.pass_time(61)
        while store.troubles_of["tick"]:
            await asyncio.sleep(0)
        running.stop()
        gate.set()
    assert [each[0] for each in await outcomes(store, "good")] == ["enqueued"]


@pytest.mark.parametrize("verb", ["tick", "due_schedules", "recompute_schedules"])
async def test_a_stop_is_bounded_whatever_hangs(client: Client, store: Troubled, hurried: None, verb: str) -> None:
    """Nothing is left behind, and the next worker decides what this one hasn't."""
    await store.put_schedules([definition(good())])
    store.troubles_of[verb] = [asyncio.Event()]
    running = worker(client)
    async with running:
        if verb == "tick":
            await asyncio.sleep(0)
        while store.troubles_of[verb]:
            await asyncio.sleep(0)
            if verb == "tick" and (await stored(store, "good")).next_at is not None:
                store.pass_time(61)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert [task for task in asyncio.all_tasks() if "tick" in task.get_name() and not task.cancelling()] == []
    async with worker(client):
        await known(store, "good")
        store.pass_time(61)
        await decided(store, "good")


async def test_a_worker_that_runs_once_decides_what_is_due_and_works_it_off(client: Client, store: Troubled) -> None:
    await store.put_schedules(twenty_good())
    assert (await worker(client).run_once()).completed == 0
    await known(store, *GOOD)
    store.advance(61)
    assert (await worker(client).run_once()).completed == 20
    assert (await worker(client).run_once()).completed == 0


async def test_what_becomes_due_while_it_works_is_worked_off_too(store: Troubled) -> None:
    slow, held = Registry(), False

    @slow.job
    async def late() -> None:
        nonlocal held
        if not held:
            held = True
            store.advance(61)

    async with Client(store) as client:
        await store.put_schedules([definition(late())])
        await Worker(client, slow, lease=200_000).run_once()
        store.advance(61)
        assert (await Worker(client, slow, lease=200_000).run_once()).completed == 2


async def test_a_dry_run_decides_nothing(client: Client, store: Troubled) -> None:
    tried = Registry()

    @tried.job(dry_run=True)
    async def harmless() -> None: ...

    await store.put_schedules([definition(harmless())])
    await Worker(client, tried, dry_run=True).run_once()
    async with Worker(client, tried, dry_run=True, poll_interval=0.01):
        while store.called["next_due"] < 5:
            await asyncio.sleep(0.001)
    assert (await stored(store, "harmless")).next_at is None


async def test_nothing_is_left_of_one_that_was_put_off_and_removed(client: Client, store: Troubled) -> None:
    await store.put_schedules([replace(definition(good(), "broken"), template=b"{}")])
    async with worker(client) as running:
        schedules = parts(running).schedules
        await known(store, "broken")
        store.pass_time(61)
        while "broken" not in schedules._put_off:
            await asyncio.sleep(0)
        await store.delete_schedules(["broken"])
        schedules._put_off._clock = lambda: asyncio.get_running_loop().time() + 10_000
        assert schedules._put_off.waiting() == []
        assert "broken" not in schedules._put_off
