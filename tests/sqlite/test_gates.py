"""Gates in a file that others write too: at each claim, whatever becomes of the jobs, and whatever stands in the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._gates import By, GateRules, NewLimit
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from tests.sqlite.conftest import execute, new_job, query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob, Job, NewJob

pytestmark = pytest.mark.anyio

BY_TENANT = {"a": GateRules(type="a", limit=True, limit_by=By("tenant"))}
SHARED = {"a": GateRules(type="a", shared="stripe"), "b": GateRules(type="b", shared="stripe")}
RATE = {"a": GateRules(type="a", rate=True)}
FAIR = {"a": GateRules(type="a", fair_by=By("tenant"))}


def of_tenant(tenant: str, job_type: str = "a", **options: object) -> NewJob:
    return new_job(job_type, payload=b'{"tenant":"%s"}' % tenant.encode(), **options)


async def claimed(store: SQLiteStore, rules: dict[str, GateRules], limit: int = 100, *types: str) -> Sequence[ClaimedJob]:
    lease = await store.open_lease("w", 600)
    return await store.claim(lease, types or sorted(rules) or ["a"], limit, gates=rules)


async def settle(store: SQLiteStore, job: ClaimedJob, kind: SettlementKind = SettlementKind.COMPLETED, **more: object) -> None:
    (result,) = await store.settle([Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, **more)])
    assert result.lost is None


async def fetched(store: SQLiteStore, job_id: UUID) -> Job:
    (found,) = await store.fetch([job_id])
    assert found is not None
    return found


async def test_no_more_run_at_a_limit_than_it_says_and_the_others_say_what_they_wait_for(store: SQLiteStore) -> None:
    await store.put_limits([NewLimit(name="job:a", places=3)], defined=True)
    jobs = [of_tenant("acme") for _ in range(10)]
    other = of_tenant("other")
    await store.insert([*jobs, other])
    running = await claimed(store, BY_TENANT)
    assert [each.id for each in running] == [*(job.id for job in jobs[:3]), other.id]
    assert await claimed(store, BY_TENANT) == []
    waiting = await fetched(store, jobs[3].id)
    assert (waiting.state, waiting.held_by) == (JobState.HELD, 'job:a="acme"')
    await settle(store, running[0])
    assert [each.id for each in await claimed(store, BY_TENANT)] == [jobs[3].id]
    assert await claimed(store, BY_TENANT) == []
    (status,) = await store.gate_statuses(['job:a="acme"'])
    assert (status.places, status.count, status.waiting) == (3, 3, 6)
    (limit,) = await store.list_limits()
    assert (limit.running, limit.waiting, limit.defined, limit.changed) == (4, 6, True, False)


@pytest.mark.parametrize("how", ["completed", "failed", "retried", "released", "cancelled", "deleted", "erased", "recovered"])
async def test_whatever_becomes_of_a_running_job_the_next_one_comes(store: SQLiteStore, path: Path, how: str) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    jobs = [new_job("a"), new_job("b")]
    await store.insert(jobs)
    (first,) = await claimed(store, SHARED)
    assert await claimed(store, SHARED) == []
    match how:
        case "completed" | "failed":
            await settle(store, first, SettlementKind(4 if how == "completed" else 6))
        case "retried":
            await settle(store, first, SettlementKind.RETRIED, delay=60.0)
        case "released":
            await store.reschedule([jobs[1].id], delay=0.0)
            await store.release(first.lease_id, [first.claim])
        case "cancelled":
            await store.cancel([first.id], "enough")
            await settle(store, first, SettlementKind.CANCELLED)
        case "deleted":
            await store.delete([first.id])
        case "erased":
            execute(path, f"DELETE FROM job WHERE id = '{first.id}'")
        case _:
            execute(path, "DELETE FROM lease")
            (orphan,) = await store.take_expired(10)
            done = Settlement(
                id=orphan.id, claims=orphan.claims, lease_id=orphan.lease_id, kind=SettlementKind.RETRIED, delay=60.0
            )
            await store.settle([done], orphaned=True)
    came = await claimed(store, SHARED)
    assert len(came) == 1
    if how != "released":
        assert came[0].id == jobs[1].id
    assert query(path, "SELECT count(*) FROM gate_place") == [(1,)]
