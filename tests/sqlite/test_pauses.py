"""Pauses in a file that others write too: at each claim, whatever stands in the rows, and back again when they're lifted."""

from __future__ import annotations

import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed, JobFilter, ListOrder
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, query, spoil

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

KEY = NewPause(target=PauseTarget.KEY, value="k")
ALL = NewPause(target=PauseTarget.ALL)


def of_type(name: str) -> NewPause:
    return NewPause(target=PauseTarget.TYPE, value=name)


async def claimed(store: SQLiteStore, *types: str, limit: int = 10) -> list[UUID]:
    lease = await store.open_lease("w", 600)
    return [each.id for each in await store.claim(lease, types or ["a"], limit)]


async def job(store: SQLiteStore, job_id: UUID) -> Job:
    (found,) = await store.fetch([job_id])
    assert found is not None
    return found


async def park(store: SQLiteStore, **options: object) -> UUID:
    """One job that is held since its key is paused."""
    await store.insert([new := new_job(key="k", **options)])
    await store.pause([KEY])
    assert await claimed(store) == []
    assert (await job(store, new.id)).held_by == "pause:k"
    return new.id


async def test_a_claim_parks_many_at_a_time_and_goes_on_behind_them(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it has time, so that what is behind a large backlog isn't waited for between claims."""
    monkeypatch.setattr("aioqueue.sqlite._claim._PARKING_SECONDS", 60)
    monkeypatch.setattr("aioqueue.sqlite._claim_paused.PARKED_AT_ONCE", 20)
    number = 12 * 20
    await store.insert([new_job(key="k", priority=1) for _ in range(number)])
    await store.insert([other := new_job()])
    await store.pause([KEY])
    assert await claimed(store, limit=1) == [other.id]
    assert query(path, "SELECT count(*), count(gate) FROM job WHERE state = 0") == [(number, number)]
    assert (await store.next_due(["a"])).job is None
    (pause,) = await store.list_pauses()
    assert pause.waiting == number


async def test_a_claim_that_has_parked_for_long_enough_leaves_the_rest_to_the_next(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.sqlite._claim._PARKING_SECONDS", 0)
    monkeypatch.setattr("aioqueue.sqlite._claim_paused.PARKED_AT_ONCE", 1)
    await store.insert([new_job(key="k", priority=1) for _ in range(3)])
    await store.insert([other := new_job()])
    await store.pause([KEY])
    assert await claimed(store, limit=1) == []
    assert await claimed(store, limit=1) == [other.id]


async def test_what_is_claimed_beside_paused_ones_is_the_most_urgent(store: SQLiteStore) -> None:
    jobs = [new_job("ab"[n % 2], priority=1 + n % 4, key="k" if n % 3 else None) for n in range(48)]
    await store.insert(jobs)
    await store.pause([KEY, of_type("c")])
    free = [each for each in jobs if each.key is None]
    expected = [each.id for each in sorted(free, key=lambda each: (each.priority, each.id))]
    assert await claimed(store, "a", "b", "c", limit=9) == expected[:9]
    assert await claimed(store, "a", "b", "c", limit=9) == expected[9:]


async def test_a_pause_of_a_type_leaves_its_jobs_where_they_are(store: SQLiteStore) -> None:
    await store.insert([a := new_job("a"), b := new_job("b", key="k")])
    await store.pause([of_type("b"), KEY])
    assert await claimed(store, "a", "b") == [a.id]
    assert (await job(store, b.id)).state is JobState.READY
    assert (await store.next_due(["a", "b"])).job is None


async def test_each_transaction_of_a_claim_looks_at_pauses(store: SQLiteStore, path: Path) -> None:
    """Also the first look of an idle worker, and the claims one by one beside a row that can't be read."""
    await store.insert([odd := new_job("b"), a := new_job("a", key="k"), b := new_job("b"), c := new_job("c")])
    spoil(path, odd.id, "timeout = 9e999")
    await store.pause([KEY, of_type("b")])
    assert await claimed(store, "a", "b", "c") == [c.id]
    states = [(await job(store, each.id)).state for each in (odd, a, b)]
    assert states == [JobState.READY, JobState.HELD, JobState.READY]
    await store.resume(PauseTarget.TYPE, ["b"])
    assert await claimed(store, "a", "b", "c") == [b.id]
    assert (await job(store, odd.id)).state is JobState.FAILED


@pytest.mark.parametrize("change", ["id = x'" + "fe" * 36 + "'", "id = upper(id)", "timeout = 9e999", "key = x'6b'"])
async def test_odd_rows_with_paused_keys_keep_nobody_waiting(store: SQLiteStore, path: Path, change: str) -> None:
    await store.insert([odd := new_job(key="k", priority=1), sound := new_job(key="k"), other := new_job()])
    spoil(path, odd.id, change)
    await store.pause([KEY])
    assert other.id in await claimed(store)
    assert (await job(store, sound.id)).state is JobState.HELD
    assert await store.resume(PauseTarget.KEY, ["k"]) == 1
    while (await store.tend(10)).more:
        pass
    assert sound.id in await claimed(store)
    assert query(path, "SELECT count(*) FROM job WHERE state = 0") == [(0,)]


async def test_one_that_cant_come_back_is_passed_over(store: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [new_job(key="k") for _ in range(20)]
    await store.insert(jobs)
    await store.pause([KEY])
    assert await claimed(store) == []
    bad = jobs[7].id
    execute(
        path,
        f"CREATE TRIGGER no BEFORE UPDATE ON job WHEN NEW.id = '{bad}' AND NEW.state = 1 BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    with caplog.at_level(logging.ERROR):
        assert await store.resume(PauseTarget.KEY, ["k"]) == 1
    assert str(bad) in caplog.text
    assert [each.id for each in jobs if each.id != bad] == await claimed(store, limit=20)
    assert not (await store.tend(5)).more


async def test_all_resumed_keys_come_back_side_by_side(store: SQLiteStore, path: Path) -> None:
    """A large backlog of one keeps no other waiting; and keys that are paused still are walked over."""
    await store.insert([new_job(key=key) for key in ["a"] * 600 + ["b"] * 3 + ["c"] * 3 + ["z"] * 3])
    await store.pause([NewPause(target=PauseTarget.KEY, value=each) for each in "abcz"])
    await claimed(store, limit=1)
    assert query(path, "SELECT count(*) FROM job WHERE state = 0") == [(609,)]
    assert await store.resume(PauseTarget.KEY, ["a", "z"]) == 2
    counts = dict(query(path, "SELECT key, count(*) FROM job WHERE state = 1 GROUP BY key"))
    assert counts == {"a": 97, "z": 3}
    execute(path, "UPDATE pause SET until = 1 WHERE value = 'b'")
    tended = await store.tend(100)
    assert (tended.resumed, tended.more) == (100, True)
    assert query(path, "SELECT count(*) FROM job WHERE state = 0 AND key = 'b'") == [(0,)]
    while (await store.tend(100)).more:
        pass
    assert query(path, "SELECT DISTINCT key FROM job WHERE state = 0") == [("c",)]
    assert [each.value for each in await store.list_pauses()] == ["c"]
    assert query(path, "SELECT count(*) FROM pause") == [(1,)]


async def test_a_walk_over_many_paused_keys_goes_on_where_it_was(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.sqlite._pauses_parked._WALK", 3)
    keys = [f"k{n}" for n in range(10)]
    await store.insert([new_job(key=key) for key in keys])
    await store.pause([NewPause(target=PauseTarget.KEY, value=each) for each in keys])
    await claimed(store)
    assert await store.resume(PauseTarget.KEY, keys, by="nobody") == 0
    # Such as when their times are over.
    execute(path, "DELETE FROM pause WHERE value IN ('k4', 'k9')")
    assert sum([(await store.tend(10)).resumed for _ in range(5)]) == 2
    assert await store.resume(PauseTarget.KEY, keys) == 8


async def test_the_end_of_a_pause_is_waited_for(store: SQLiteStore, path: Path) -> None:
    soon, later = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=2)
    await store.insert([new_job("a"), new_job("b", key="k"), new_job("c", delay=30_000)])

    async def wait(*pauses: NewPause) -> float:
        await store.pause(pauses)
        await claimed(store, "b")
        due = (await store.next_due(["a", "b", "c"])).job
        await store.resume(PauseTarget.ALL, [""])
        for each in ("a", "b"):
            await store.resume(PauseTarget.TYPE, [each])
        await store.resume(PauseTarget.KEY, ["k"])
        await store.tend(10)
        return -1.0 if due is None else round(due / 600) * 600

    assert await wait(NewPause(target=PauseTarget.ALL, until=soon)) == 3600
    assert await wait(of_type("a"), NewPause(target=PauseTarget.KEY, value="k", until=later)) == 7200
    forever, ending = of_type("a"), NewPause(target=PauseTarget.TYPE, value="a", by="other", until=soon)
    assert await wait(forever, ending, KEY) == 30_000
    assert await wait(ALL, NewPause(target=PauseTarget.ALL, by="x", until=soon)) == -1
    both = NewPause(target=PauseTarget.TYPE, value="b", until=later)
    assert await wait(of_type("a"), both, NewPause(target=PauseTarget.KEY, value="k", until=soon)) == 7200


async def test_what_is_held_is_operated_on_like_pending_jobs(store: SQLiteStore, path: Path) -> None:
    moved = await park(store)
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert await store.reschedule([moved], run_at=at) == [Changed.DONE]
    assert ((await job(store, moved)).state, (await job(store, moved)).run_at) == (JobState.HELD, at)
    assert await store.run_now([moved]) == [Changed.DONE]
    assert (await job(store, moved)).run_at < datetime.now(UTC) + timedelta(minutes=1)
    assert await store.delete([moved]) == [Changed.DONE]
    expiring = await park(store, expires=3600.0)
    execute(path, f"UPDATE job SET expires_at = 1 WHERE id = '{expiring}'")
    assert (await store.tend(10)).expired == 1
    assert (await job(store, expiring)).state is JobState.CANCELLED
    assert await store.retry([expiring]) == [Changed.DONE]
    assert (await job(store, expiring)).state is JobState.READY


async def test_a_replaced_job_isnt_held_any_more_until_a_claim_comes_to_it(store: SQLiteStore) -> None:
    unique = Unique(on_conflict="replace")
    held = await park(store, unique=unique)
    (replaced,) = await store.insert([new_job(key="k", unique=unique)])
    assert (replaced.id, replaced.replaced) == (held, True)
    found = await job(store, held)
    assert (found.state, found.held_by) == (JobState.READY, None)
    assert await claimed(store) == []
    assert (await job(store, held)).state is JobState.HELD


async def test_held_and_blocked_jobs_are_told_apart(store: SQLiteStore, path: Path) -> None:
    held = await park(store)
    await store.insert([first := new_job("b"), last := new_job("b")])
    lease = await store.open_lease("w", 600)
    running = await store.claim(lease, ["b"], 1)
    assert running[0].id == first.id
    execute(path, f"UPDATE job SET state = 0, open_blockers = 1 WHERE id = '{last.id}'")
    for order in (ListOrder.NEWEST, ListOrder.OLDEST, ListOrder.DUE):
        for types in (frozenset(), frozenset({"a", "b"})):
            for state, expected in ((JobState.HELD, {held}), (JobState.BLOCKED, {last.id})):
                page = await store.list(JobFilter(states=frozenset({state}), types=types), 10, order=order)
                assert {each.id for each in page.jobs} == expected
            both = JobFilter(states=frozenset({JobState.HELD, JobState.BLOCKED}), types=types)
            assert {each.id for each in (await store.list(both, 10, order=order)).jobs} == {held, last.id}
    counts = (await store.stats()).types
    assert counts["a"].counts == {JobState.HELD: 1}
    assert counts["b"].counts == {JobState.BLOCKED: 1, JobState.RUNNING: 1}
    shown = {row[0]: row[1:] for row in query(path, "SELECT id, state, held_by FROM jobs")}
    assert (shown[str(held)], shown[str(last.id)]) == (("held", "pause:k"), ("blocked", None))


async def test_others_notice_at_once(store: SQLiteStore, path: Path) -> None:
    """There's nothing that is kept in a process: another one's pause holds for the next claim here."""
    other = make_store(f"sqlite:///{path}")
    await other.open()
    await store.insert([new := new_job()])
    await other.pause([ALL])
    assert await claimed(store) == []
    heard: list[Notification] = []
    with other.subscribe(heard.append):
        assert await other.resume(PauseTarget.ALL, [""]) == 1
    assert heard[0].types is None
    assert await claimed(store) == [new.id]
    await other.close()


async def test_a_retried_job_is_parked_too(store: SQLiteStore) -> None:
    await store.insert([new := new_job(key="k")])
    lease = await store.open_lease("w", 600)
    (running,) = await store.claim(lease, ["a"], 1)
    await store.pause([KEY])
    again = Settlement(id=running.id, claims=running.claims, lease_id=lease, kind=SettlementKind.RETRIED)
    await store.settle([again])
    assert (await job(store, new.id)).state is JobState.READY
    assert await claimed(store) == []
    assert ((await job(store, new.id)).attempt, (await job(store, new.id)).state) == (1, JobState.HELD)


async def test_the_table_takes_no_odd_values(store: SQLiteStore, path: Path) -> None:
    await store.pause([KEY])
    for change in ("target = 'some'", "value = x'00'", "by = x'00'", "reason = x'00'", "at = 'now'", "until = 'soon'"):
        with pytest.raises(sqlite3.IntegrityError):
            execute(path, f"UPDATE pause SET {change}")


async def test_texts_that_arent_utf_8_are_in_nobodys_way(store: SQLiteStore, path: Path) -> None:
    bad = "cast(x'ff' as text)"
    await store.insert([sound := new_job(), odd := new_job(key="k")])
    await store.pause([KEY, of_type("b")])
    execute(path, f"UPDATE pause SET by = {bad}, reason = {bad}, value = {bad}")
    assert len(await store.list_pauses()) == 2
    spoil(path, odd.id, f"key = {bad}")
    assert await claimed(store) == [sound.id]
    execute(path, "DELETE FROM pause")
    await store.tend(10)
    await store.insert([another := new_job()])
    assert another.id in await claimed(store)


async def test_the_log_of_events_tells_of_what_is_done_to_held_jobs(store: SQLiteStore) -> None:
    """Being parked and coming back aren't events: nobody has done anything to the job."""
    reader = await store.open_reader(60.0)
    cursor = (await store.begin_events(reader)).cursor
    held = await park(store)
    await store.reschedule([held], delay=3600.0)
    await store.run_now([held])
    await store.resume(PauseTarget.KEY, ["k"])
    assert await claimed(store) == [held]
    events = (await store.read_events(reader, cursor, 100)).events
    assert [each.kind for each in events] == ["enqueued", "rescheduled", "rescheduled", "started"]
