"""`client.schedules`: schedules at run time, on all stores."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from aioqueue import (
    ArgumentsError,
    Client,
    ConfigurationError,
    ConflictingOptions,
    NotSupported,
    OutsideTransaction,
    Registry,
    ScheduleError,
    ScheduleNotFound,
    ScheduleOwned,
    StoreContended,
    TickOutcome,
    Unique,
    Worker,
)
from aioqueue.client._schedule import shown_schedule
from aioqueue.definitions._due_ticks import job_of, tick_of, work_out
from aioqueue.definitions._schedules import generation_of
from aioqueue.events import JobEnqueued
from aioqueue.vocabulary._schedules import NewSchedule, StoredSchedule
from tests.client.fake_store import FakeStore

pytestmark = pytest.mark.anyio

registry = Registry(prefix="planned.")
code = Registry(prefix="code.")
A_MINUTE = timedelta(minutes=1)
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@registry.job
async def report(day: str = "today") -> str:
    return day


@code.job
async def defined() -> None: ...


code.schedule(defined(), every=A_MINUTE)


@pytest.fixture
async def client(each_client: Client) -> Client:
    return each_client


async def deploy(client: Client) -> str:
    """Store what `code` defines, as a worker of it does; gives the schedule's name."""
    store: Any = client.store
    await store.reconcile_schedules(generation_of("code", code.schedules), code.schedules, 90)
    (new,) = code.schedules
    return str(new.name)


async def decide_first_tick(client: Client, name: str) -> None:
    """What a worker does once it's due."""
    store: Any = client.store
    (stored,) = await store.fetch_schedules([name])
    now = (await store.due_schedules(1)).now
    moved = dataclasses.replace(tick_of(stored, work_out(stored, now), []), next_at=now - timedelta(seconds=1))
    await store.tick([moved])
    (stored,) = await store.fetch_schedules([name])
    due = work_out(stored, now)
    moments = (now,)
    tick = tick_of(stored, dataclasses.replace(due, nominal_times=moments, skipped=()), [job_of(stored, now)])
    (ticked,) = await store.tick([tick])
    assert ticked.decided


async def test_putting_one_shows_it_and_once_more_changes_nothing(client: Client) -> None:
    call = report("monday").options(key="k", tags=["t"], priority=3)
    made = await client.schedules.put("nightly", call, cron="0 3 * * *", timezone="Europe/Berlin", overlap="skip", grace=60)
    assert (made.name, made.owner, made.job_type, made.arguments) == ("nightly", None, "planned.report", {"day": "monday"})
    assert (made.cron, made.every, made.timezone, made.overlap, made.grace) == ("0 3 * * *", None, "Europe/Berlin", "skip", 60)
    assert (made.key, made.tags, made.priority) == ("k", ("t",), 3)
    assert (made.paused, made.last_tick, made.ticks) == (False, None, ())
    assert made.next_tick is not None  # though no worker has worked it out
    assert made.next_tick == (await client.schedules.preview("nightly", count=1))[0]
    store: Any = client.store
    stored = list(await store.fetch_schedules(["nightly"]))
    again = await client.schedules.put(
        "nightly", call.copy(), cron=" 0 3 * * * ", timezone="Europe/Berlin", overlap="skip", grace=timedelta(minutes=1)
    )
    assert again == made == await client.schedules.get("nightly")
    assert list(await store.fetch_schedules(["nightly"])) == stored


async def test_the_call_isn_t_enqueued_and_may_be_used_again(client: Client) -> None:
    call = report()
    await client.schedules.put("one", call, every=60)
    await client.schedules.put("two", call, every=60)
    assert (await client.list_jobs()).jobs == ()
    await client.enqueue(call)


