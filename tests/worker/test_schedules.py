"""Ticks of schedules as a worker decides them: each once, at its time, and enqueued as the client enqueues."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Registry, Worker, current_attempt
from aioqueue.events import Event, JobEnqueued, ScheduleTicked
from aioqueue.telemetry._counters import LEDGER
from aioqueue.worker import _schedules
from tests.telemetry.spans import Recorded
from tests.worker.insides import parts
from tests.worker.scheduling import Troubled, decided, definition, enqueued, known, outcomes, stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry()
ran: list[tuple[str, datetime | None]] = []


@registry.job
async def report(place: str = "here") -> None:
    ran.append((place, current_attempt().job.nominal_time))


@registry.job
async def wait_for(name: str) -> None:
    await GATES[name].wait()


GATES: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    ran.clear()
    GATES.clear()


@pytest.fixture
def store() -> Troubled:
    return Troubled()


@pytest.fixture
async def client(store: Troubled) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


def worker(client: Client, **settings: Any) -> Worker:
    return Worker(client, registry, **{"grace": 5, "poll_interval": 60, "lease": 200_000, **settings})


async def test_a_tick_enqueues_its_job_with_its_time(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioqueue")
    spans, told, before = Recorded(monkeypatch), list[Event](), LEDGER.total()
    await store.put_schedules([definition(report("there"), "reports")])
    with client.observe(told.append):
        async with worker(client, name="w"):
            await known(store, "reports")
            assert (await stored(store, "reports")).ticks == ()
            first = (await stored(store, "reports")).next_at
            assert first is not None
            store.pass_time(61)
            (tick,) = await decided(store, "reports")
            while len(ran) < 1 or not [each for each in told if isinstance(each, ScheduleTicked)]:
                await asyncio.sleep(0)
    assert tick.nominal_time == first
    assert ran == [("there", first)]
    job = await client.job(tick.chain_id)
    assert job.nominal_time == first
    assert job.origin is not None
    assert job.origin.schedule == "reports"
    (ticked,) = [each for each in told if isinstance(each, ScheduleTicked)]
    assert (ticked.schedule, ticked.job_type, ticked.outcome, ticked.worker) == ("reports", "report", "enqueued", "w")
    assert (ticked.nominal_time, ticked.chain_id) == (first, job.id)
    assert [each.job_id for each in told if isinstance(each, JobEnqueued)] == [job.id]
    send, process = spans.one("send report"), spans.one("process report")
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert (send.attributes or {})["messaging.message.id"] == str(job.id)
    assert (process.attributes or {})["aioqueue.schedule"] == "reports"
    assert (process.attributes or {})["aioqueue.nominal_time"] == first.isoformat()
    total = LEDGER.total()
    assert total.ticks_enqueued == before.ticks_enqueued + 1
    assert sum(total.tick_delay.counts) == sum(before.tick_delay.counts) + 1
    assert total.enqueued["report"] == before.enqueued.get("report", 0) + 1
    fields = {
        name: [r for r in caplog.records if getattr(r, "event", "") == name] for name in ("schedule.ticked", "attempt.ended")
    }
    (record,), (ended,) = fields.values()
    assert (record.levelname, record.outcome, record.nominal_time) == ("DEBUG", "enqueued", first.isoformat())
    assert record.getMessage() == f"worker w: the tick of reports at {first.isoformat()} is enqueued"
    assert (ended.schedule, ended.nominal_time) == ("reports", first.isoformat())


async def test_many_workers_decide_each_tick_once(
    client: Client, store: Troubled, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who come too late have nothing to say: no error, no span, no count."""
    spans, before = Recorded(monkeypatch), LEDGER.total().ticks_enqueued
    await store.put_schedules([definition(report(str(number)), f"s{number}") for number in range(20)])
    async with AsyncExitStack() as stack:
        for number in range(5):
            await stack.enter_async_context(worker(client, name=f"w{number}"))
        for minute in range(1, 6):
            await known(store, *(f"s{number}" for number in range(20)))
            store.pass_time(60)
            for number in range(20):
                await decided(store, f"s{number}", minute)
        while len(ran) < 100:
            await asyncio.sleep(0)
    assert len(ran) == len(set(ran)) == 100
    assert len(store.batches) > 5
    assert LEDGER.total().ticks_enqueued == before + 100
    assert len(spans.named("send report")) == 100
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_without_schedules_nothing_is_asked(client: Client, store: Troubled) -> None:
    async with worker(client, poll_interval=0.01):
        while store.called["next_due"] < 20:
            await asyncio.sleep(0.001)
    assert not store.called.keys() & {"due_schedules", "tick", "recompute_schedules", "reconcile_schedules"}


