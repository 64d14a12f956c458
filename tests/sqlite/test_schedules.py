"""Schedules in a file that others write too: their rows are read with care, and other processes notice them."""

from __future__ import annotations

import dataclasses
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.errors import RowRejected
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._job import NewJob
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedule_template import encode_template
from aioqueue.vocabulary._schedules import NewSchedule, SkippedTicks, Tick, TickOutcome
from tests.sqlite.conftest import execute, new_job, outsider, query

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._schedules import StoredSchedule

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
FAR = timedelta(days=1)


def schedule(name: str = "s", **options: object) -> NewSchedule:
    return NewSchedule(name=name, owner=None, job_type="a", template=encode_template(new_job()), every=60.0, **options)


def job_of(name: str, nominal_time: datetime, **options: object) -> NewJob:
    return new_job(origin=Origin(schedule=name, nominal_time=nominal_time), **options)


def tick(stored: StoredSchedule, next_at: datetime, *nominal_times: datetime, **options: object) -> Tick:
    jobs = tuple(job_of(stored.name, each) for each in nominal_times)
    return Tick(name=stored.name, version=stored.version, expected=stored.next_at, next_at=next_at, jobs=jobs, **options)


async def stored(store: SQLiteStore, name: str = "s") -> StoredSchedule:
    (found,) = await store.fetch_schedules([name])
    assert found is not None
    return found


async def due_now(store: SQLiteStore, name: str = "s") -> StoredSchedule:
    """Have its next tick at about now."""
    found = await stored(store, name)
    (ticked,) = await store.tick([tick(found, datetime.now(UTC) - SECOND)])
    assert ticked.decided
    return await stored(store, name)


async def test_a_tick_is_decided_once(store: SQLiteStore, path: Path) -> None:
    await store.put_schedules([schedule()])
    assert (await store.next_due(["a"])).tick == 0
    seen = await due_now(store)
    assert seen.next_at is not None
    other = make_store(f"sqlite:///{path}")
    await other.open()
    results: list[bool] = []

    async def decide(by: SQLiteStore) -> None:
        (ticked,) = await by.tick([tick(seen, seen.next_at + FAR, seen.next_at)])
        results.append(ticked.decided)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(decide, store)
            group.start_soon(decide, other)
    await other.close()
    assert sorted(results) == [False] * 19 + [True]
    (claimed,) = await store.claim(await store.open_lease("w", 600), ["a"], 10)
    assert claimed.nominal_time == seen.next_at
    wait = (await store.next_due(["a"])).tick
    assert wait is not None
    assert 86_000 < wait <= 86_400


async def test_one_job_that_cant_be_stored_decides_nothing(store: SQLiteStore) -> None:
    """Its tick, and those beside it, can be decided afterwards."""
    await store.put_schedules([schedule("a"), schedule("b")])
    one, other = [await due_now(store, name) for name in "ab"]
    good = tick(one, one.next_at + FAR, one.next_at)
    bad = dataclasses.replace(tick(other, None), jobs=(job_of("b", other.next_at, key="\0"),))
    with pytest.raises(RowRejected):
        await store.tick([good, bad])
    assert [each.ticks for each in (await stored(store, "a"), await stored(store, "b"))] == [(), ()]
    assert [each.decided for each in await store.tick([good])] == [True]


async def test_a_schedule_without_a_next_tick_is_never_due(store: SQLiteStore, path: Path) -> None:
    await store.put_schedules([schedule()])
    await store.tick([tick(await stored(store), None)])
    assert (await store.next_due(["a"])).tick is None
    due = await store.due_schedules(10)
    assert (due.schedules, due.next_in) == ((), None)
    # It isn't one that isn't known.
    assert query(path, "SELECT next_at IS NULL FROM schedule") == [(0,)]


@pytest.mark.parametrize(
    "change",
    [
        *("owner = x'00'", "job_type = x'00'", "template = 'no JSON'", "template = x'5b5d'", "cron = x'00'", "every = 'often'"),
        *("timezone = x'00'", "catch_up = 'some'", "grace = 'abc'", "catch_up_limit = 1.5", "overlap = 'maybe'"),
        *("version = 'abc'", "since = 'abc'", "anchor = x'00'", "next_at = 'soon'", "last_at = 1.5", "last_chain = x'00'"),
        *("paused = 2", "reason = x'00'", "by = x'00'", "name = x'00'"),
    ],
)
async def test_the_table_takes_no_odd_values(store: SQLiteStore, path: Path, change: str) -> None:
    await store.put_schedules([schedule()])
    with pytest.raises(sqlite3.IntegrityError):
        execute(path, f"UPDATE schedule SET {change}")


@pytest.mark.parametrize("table", ["schedule", "schedule_tick", "schedule_generation", "pause"])
async def test_no_column_of_the_new_tables_takes_a_blob(store: SQLiteStore, path: Path, table: str) -> None:
    with outsider(path) as connection:
        columns = [row[0] for row in connection.execute(f"SELECT name FROM pragma_table_info('{table}')")]
        (text,) = connection.execute(f"SELECT sql FROM sqlite_schema WHERE name = '{table}'").fetchone()
    unchecked = [name for name in columns if f"typeof({name})" not in text and f"CHECK ({name} IN (" not in text]
    assert unchecked == []