async def test_another_timing_begins_anew_and_a_pause_stays(client: Client) -> None:
    before = await client.schedules.put("often", report(), every=A_MINUTE)
    await client.schedules.pause("often", reason="too often", by="Ada")
    paused = await client.schedules.get("often")
    assert (paused.paused, paused.reason, paused.by, paused.next_tick) == (True, "too often", "Ada", None)
    after = await client.schedules.put("often", report(), every=2 * A_MINUTE)
    assert (after.every, after.paused, after.by) == (120.0, True, "Ada")
    await client.schedules.resume("often")
    resumed = await client.schedules.get("often")
    assert (resumed.paused, resumed.reason, resumed.by) == (False, "", "")
    assert before.next_tick is not None
    assert resumed.next_tick is not None
    assert resumed.next_tick > before.next_tick


async def test_pages_by_name(client: Client) -> None:
    for name in ("c", "a", "b"):
        await client.schedules.put(name, report(), every=60)
    page = await client.schedules.list(limit=2)
    rest = await client.schedules.list(limit=2, cursor=page.cursor)
    assert [[each.name for each in found.schedules] for found in (page, rest)] == [["a", "b"], ["c"]]
    assert rest.cursor is None
    with pytest.raises(ConfigurationError):
        await client.schedules.list(limit=0)


async def test_ticks_are_shown(client: Client) -> None:
    await client.schedules.put("often", report("now"), every=60)
    await decide_first_tick(client, "often")
    found = await client.schedules.get("often")
    (tick,) = found.ticks
    assert tick.outcome is TickOutcome.ENQUEUED
    assert (found.last_tick, found.last_chain) == (tick.nominal_time, tick.chain_id)
    assert found.next_tick is not None
    assert found.next_tick > tick.nominal_time
    assert tick.chain_id is not None
    job = await client.job(tick.chain_id)
    assert job.origin is not None
    assert (job.origin.schedule, job.nominal_time, job.arguments) == ("often", tick.nominal_time, {"day": "now"})


async def test_by_name_alone(client: Client) -> None:
    made = await client.schedules.put_by_name("far", "else.where", {"n": 2**53}, call_options={"priority": 1}, every=60)
    assert (made.job_type, made.arguments, made.priority) == ("else.where", {"n": 2**53}, 1)
    with pytest.raises(ArgumentsError):
        await client.schedules.put_by_name("far", "else.where", {"n": float("nan")}, every=60)


async def test_what_code_defines_is_paused_here_and_changed_there(client: Client) -> None:
    name = await deploy(client)
    assert name == "code/code.defined"
    assert (await client.schedules.get(name)).owner == "code"
    with pytest.raises(ScheduleOwned) as caught:
        await client.schedules.put(name, report(), every=60)
    assert caught.value.name == name
    with pytest.raises(ScheduleOwned, match="pause"):
        await client.schedules.delete(name)
    await client.schedules.pause(name, by="Ada")
    assert await deploy(client) == name
    assert (await client.schedules.get(name)).by == "Ada"
    await client.schedules.resume(name)
    assert (await client.schedules.get(name)).job_type == "code.defined"


async def test_deleting_leaves_jobs(client: Client) -> None:
    await client.schedules.put("often", report(), every=60)
    handle = await client.schedules.run_now("often")
    await client.schedules.delete("often")
    assert (await client.job(handle)).origin is not None
    assert (await client.schedules.list()).schedules == ()


async def test_there_is_none_of_this_name(client: Client) -> None:
    schedules = client.schedules
    for name in ("nobody's", "nul\0", "", "\ud800"):
        for verb in (schedules.get, schedules.pause, schedules.resume, schedules.delete, schedules.run_now, schedules.preview):
            with pytest.raises(ScheduleNotFound) as caught:
                await verb(name)
            assert caught.value.name == name
    with pytest.raises(TypeError):
        await client.schedules.get(7)


async def test_running_one_by_hand(client: Client) -> None:
    await client.schedules.put("often", report("by hand"), every=3600)
    before = await client.schedules.get("often")
    await client.schedules.pause("often")
    handle = await client.schedules.run_now("often")
    assert handle.created
    await Worker(client, registry).run_once()
    assert await handle.result(timeout=10) == "by hand"
    job = await client.job(handle)
    assert job.origin is not None
    assert job.origin.schedule == "often"
    (tick,) = (await client.schedules.get("often")).ticks
    assert (tick.outcome, tick.nominal_time, tick.chain_id) == (TickOutcome.ENQUEUED, job.nominal_time, handle.id)
    await client.schedules.resume("often")
    after = await client.schedules.get("often")
    assert after.last_tick is None  # its own ticks are what they were
    assert before.next_tick is not None
    assert after.next_tick is not None
    assert after.next_tick >= before.next_tick


