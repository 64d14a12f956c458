"""Jobs that wait, and what somebody does to them with SQL or triggers: each row fails alone, or waits alone."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed
from aioqueue.sqlite import _tend
from aioqueue.vocabulary._blockers import ChainEnd, Tended
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, JobState, LostReason, SettlementKind
from tests.sqlite.chains import end
from tests.sqlite.conftest import execute, new_job, query, spoil
from tests.sqlite.waiting import after, claim_waiting, complete, running, state_of, tend_all

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


def keep_as_it_is(path: Path, job_id: UUID, event: str = "UPDATE OF open_blockers") -> None:
    raising = "BEGIN SELECT raise(ABORT, 'it stays as it is'); END"
    execute(path, f"CREATE TRIGGER keep BEFORE {event} ON job WHEN old.id = '{job_id}' {raising}")


async def test_a_dependent_that_refuses_to_be_told(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The blocker is settled all the same, its other dependents are told; and that one when it can be."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    waiting = [after(job.id) for _ in range(9)]
    await store.insert(waiting)
    keep_as_it_is(path, waiting[4].id)
    (result,) = await store.settle([end(job, output=b"1")])
    assert (result.lost, result.more) == (None, True)
    await tend_all(store, 4)
    states = [await state_of(store, each.id) for each in waiting]
    assert states == [JobState.READY] * 4 + [JobState.BLOCKED] + [JobState.READY] * 4
    told = [each for each in caplog.messages if f"job {waiting[4].id} is passed over" in each]
    assert len(told) == 1
    assert "it stays as it is" in told[0]
    assert not (await store.tend(4)).resolved
    execute(path, "DROP TRIGGER keep")
    assert not (await store.tend(4)).resolved  # for a minute
    monkeypatch.setattr(_tend, "_PASSED_OVER_SECONDS", 0.0)
    store._opened.tending._passed_over.clear()
    await tend_all(store)
    assert await state_of(store, waiting[4].id) is JobState.READY


async def test_one_that_is_passed_over_holds_up_nobody(store: SQLiteStore, path: Path) -> None:
    """Though it waits for more chains than a portion has, all of which ended before the others."""
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(5)]
    odd = after(*(each.id for each in jobs))
    await store.insert([odd])
    keep_as_it_is(path, odd.id)
    await store.settle([end(each, output=b"1") for each in jobs])
    await tend_all(store, 4)
    last = await running(store, lease)
    levels = [after(last.id)]
    while len(levels) < 5:
        levels.append(after(levels[-1].id))
    await store.insert(levels)
    await store.settle([end(last, SettlementKind.FAILED)])
    await tend_all(store, 4)
    assert [await state_of(store, each.id) for each in levels] == [JobState.FAILED] * 5
    assert await state_of(store, odd.id) is JobState.BLOCKED
    assert await store.tend(4) == Tended()


async def test_a_dependent_that_refuses_to_fail(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    waiting = [after(job.id) for _ in range(5)]
    await store.insert(waiting)
    keep_as_it_is(path, waiting[0].id, "DELETE")
    await store.settle([end(job, SettlementKind.FAILED)])
    await tend_all(store)
    assert [await state_of(store, each.id) for each in waiting] == [JobState.BLOCKED] + [JobState.FAILED] * 4


async def test_a_late_job_that_refuses_to_be_discarded(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    waiting = [after(job.id, expires=60.0) for _ in range(3)]
    await store.insert(waiting)
    execute(path, "UPDATE job SET expires_at = 1 WHERE state = 0")
    keep_as_it_is(path, waiting[1].id, "DELETE")
    assert (await store.tend(100)).expired == 2
    assert [await state_of(store, each.id) for each in waiting] == [JobState.CANCELLED, JobState.BLOCKED, JobState.CANCELLED]
    assert await store.tend(100) == Tended()


@pytest.mark.parametrize("change", ["chain_id = x'00'", "chain_id = 'abc'", "type = x'00'", "marked = 'abc'", "marked = NULL"])
async def test_a_blocker_that_was_spoiled_while_it_ran(store: SQLiteStore, path: Path, change: str) -> None:
    """It's written or refused alone, its neighbours are written, and in the end nobody waits for it."""
    lease = await store.open_lease("w", 600)
    job, other = await running(store, lease), await running(store, lease)
    waiting, others = after(job.id, settled=True), after(other.id)
    await store.insert([waiting, others])
    if change != "marked = NULL":
        spoil(path, job.id, change)
    results = await store.settle([end(job, output=b"1"), end(other, output=b"1")])
    assert results[1].lost is None
    assert results[0].lost in {None, LostReason.ERROR}
    await tend_all(store)
    assert await state_of(store, others.id) is JobState.READY
    execute(path, "DELETE FROM job WHERE state = 2")
    await tend_all(store)
    assert await state_of(store, waiting.id) is JobState.READY