@pytest.mark.parametrize("name", ["cast(x'73ff' as text)"])
async def test_a_name_that_isnt_utf_8_is_in_nobodys_way(store: SQLiteStore, path: Path, name: str) -> None:
    await store.put_schedules([schedule("a"), schedule("z"), schedule("s")])
    execute(path, f"UPDATE schedule SET name = {name} WHERE name = 's'")
    assert [each.name for each in (await store.due_schedules(10)).schedules] == ["a", "z"]
    names: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        page = await store.list_schedules(1, cursor)
        names += [each.name for each in page.schedules]
        cursor = page.cursor
    assert (names, cursor) == (["a", "s\ufffd", "z"], None)
    assert await store.recompute_schedules() == 0


async def test_texts_that_arent_utf_8_are_shown(store: SQLiteStore, path: Path) -> None:
    await store.put_schedules([schedule("a"), schedule("z")])
    bad = "cast(x'ff' as text)"
    execute(
        path,
        f"UPDATE schedule SET timezone = {bad}, cron = {bad}, reason = {bad}, last_chain = {bad} WHERE name = 'a'",
        "INSERT INTO schedule_tick (schedule, nominal_at, decided_at, outcome, reason, chain_id) "
        f"VALUES ('a', 1, 1, 1, {bad}, {bad}), ('z', 9223372036854775807, 1, 2, '', NULL)",
    )
    odd, sound = (await store.list_schedules(10)).schedules
    assert (odd.definition.timezone, odd.reason, len(odd.ticks), len(sound.ticks)) == ("\ufffd", "\ufffd", 1, 1)
    assert len((await store.due_schedules(10)).schedules) == 2


async def test_other_processes_notice_a_new_schedule(store: SQLiteStore, path: Path) -> None:
    heard: list[Notification] = []
    noticed = anyio.Event()

    def listen(notification: Notification) -> None:
        heard.append(notification)
        if notification.schedules:
            noticed.set()

    other = make_store(f"sqlite:///{path}")
    await other.open()
    with store.subscribe(listen):
        # What others commit beside it isn't news of schedules.
        await other.insert([new_job()])
        with anyio.fail_after(10):
            while not heard:
                await anyio.sleep(0.001)
        assert not noticed.is_set()
        for change in (
            other.put_schedules([schedule()]),
            other.resume_schedules(["s"]),
        ):
            noticed = anyio.Event()
            await change
            with anyio.fail_after(10):
                await noticed.wait()
            await due_now(store)
            await other.pause_schedules(["s"], "", "")
    await other.close()


async def test_the_newest_ticks_are_kept(store: SQLiteStore, path: Path) -> None:
    await store.put_schedules([schedule(), schedule("other")])
    await store.tick([tick(other := await due_now(store, "other"), other.next_at + FAR, other.next_at)])
    seen = await due_now(store)
    start = seen.next_at - timedelta(hours=1)
    times = [start + n * SECOND for n in range(30)]
    skipped = (SkippedTicks(nominal_time=start - SECOND, count=7, reason="missed"),)
    (ticked,) = await store.tick([tick(seen, seen.next_at + FAR, *times, skipped=skipped)])
    assert [each.nominal_time for each in ticked.ticks] == [*times, start - SECOND]
    found = await stored(store)
    assert [each.nominal_time for each in found.ticks] == times[:-21:-1]
    assert (found.last_at, found.last_chain) == (times[-1], found.ticks[0].chain_id)
    assert len((await stored(store, "other")).ticks) == 1
    assert query(path, "SELECT count(*) FROM schedule_tick") == [(21,)]


async def test_of_several_jobs_of_a_tick_only_the_first_is_enqueued_where_one_may_live(store: SQLiteStore) -> None:
    await store.put_schedules([schedule(overlap="skip")])
    seen = await due_now(store)
    times = [seen.next_at - 2 * SECOND, seen.next_at - SECOND, seen.next_at]
    (ticked,) = await store.tick([tick(seen, seen.next_at + FAR, *times, alone=True)])
    assert [each.outcome for each in ticked.ticks] == [TickOutcome.ENQUEUED, TickOutcome.SKIPPED, TickOutcome.SKIPPED]


async def test_a_second_tick_of_a_batch_is_about_what_the_first_has_left(store: SQLiteStore) -> None:
    await store.put_schedules([schedule(overlap="skip")])
    seen = await due_now(store)
    by_hand = Tick(
        name="s", version=seen.version, expected=None, next_at=None, jobs=(job_of("s", seen.next_at - SECOND),), by_hand=True
    )
    first = tick(seen, seen.next_at + FAR, seen.next_at, alone=True)
    one, other, again = await store.tick([by_hand, first, first])
    assert [each.decided for each in (one, other, again)] == [True, True, False]
    assert [each.outcome for each in (*one.ticks, *other.ticks)] == [TickOutcome.ENQUEUED, TickOutcome.SKIPPED]


async def test_hundreds_of_ticks_are_one_transaction(store: SQLiteStore, path: Path) -> None:
    names = [f"s{n:03}" for n in range(300)]
    await store.put_schedules([schedule(name) for name in names])
    due = await store.due_schedules(500)
    assert [each.name for each in due.schedules] == names
    now = due.now - SECOND
    await store.tick([tick(each, now) for each in due.schedules])
    seen = (await store.due_schedules(500)).schedules
    results = await store.tick([tick(each, now + FAR, now) for each in seen])
    assert all(each.decided for each in results)
    assert len({each.ticks[0].chain_id for each in results}) == 300