async def test_one_by_hand_beside_one_that_goes_on(client: Client) -> None:
    await client.schedules.put("alone", report(), every=3600, overlap="skip")
    first = await client.schedules.run_now("alone")
    with pytest.raises(ScheduleError, match='overlap="allow"'):
        await client.schedules.run_now("alone")
    second = await client.schedules.run_now("alone", overlap="allow")
    assert second.id != first.id
    await Worker(client, registry).run_once()
    assert (await client.schedules.run_now("alone")).created


async def test_one_by_hand_whose_unique_key_is_held(client: Client) -> None:
    await client.schedules.put("unique", report().options(key="k", unique=Unique()), every=3600)
    first = await client.schedules.run_now("unique")
    again = await client.schedules.run_now("unique")
    assert (again.id, again.created, first.created) == (first.id, False, True)


async def test_one_by_hand_is_enqueued_as_any_other_job() -> None:
    """With the client's middlewares, and its webhook, and whoever observes it."""
    seen: list[Any] = []

    async def marked(jobs: Any, call_next: Any) -> Any:
        return await call_next([dataclasses.replace(job, metadata=b'{"tenant":7}') for job in jobs])

    async with Client(FakeStore(), middlewares=[marked], webhook="https://hooks.example/") as client:
        client.observe(seen.append)
        await client.schedules.put("often", report(), every=3600)
        await client.schedules.put("silent", report().options(webhook=False), every=3600)
        handle = await client.schedules.run_now("often")
        silent = await client.schedules.run_now("silent")
        job = await client.job(handle)
        assert (job.metadata, job.webhook) == ({"tenant": 7}, "https://hooks.example/")
        assert (await client.job(silent)).webhook is None
    assert [each.job_id for each in seen if isinstance(each, JobEnqueued)] == [handle.id, silent.id]


async def test_one_that_is_changed_all_the_time() -> None:
    class Busy(FakeStore):
        async def fetch_schedules(self, names: Any) -> Any:
            found = await super().fetch_schedules(names)
            return [dataclasses.replace(each, version=each.version + 1) for each in found]

    async with Client(Busy()) as client:
        await client.schedules.put("often", report(), every=3600)
        with pytest.raises(StoreContended):
            await client.schedules.run_now("often")
        assert (await client.list_jobs()).jobs == ()


async def test_one_that_newer_code_has_written(client: Client) -> None:
    store: Any = client.store
    newer = NewSchedule(
        name="newer", owner=None, job_type="t", template=orjson.dumps({"kind": 2}), cron="not one", timezone="X/Y"
    )
    await store.put_schedules([newer])
    found = await client.schedules.get("newer")
    assert (found.arguments, found.next_tick, found.cron) == (None, None, "not one")
    with pytest.raises(ScheduleError, match="newer"):
        await client.schedules.run_now("newer")
    with pytest.raises(ConfigurationError):
        await client.schedules.preview("newer")
    await client.schedules.delete("newer")


async def test_one_that_somebody_has_written_by_hand_hides_no_other(client: Client) -> None:
    store: Any = client.store
    odd = NewSchedule(name="odd", owner=None, job_type="t", template=b'{"payload": 7}', every=1e300)
    await store.put_schedules([odd])
    await client.schedules.put("often", report(), every=60)
    first, second = (await client.schedules.list()).schedules
    assert (first.name, first.next_tick, first.arguments) == ("odd", None, None)
    assert second.next_tick is not None