async def test_a_blocker_that_can_not_be_claimed(store: SQLiteStore, path: Path) -> None:
    """It fails by its claim, and those that wait for it hear of that."""
    job = new_job()
    waiting = after(job.id)
    await store.insert([job, waiting])
    spoil(path, job.id, "timeout = 9e999")
    assert await store.claim(await store.open_lease("w", 600), ["a"], 1) == []
    await tend_all(store)
    (found,) = await store.fetch([waiting.id])
    assert found is not None
    assert found.last_error is not None
    assert (found.state, found.last_error.type) == (JobState.FAILED, "BlockerFailed")
    assert "UnreadableRow" in found.last_error.message


async def test_a_dependent_that_can_not_be_claimed(store: SQLiteStore, path: Path) -> None:
    """It fails alone; another one, claimed singly beside it, gets what it waited for."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    odd, sound = after(job.id), after(job.id)
    await store.insert([odd, sound])
    await complete(store, job)
    spoil(path, odd.id, "timeout = 9e999")
    (claimed,) = await store.claim(lease, ["waits"], 10)
    assert (claimed.id, [each.output for each in claimed.blockers]) == (sound.id, [b"1"])
    assert await state_of(store, odd.id) is JobState.FAILED


async def test_an_end_that_is_gone_shows_as_deleted(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    await store.insert([after(job.id)])
    await complete(store, job)
    execute(path, "DELETE FROM chain_end")
    (told,) = (await claim_waiting(store, lease)).blockers
    assert (told.end, told.output, told.cause) == (ChainEnd.DELETED, None, f"a job {job.id}: deleted")


@pytest.mark.parametrize("number", ["'abc'", "x'00'", "9e999", "-1", "0", "100"])
async def test_a_number_of_open_blockers_that_is_odd(store: SQLiteStore, path: Path, number: str) -> None:
    """It can be looked at, retried or deleted, and holds up nobody else."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    odd, sound = after(job.id), after(job.id)
    await store.insert([odd, sound])
    spoil(path, odd.id, f"open_blockers = {number}")
    await store.fetch([odd.id])
    await complete(store, job)
    await tend_all(store)
    assert await state_of(store, sound.id) is JobState.READY
    assert await store.delete([odd.id]) == [Changed.DONE]


@pytest.mark.parametrize(
    "change",
    [
        "job_id = x'00'",
        "ordinal = 'abc'",
        "chain_id = x'00'",
        "settled = 2",
        "resolved = 'abc'",
        "places = 'abc'",
        "places = x'5b5d'",
        "chain_id = NULL",
    ],
)
async def test_odd_values_are_refused_by_the_tables(store: SQLiteStore, path: Path, change: str) -> None:
    await store.insert([after((await running(store, await store.open_lease("w", 600))).id)])
    with pytest.raises(sqlite3.IntegrityError):
        execute(path, f"UPDATE blocker SET {change}")


async def test_a_chain_to_wait_for_that_is_no_uuid(store: SQLiteStore, path: Path) -> None:
    """Nobody has such a chain, so it's gone; its listing shows that."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    waiting = after(job.id, settled=True)
    await store.insert([waiting])
    execute(path, "UPDATE blocker SET chain_id = 'abc'")
    (listed,) = await store.list_blockers(waiting.id, 10)
    assert (listed.type, listed.state) == (None, None)
    await tend_all(store)
    assert [each.end for each in (await claim_waiting(store, lease)).blockers] == [ChainEnd.DELETED]


async def test_a_job_that_is_ended_from_outside_and_refuses(store: SQLiteStore, path: Path) -> None:
    """All or none."""
    one, other = new_job(), new_job()
    await store.insert([one, other])
    keep_as_it_is(path, other.id, "DELETE")
    with pytest.raises(Exception, match="it stays as it is"):
        await store.end([Ending(id=each.id, kind=SettlementKind.COMPLETED) for each in (one, other)])
    assert query(path, "SELECT count(*) FROM job") == [(2,)]
    assert await store.end([Ending(id=new_id(), kind=SettlementKind.COMPLETED)]) == [False]