async def test_a_schedule_that_isnt_due_costs_an_idle_worker_nothing(client: Client, store: Troubled) -> None:
    await store.put_schedules([definition(report(), "reports", every=3600.0)])
    async with worker(client, poll_interval=0.01) as running:
        await known(store, "reports")
        while parts(running).schedules._deciding or not store.called["recompute_schedules"]:
            await asyncio.sleep(0)
        asked = store.called["next_due"]
        while store.called["next_due"] < asked + 20:
            await asyncio.sleep(0.001)
        before = {verb: store.called[verb] for verb in ("due_schedules", "tick", "recompute_schedules")}
        while store.called["next_due"] < asked + 80:
            await asyncio.sleep(0.001)
        assert {verb: store.called[verb] for verb in before} == before
        assert before["recompute_schedules"] == 1


async def test_an_idle_worker_wakes_for_a_tick(client: Client, store: Troubled) -> None:
    """Nobody tells it, and it's long until it polls again."""
    await store.put_schedules([definition(report(), "reports")])
    store.advance(59.8)
    async with worker(client):
        (tick,) = await decided(store, "reports")
    assert timedelta() <= tick.decided_at - tick.nominal_time < timedelta(seconds=5)


async def test_a_schedule_of_which_no_word_came_is_seen_at_the_next_poll(client: Client, store: Troubled) -> None:
    async with worker(client, poll_interval=0.02):
        while store.called["next_due"] < 3:
            await asyncio.sleep(0.001)
        store.database.schedules.rows.update((await _elsewhere(store)).database.schedules.rows)
        await known(store, "reports")


async def _elsewhere(store: Troubled) -> Troubled:
    other = Troubled()
    await other.open()
    await other.put_schedules([definition(report(), "reports")])
    await other.close()
    return other


