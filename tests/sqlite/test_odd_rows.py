"""What somebody wrote with SQL, and triggers that raise: each row fails alone, visibly, and its neighbours go on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue.abc import Changed, JobFilter, Notification
from aioqueue.errors import LeaseLost, RowRejected, StoreError
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, spoil

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob, Job

pytestmark = pytest.mark.anyio

PENDING = [
    "timeout = 9e999",
    "timeout = -9e999",
    "expires_at = 'abc'",
    "expires_at = 9e999",
    "claims = 'abc'",
    "claims = x'00'",
    "claims = 9e999",
    "claims = 9223372036854775807",
    "attempt = 9223372036854775807",
    "reschedules = 'abc'",
    "created_at = x'00'",
    "created_at = 9e999",
    "started_at = x'00'",
    "run_at = -9e999",
    "chain_id = 'abc'",
    "chain_id = x'00'",
    "chain_id = upper(id)",
    "chain_id = cast(x'ff' as text)",
    "position = 'abc'",
    "position = x'00'",
    "position = -1",
    "position = 1.5",
    "position = 9223372036854775807",
    "id = 'no UUID, but precisely as long as it'",
    "id = x'" + "fe" * 36 + "'",
    "id = upper(id)",
    "id = cast(x'" + "ff" * 36 + "' as text)",
]
RUNNING = [
    "claims = 'abc'",
    "claims = x'00'",
    "claims = 9223372036854775807",
    "lease_id = 'abc'",
    "lease_id = x'00'",
    "lease_id = NULL",
    "run_at = x'00'",
    "run_at = 9e999",
    "started_at = 'abc'",
    "type = x'00'",
    "errors = x'00'",
    "chain_id = x'00'",
    "chain_id = 'abc'",
    "position = 'abc'",
    "position = x'00'",
    "position = 9223372036854775807",
    "id = 'no UUID, but precisely as long as it'",
    "id = upper(id)",
]


async def everything(store: SQLiteStore, limit: int = 2) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    with anyio.fail_after(60):
        while True:
            page = await store.list(JobFilter(), limit, cursor)
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                return found


def done(job: ClaimedJob) -> Settlement:
    return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=SettlementKind.COMPLETED, output=b"1")


@pytest.mark.parametrize("change", PENDING)
async def test_a_claim_beside_an_odd_row(store: SQLiteStore, path: Path, change: str) -> None:
    odd, *sound = [new_job(priority=1), new_job(), new_job()]
    await store.insert([odd, *sound])
    spoil(path, odd.id, change)
    shown = {job.id for job in await everything(store, 1)} - {job.id for job in sound}
    assert len(shown) == 1
    lease = await store.open_lease("w", 600)
    heard: list[Notification] = []
    with store.subscribe(heard.append):
        claimed = await store.claim(lease, ["a"], 10)
    assert [job.id for job in claimed] == [job.id for job in sound]
    assert {result.lost for result in await store.settle([done(job) for job in claimed])} == {None}
    assert shown in [set(each.finished or ()) for each in heard]
    # It's found under the id under which it was listed before, and says what is wrong with it.
    (failed,) = await store.fetch(list(shown))
    assert failed is not None
    assert failed.state is JobState.FAILED
    assert failed.last_error is not None
    assert change.split(" ")[0] in failed.last_error.message
    assert {job.id for job in await everything(store, 1)} == shown | {job.id for job in sound}
    assert (await store.stats()).types["a"].counts == {JobState.COMPLETED: 2, JobState.FAILED: 1}
    assert await store.claim(lease, ["a"], 10) == []
    assert store.troubles == {}
    # What can't be kept was left out: so it can be retried.
    assert await store.retry(list(shown)) == [Changed.DONE]
    (again,) = await store.claim(lease, ["a"], 10)
    assert {again.id} == shown
    assert [result.lost for result in await store.settle([done(again)])] == [None]


async def test_one_slot_gets_past_odd_rows(store: SQLiteStore, path: Path) -> None:
    odd = [new_job(priority=1) for _ in range(30)]
    sound = new_job()
    await store.insert([*odd, sound])
    execute(path, "UPDATE job SET timeout = 9e999 WHERE priority = 1")
    lease = await store.open_lease("w", 600)
    assert [job.id for job in await store.claim(lease, ["a"], 1)] == [sound.id]


async def test_an_odd_row_needs_a_valid_lease_too(store: SQLiteStore, path: Path) -> None:
    await store.insert([odd := new_job()])
    spoil(path, odd.id, "timeout = 9e999")
    with pytest.raises(LeaseLost):
        await store.claim(12345, ["a"], 1)
    lease = await store.open_lease("w", 600)
    with pytest.raises(LeaseLost):
        await store.claim(lease, ["a"], 1, leases={"b": 12345})
    (job,) = await store.fetch([odd.id])
    assert job is not None
    assert job.state is JobState.READY


@pytest.mark.parametrize("change", RUNNING)
async def test_recovery_beside_an_odd_row(store: SQLiteStore, path: Path, change: str) -> None:
    await store.insert([new_job(), new_job(), new_job()])
    lease = await store.open_lease("dead", 600)
    odd, *sound = await store.claim(lease, ["a"], 3)
    spoil(path, odd.id, change)
    execute(path, "UPDATE lease SET expires_at = 1")
    assert (await store.next_due(["a"])).lease == 0
    taken = {job.id: job for job in [*await store.take_expired(10), *await store.take_expired(10)]}
    assert {job.id for job in sound} <= set(taken)
    orphans = [
        Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=SettlementKind.RETRIED) for job in taken.values()
    ]
    assert {result.lost for result in await store.settle(orphans, orphaned=True)} == {None}
    assert await store.take_expired(10) == []
    assert (await store.next_due(["a"])).lease is None
    states = sorted(job.state for job in await everything(store))
    assert states in (["failed", "ready", "ready"], ["ready", "ready", "ready"])


@pytest.mark.parametrize("change", RUNNING)
async def test_a_worker_goes_on_beside_an_odd_row(store: SQLiteStore, path: Path, change: str) -> None:
    await store.insert([new_job() for _ in range(4)])
    lease = await store.open_lease("w", 600)
    odd, one, two, three = await store.claim(lease, ["a"], 4)
    spoil(path, odd.id, change)
    session = store.lease_session()
    for _ in range(3):
        renewal = await anyio.to_thread.run_sync(session.renew, lease, 600.0, [job.claim for job in (odd, one, two, three)])
        assert renewal.valid
        assert set(renewal.lost) <= {odd.claim}
    session.close()
    results = await store.settle([done(odd), done(one)])
    assert results[1].lost is None
    await store.release(lease, [odd.claim, two.claim])
    await store.release(lease, [], end=True)
    found = await store.fetch([one.id, two.id, three.id])
    assert [job and job.state for job in found] == [JobState.COMPLETED, JobState.READY, JobState.READY]


async def test_a_unique_key_that_an_odd_row_holds(store: SQLiteStore, path: Path) -> None:
    await store.insert([odd := new_job(key="k", unique=Unique())])
    spoil(path, odd.id, "id = 'no UUID, but precisely as long as it'")
    again, other = await store.insert([new_job(key="k", unique=Unique()), new_job()])
    assert not again.created
    assert other.created
    assert again.id in {job.id for job in await everything(store)}


async def test_a_job_that_was_copied_back_from_the_archive(store: SQLiteStore, path: Path) -> None:
    await store.insert([new_job(), new_job()])
    lease = await store.open_lease("w", 600)
    first, second = await store.claim(lease, ["a"], 2)
    await store.settle([done(first)])
    columns = "id, type, priority, run_at, created_at, claims, payload"
    execute(path, f"INSERT INTO job ({columns}, state) SELECT {columns}, 1 FROM archive")
    (found,) = await store.fetch([first.id])
    assert found is not None
    assert found.state is JobState.READY
    (again,) = await store.claim(lease, ["a"], 2)
    assert [result.lost for result in await store.settle([done(second), done(again)])] == [None, None]
    assert (await store.stats()).types["a"].counts == {JobState.COMPLETED: 2}


async def test_a_row_whose_id_is_in_the_archive_already(store: SQLiteStore, path: Path) -> None:
    await store.insert([first := new_job(), new_job()])
    lease = await store.open_lease("w", 600)
    (job, _) = await store.claim(lease, ["a"], 2)
    assert job.id == first.id
    await store.settle([done(job)])
    execute(
        path,
        "INSERT INTO job (id, type, priority, state, run_at, created_at, payload, timeout) "
        "SELECT id, type, priority, 1, run_at, created_at, payload, 9e999 FROM archive",
    )
    assert await store.claim(lease, ["a"], 2) == []
    (found,) = await store.fetch([job.id])
    assert found is not None
    assert found.state is JobState.FAILED


# -- triggers -----------------------------------------------------------------------------------------------------


def trigger(event: str, table: str, job_id: UUID, action: str = "RAISE(ABORT, 'not this one')") -> str:
    row = "OLD" if event == "DELETE" else "NEW"
    return f"CREATE TRIGGER on_{event}_{table} BEFORE {event} ON {table} WHEN {row}.id = '{job_id}' BEGIN SELECT {action}; END"


ACTIONS = [
    "RAISE(ABORT, 'not this one')",
    "RAISE(FAIL, 'not this one')",
    "RAISE(ROLLBACK, 'not this one')",
    "json('{not this')",
]


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_trigger_that_refuses_a_claim(store: SQLiteStore, path: Path, action: str) -> None:
    bad, *sound = [new_job(priority=1), new_job(), new_job()]
    await store.insert([bad, *sound])
    execute(path, trigger("UPDATE", "job", bad.id, action))
    lease = await store.open_lease("w", 600)
    assert [job.id for job in await store.claim(lease, ["a"], 10)] == [job.id for job in sound]
    (found,) = await store.fetch([bad.id])
    assert found is not None
    assert found.state is JobState.FAILED
    assert store.troubles == {}


async def test_a_trigger_that_refuses_all_claims_fails_no_job(store: SQLiteStore, path: Path) -> None:
    first, second = new_job(priority=1), new_job()
    await store.insert([first, second])
    execute(path, "CREATE TRIGGER none BEFORE UPDATE ON job BEGIN SELECT RAISE(ABORT, 'none'); END")
    lease = await store.open_lease("w", 600)
    for _ in range(3):
        with pytest.raises(RowRejected, match="none"):
            await store.claim(lease, ["a"], 10)
    assert (await store.stats()).types["a"].counts == {JobState.READY: 2}
    execute(path, "DROP TRIGGER none")
    assert len(await store.claim(lease, ["a"], 10)) == 2


async def test_a_lane_that_is_refused_doesnt_stand_before_all_others(store: SQLiteStore, path: Path) -> None:
    await store.insert([*(new_job("refused", priority=1) for _ in range(200)), good := new_job("good")])
    execute(
        path,
        "CREATE TRIGGER refused BEFORE UPDATE ON job WHEN NEW.type = 'refused' BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    lease = await store.open_lease("w", 600)
    assert [job.id for job in await store.claim(lease, ["refused", "good"], 1)] == [good.id]


async def test_a_row_that_can_be_neither_claimed_nor_failed_is_passed_over(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, *sound = [new_job(priority=1), new_job(), new_job(), new_job()]
    await store.insert([bad, *sound])
    execute(path, trigger("UPDATE", "job", bad.id), trigger("DELETE", "job", bad.id))
    lease = await store.open_lease("w", 600)
    claimed = [job.id for _ in range(3) for job in await store.claim(lease, ["a"], 1)]
    assert claimed == [job.id for job in sound]
    assert str(bad.id) in store.troubles["rows"]
    assert "not this one" in store.troubles["rows"]
    assert [record.levelname for record in caplog.records if str(bad.id) in record.getMessage()] == ["ERROR"]
    # It's tried again some time, when the trigger may be gone.
    execute(path, "DROP TRIGGER on_UPDATE_job")
    assert await store.claim(lease, ["a"], 1) == []
    assert store._opened is not None
    odd = store._opened.odd
    monkeypatch.setattr(odd, "_stuck", {row_id: (0.0, told) for row_id, (_, told) in odd._stuck.items()})
    assert [job.id for job in await store.claim(lease, ["a"], 1)] == [bad.id]
    assert store.troubles == {}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("orphaned", [False, True])
async def test_a_trigger_that_refuses_a_settlement(store: SQLiteStore, path: Path, action: str, orphaned: bool) -> None:
    await store.insert([new_job() for _ in range(50)])
    lease = await store.open_lease("w", 600)
    claimed = await store.claim(lease, ["a"], 50)
    execute(path, trigger("INSERT", "archive", claimed[20].id, action))
    if orphaned:
        execute(path, "DELETE FROM lease")
    results = await store.settle([done(job) for job in claimed], orphaned=orphaned)
    assert [place for place, result in enumerate(results) if result.lost is not None] == [20]
    assert results[20].lost is LostReason.ERROR
    assert "not this" in results[20].message or "JSON" in results[20].message
    assert (await store.stats()).types["a"].counts == {JobState.RUNNING: 1, JobState.COMPLETED: 49}


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_trigger_that_refuses_a_release(
    store: SQLiteStore, path: Path, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.insert([new_job() for _ in range(10)])
    lease = await store.open_lease("w", 600)
    claimed = await store.claim(lease, ["a"], 10)
    execute(path, trigger("UPDATE", "job", claimed[3].id, action))
    with pytest.raises(StoreError, match=r"not this|JSON"):
        await store.release(lease, [job.claim for job in claimed[:5]])
    assert (await store.stats()).types["a"].counts == {JobState.RUNNING: 10}
    await store.release(lease, [claimed[0].claim])
    await store.release(lease, [], end=True)
    assert (await store.stats()).types["a"].counts == {JobState.RUNNING: 1, JobState.READY: 9}
    assert str(claimed[3].id) in caplog.text
    assert [job.id for job in await store.take_expired(10)] == [claimed[3].id]


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_trigger_that_refuses_an_operator(store: SQLiteStore, path: Path, action: str) -> None:
    jobs = [new_job(delay=60.0) for _ in range(7)]
    ids = [job.id for job in jobs]
    await store.insert(jobs)
    execute(path, trigger("UPDATE", "job", ids[3], action), trigger("DELETE", "job", ids[4], action))
    assert await store.run_now(ids) == [Changed.WRONG_STATE if place == 3 else Changed.DONE for place in range(7)]
    with pytest.raises(RowRejected if "RAISE" in action else Exception):
        await store.run_now([ids[3]])
    assert await store.delete(ids) == [Changed.WRONG_STATE if place == 4 else Changed.DONE for place in range(7)]
    failed = [new_job() for _ in range(5)]
    await store.insert(failed)
    execute(path, "DROP TRIGGER on_DELETE_job")
    await store.run_now([ids[4]])
    lease = await store.open_lease("w", 600)
    claimed = await store.claim(lease, ["a"], 10)
    await store.settle(
        [Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=SettlementKind.FAILED) for job in claimed]
    )
    execute(path, trigger("INSERT", "job", failed[2].id, action))
    results = await store.retry([job.id for job in failed])
    assert results == [Changed.WRONG_STATE if place == 2 else Changed.DONE for place in range(5)]


async def test_a_batch_in_which_all_rows_are_refused(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    await store.insert([new_job() for _ in range(64)])
    lease = await store.open_lease("w", 600)
    claimed = await store.claim(lease, ["a"], 64)
    execute(path, "CREATE TRIGGER none BEFORE INSERT ON archive BEGIN SELECT RAISE(ABORT, 'none'); END")
    results = await store.settle([done(job) for job in claimed])
    assert {result.lost for result in results} == {LostReason.ERROR}
    unknown = Settlement(id=new_id(), claims=1, lease_id=lease, kind=SettlementKind.COMPLETED)
    assert [each.lost for each in await store.settle([unknown])] == [LostReason.NOT_FOUND]
    await store.close()
