"""What is kept beside jobs: it goes with them, whoever removes them, and stays with those that have finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed
from aioqueue.errors import RowRejected
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import LostReason, Settlement, SettlementKind, SettleResult, StoredState
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite, ProgressWrite
from tests.sqlite.conftest import execute, new_job, query

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any
    from uuid import UUID

    from aioqueue.abc import ClaimedJob
    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

BESIDE = ("phase", "progress", "job_log")


def phase(
    job: ClaimedJob, name: str = "p", state: PhaseState = PhaseState.COMPLETED, result: bytes | None = None
) -> PhaseWrite:
    return PhaseWrite(id=job.id, claims=job.claims, lease_id=job.lease_id, name=name, state=state, result=result)


def ended(job: ClaimedJob, kind: SettlementKind = SettlementKind.COMPLETED, **options: Any) -> Settlement:
    return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, attempt=job.attempt, **options)


async def claimed(store: SQLiteStore) -> ClaimedJob:
    """A job that runs, and of which something is kept."""
    await store.insert([new_job()])
    [job] = await store.claim(await store.open_lease("w", 600), ["a"], 1)
    assert await store.write_phases([phase(job, result=b"1")]) == [None]
    await store.write_progress([ProgressWrite(id=job.id, claims=job.claims, lease_id=job.lease_id, percent=50)])
    return job


def rows(path: Path) -> list[int]:
    return [count for table in BESIDE for [count] in query(path, f"SELECT count(*) FROM {table}")]


async def _delete_live(store: SQLiteStore, job: ClaimedJob) -> None:
    assert await store.settle([ended(job, SettlementKind.RESCHEDULED, logs=b"[]")]) == [SettleResult()]
    assert await store.delete([job.id]) == [Changed.DONE]


async def _delete_archived(store: SQLiteStore, job: ClaimedJob) -> None:
    assert await store.settle([ended(job, logs=b"[]")]) == [SettleResult()]
    assert await store.delete([job.id]) == [Changed.DONE]


async def _delete_first_step(store: SQLiteStore, job: ClaimedJob) -> None:
    following = new_job("b")
    assert await store.settle([ended(job, SettlementKind.CONTINUED, next=following, logs=b"[]")]) == [SettleResult()]
    assert await store.delete([following.id]) == [Changed.DONE]


async def _prune(store: SQLiteStore, job: ClaimedJob) -> None:
    assert await store.settle([ended(job, SettlementKind.FAILED, logs=b"[]")]) == [SettleResult()]
    assert (await store.prune(StoredState.FAILED, 0, None, 10)).ids == (job.id,)


@pytest.mark.parametrize("remove", [_delete_live, _delete_archived, _delete_first_step, _prune])
async def test_all_of_it_goes_with_its_job(
    store: SQLiteStore, path: Path, remove: Callable[[SQLiteStore, ClaimedJob], Coroutine[Any, Any, None]]
) -> None:
    job = await claimed(store)
    other = await claimed(store)
    assert await store.settle([ended(other, logs=b"[1]")]) == [SettleResult()]
    await remove(store, job)
    assert rows(path) == [1, 1, 1]
    assert [each.lines_json for each in await store.fetch_logs(other.id)] == [b"[1]"]


async def test_what_cant_be_stored_is_refused_and_costs_nobody_else(store: SQLiteStore, path: Path) -> None:
    job, other = await claimed(store), await claimed(store)
    for bad in (
        phase(job, result=b"{"),
        phase(job, result=b"\xff"),
        phase(job, "\udc80"),
        phase(job, state=PhaseState.WAITING),
    ):
        with pytest.raises(RowRejected):
            await store.write_phases([phase(other, "q"), bad])
    with pytest.raises(RowRejected):
        await store.write_progress([ProgressWrite(id=job.id, claims=1, lease_id=job.lease_id, percent=float("nan"))])
    assert await store.fetch_phases(other.id) == await store.fetch_phases(other.id) != []
    assert rows(path) == [2, 2, 0]
    results = await store.settle([ended(job, logs=b"nothing"), ended(other, logs=b"[]")])
    assert (results[0].lost, results[1]) == (LostReason.ERROR, SettleResult())
    assert rows(path) == [2, 2, 1]


async def test_the_logs_of_the_newest_claims_are_kept(store: SQLiteStore) -> None:
    new = new_job()
    await store.insert([new])
    lease = await store.open_lease("w", 600)
    for number in range(13):
        [job] = await store.claim(lease, ["a"], 1)
        assert await store.settle([ended(job, SettlementKind.RETRIED, logs=b"[%d]" % number)]) == [SettleResult()]
    logs = await store.fetch_logs(new.id)
    assert [(each.claims, each.attempt, each.lines_json) for each in logs] == [
        (number + 1, number + 1, b"[%d]" % number) for number in range(3, 13)
    ]


async def test_a_finished_job_shows_who_ran_it(store: SQLiteStore, path: Path) -> None:
    """As long as that is known; whoever runs another job meanwhile isn't taken for it."""
    job = await claimed(store)
    await store.open_lease("other", 600)
    assert await store.settle([ended(job)]) == [SettleResult()]
    await store.release(job.lease_id, [], end=True)

    async def worker(job_id: UUID) -> str | None:
        [found] = await store.fetch([job_id])
        assert found is not None
        return found.worker

    assert await worker(job.id) == "w"
    execute(path, "DELETE FROM past_lease")
    assert await worker(job.id) is None


async def test_nothing_is_stored_of_a_job_that_isnt_there(store: SQLiteStore, path: Path) -> None:
    nobody = PhaseWrite(id=new_id(), claims=1, lease_id=1, name="p", state=PhaseState.RUNNING)
    assert await store.write_phases([nobody, nobody]) == [LostReason.NOT_FOUND] * 2
    assert rows(path) == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        "progress SET phases = '5'",
        "progress SET phases = '{\"a\": 1}'",
        "progress SET phases = '[1, null]'",
        "progress SET at = 9223372036854775807",
        "progress SET message = CAST(x'ff' AS TEXT)",
        "phase SET name = CAST(x'ff' AS TEXT)",
        "phase SET started_at = -9223372036854775808",
        "phase SET result = '[1e999]'",
    ],
)
async def test_what_somebody_has_written_beside_a_job_is_shown_as_well_as_it_can_be(
    store: SQLiteStore, path: Path, change: str
) -> None:
    job = await claimed(store)
    execute(path, f"UPDATE {change}")
    [found] = await store.fetch([job.id])
    assert found is not None
    assert (found.progress is not None, len(found.phases)) == (True, 1)