async def test_a_saturated_worker_ticks(client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no slot to fill, so that its main loop doesn't ask when something is due."""
    monkeypatch.setattr(_schedules, "_SILENT_LEAST_SECONDS", 0.05)
    GATES["it"] = asyncio.Event()
    await store.put_schedules([definition(report(), "reports")])
    async with worker(client, concurrency=1, poll_interval=0.05) as running:
        await client.enqueue(wait_for("it"))
        while not running.health().busy:
            await asyncio.sleep(0)
        await known(store, "reports")
        store.advance(61)
        asked = store.called["next_due"]
        await decided(store, "reports")
        assert store.called["next_due"] == asked
        GATES["it"].set()


async def test_it_goes_on_after_somebody_has_cancelled_all_tasks(client: Client, store: Troubled) -> None:
    await store.put_schedules([definition(report(), "reports")])
    async with worker(client, poll_interval=0.05) as running:
        await known(store, "reports")
        mine = [task for task in asyncio.all_tasks() if task.get_name() in ("aioqueue schedules", "aioqueue schedules in code")]
        assert len(mine) == 2
        for task in mine:
            task.cancel()
        await asyncio.wait(mine)
        store.advance(61)
        await decided(store, "reports")
        assert running.health().ok


async def test_enqueue_middlewares_and_the_clients_webhook_count(store: Troubled) -> None:
    seen: list[list[str]] = []

    async def with_tenant(jobs: Sequence[NewJob], call_next: Any) -> Sequence[Inserted]:
        seen.append([job.type for job in jobs])
        inserted: Sequence[Inserted] = await call_next([replace(job, metadata=b'{"tenant": 7}', origin=None) for job in jobs])
        assert all(each.created for each in inserted)
        return inserted

    urls = {"reports": "https://hooks.example/all", "own": "https://hooks.example/own"}
    async with Client(store, middlewares=[with_tenant], webhook=urls["reports"]) as client:
        await store.put_schedules(
            [
                definition(report(), "reports"),
                definition(report().options(webhook=urls["own"]), "own"),
                definition(report().options(webhook=False), "none"),
            ]
        )
        async with worker(client):
            await known(store, "reports", "own", "none")
            store.pass_time(61)
            ticks = {name: (await decided(store, name))[0] for name in ("reports", "own", "none")}
            while len(ran) < 3:
                await asyncio.sleep(0)
        chains = {str(tick.chain_id): name for name, tick in ticks.items()}
        told = {chains[str(each.chain_id)]: each.url for each in (await store.list_deliveries()).deliveries}
        jobs = [await client.job(tick.chain_id) for tick in ticks.values()]
    assert told == urls
    assert seen == [["report"]] * 3
    assert [job.metadata for job in jobs] == [{"tenant": 7}] * 3
    assert [job.nominal_time for job in jobs] == [tick.nominal_time for tick in ticks.values()]


async def test_a_worker_without_cronsim_leaves_cron_schedules_to_others(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_schedules([definition(report(), "reports"), definition(report(), "cron", cron="* * * * *")])
    monkeypatch.setattr("aioqueue.worker._run.find_spec", lambda name: None)
    async with worker(client, poll_interval=0.01):
        await known(store, "reports")
        store.pass_time(120)
        await decided(store, "reports")
        asked, looked = store.called["next_due"], store.called["due_schedules"]
        while store.called["next_due"] < asked + 50:
            await asyncio.sleep(0.001)
        assert (await stored(store, "cron")).next_at is None
        assert store.called["due_schedules"] < looked + 25
    monkeypatch.undo()
    async with worker(client):
        await known(store, "cron")


async def test_a_job_of_a_type_that_nobody_serves_waits_for_its_worker(client: Client, store: Troubled) -> None:
    elsewhere = Registry(prefix="other.")

    @elsewhere.job
    async def tidy() -> None:
        ran.append(("tidied", None))

    await store.put_schedules([definition(tidy())])
    async with worker(client):
        await known(store, "other.tidy")
        store.pass_time(61)
        (tick,) = await decided(store, "other.tidy")
        assert tick.chain_id is not None
        assert (await client.job(tick.chain_id)).state.value == "ready"
    await Worker(client, elsewhere).run_once()
    assert ("tidied", None) in ran


@pytest.mark.parametrize(
    ("rule", "became"),
    [
        ({}, [("skipped", "missed: a later one was due by then", 9), ("enqueued", "", 1)]),
        ({"catch_up": "none"}, [("skipped", "missed: a later one was due by then", 9), ("enqueued", "", 1)]),
        ({"catch_up": "none", "every": 400.0}, [("skipped", "missed: it couldn't be decided within 1.0 min", 1)]),
        ({"grace": 10.0, "every": 400.0}, [("skipped", "missed: it couldn't be decided within 10.0 s", 1)]),
        ({"catch_up": "all"}, [("enqueued", "", 1)] * 10),
        (
            {"catch_up": "all", "catch_up_limit": 3},
            [("skipped", "missed: of those, the newest 3 are caught up on", 7), *[("enqueued", "", 1)] * 3],
        ),
    ],
)
async def test_what_becomes_of_ticks_that_nobody_saw(
    client: Client, store: Troubled, rule: dict[str, Any], became: list[tuple[str, str, int]]
) -> None:
    """No worker for ten minutes."""
    await store.put_schedules([definition(report(), "reports", **rule)])
    async with worker(client):
        await known(store, "reports")
    store.advance(600.5)
    async with worker(client):
        await decided(store, "reports", len(became))
        assert await outcomes(store, "reports") == became
        while len(ran) < sum(1 for each in became if each[0] == "enqueued"):
            await asyncio.sleep(0)
    ticks = enqueued((await stored(store, "reports")).ticks)
    assert sorted(time for _, time in ran if time) == sorted(each.nominal_time for each in ticks)


async def test_a_changed_or_removed_schedule_never_fires_what_it_was(client: Client, store: Troubled) -> None:
    await store.put_schedules([definition(report("old"), "changed"), definition(report("gone"), "removed")])
    async with worker(client):
        await known(store, "changed", "removed")
    store.advance(600)
    await store.put_schedules([definition(report("new"), "changed", every=30.0)])
    await store.delete_schedules(["removed"])
    async with worker(client):
        await known(store, "changed")
        store.pass_time(31)
        await decided(store, "changed")
        while not ran:
            await asyncio.sleep(0)
    assert [place for place, _ in ran] == ["new"]


async def test_a_clock_that_jumped_ahead_and_back_silences_nothing(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next tick is tomorrow's then, until it's worked out anew: when a worker starts, and once an hour."""
    await store.put_schedules([definition(report(), "reports", catch_up="none")])
    async with worker(client):
        await known(store, "reports")
        store.pass_time(86_400)
        await decided(store, "reports")
    store.advance(-86_400)
    async with worker(client):
        while (found := (await stored(store, "reports")).next_at) is None or found > store.database.now() + timedelta(hours=1):
            await asyncio.sleep(0)
        store.pass_time(61)
        while len(enqueued(await decided(store, "reports"))) < 2:
            await asyncio.sleep(0)