def test_one_without_any_more_ticks() -> None:
    new = NewSchedule(name="s", owner=None, job_type="t", template=b"{}", cron="0 0 1 1 *")
    for_ever = datetime.max.replace(tzinfo=UTC)
    assert (
        shown_schedule(StoredSchedule(definition=new, version=1, since=NOON, anchor=NOON, next_at=for_ever), NOON).next_tick
        is None
    )


async def test_what_is_refused(client: Client) -> None:
    put = client.schedules.put
    for wrong in (
        {},
        {"cron": "0 3 * * *", "every": 60},
        {"every": 0.5},
        {"cron": "0 0 30 2 *"},
        {"cron": "0 3 * * *", "timezone": "Nowhere/Atall"},
        {"every": 60, "catch_up": "some"},
        {"every": 60, "overlap": "no"},
        {"every": 60, "grace": -1},
        {"every": 60, "catch_up_limit": 0},
    ):
        with pytest.raises((ConfigurationError, ConflictingOptions)):
            await put("often", report(), **wrong)
    for name in ("", " ", "x" * 201, "new\nline", 7):
        with pytest.raises(ConfigurationError):
            await put(name, report(), every=60)
    with pytest.raises(ConflictingOptions, match="at="):
        await put("often", report().options(at=NOON), every=60)
    with pytest.raises(ConflictingOptions):
        await put("often", report(report("x").output), every=60)
    with pytest.raises(TypeError):
        await put("often", report, every=60)
    with pytest.raises(TypeError):
        await put("often", report(), each=60)
    with pytest.raises(TypeError):
        await client.schedules.pause("often", reason=7)
    assert (await client.schedules.list()).schedules == ()


async def test_previews(client: Client) -> None:
    made = await client.schedules.put("nightly", report(), cron="30 2 * * *", timezone="Europe/Berlin")
    spring = datetime(2031, 3, 29, 12, tzinfo=UTC)
    assert await client.schedules.preview("nightly", count=2, after=spring) == [
        datetime(2031, 3, 30, 1, tzinfo=UTC),  # just after the gap
        datetime(2031, 3, 31, 0, 30, tzinfo=UTC),
    ]
    assert await client.schedules.preview("nightly", count=1, after=datetime(2001, 1, 1, tzinfo=UTC)) == [made.next_tick]
    with pytest.raises(ConfigurationError, match="time zone"):
        await client.schedules.preview("nightly", after=datetime(2031, 1, 1))
    for count in (0, 1_001):
        with pytest.raises(ConfigurationError):
            await client.schedules.preview("nightly", count=count)
    with pytest.raises(ConfigurationError):
        await client.schedules.preview("nightly", every=60)


async def test_a_timing_is_previewed_without_a_database() -> None:
    preview = Client(FakeStore()).schedules.preview
    assert await preview(every=A_MINUTE, count=2, after=NOON) == [NOON + A_MINUTE, NOON + 2 * A_MINUTE]
    assert await preview(cron="@daily", count=1, after=NOON) == [NOON + timedelta(hours=12)]
    assert len(await preview(every=1)) == 10
    with pytest.raises(ConflictingOptions):
        await preview()
    with pytest.raises(ConfigurationError):
        await preview(cron="0 0 30 2 *")


async def test_not_inside_a_transaction(client: Client) -> None:
    await client.schedules.put("often", report(), every=60)
    async with client.transaction():
        for verb in (client.schedules.pause, client.schedules.resume, client.schedules.delete, client.schedules.run_now):
            with pytest.raises(OutsideTransaction):
                await verb("often")
        with pytest.raises(OutsideTransaction):
            await client.schedules.put("another", report(), every=60)
    assert not (await client.schedules.get("often")).paused


async def test_a_store_that_keeps_none() -> None:
    class Simple(FakeStore):
        put_schedules = tick = None

    async with Client(Simple()) as client:
        for made in (client.schedules.list(), client.schedules.get("x"), client.schedules.put("x", report(), every=60)):
            with pytest.raises(NotSupported) as caught:
                await made
            assert caught.value.ability == "schedules"
        assert not [each for each in await client.diagnose() if each.check == "schedules"]
