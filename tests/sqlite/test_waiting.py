"""Jobs that wait for others: in portions, beside others, and with nothing left of it in the end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.errors import BlockerCycle, BlockerNotFound, StoreIncompatible
from aioqueue.sqlite import _resolve, _tend_look
from aioqueue.sqlite._errors import translated
from aioqueue.vocabulary._blockers import NewBlocker, Tended
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind, StoredState
from tests.sqlite.chains import continued, end
from tests.sqlite.conftest import execute, new_job, outsider, query
from tests.sqlite.waiting import after, claim_waiting, complete, running, state_of, tend_all

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

LEFT = "SELECT (SELECT count(*) FROM blocker), (SELECT count(*) FROM chain_end)"


async def test_many_dependents_are_told_in_portions(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resolve, "MOST_TOLD", 3)
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    await store.insert([after(job.id) for _ in range(10)])
    (result,) = await store.settle([end(job, output=b"1")])
    assert (result.lost, result.more) == (None, True)
    assert len(await store.claim(lease, ["waits"], 100)) == 3
    assert [each.resolved for each in await tend_all(store, 4)] == [4, 3]
    claimed = await store.claim(lease, ["waits"], 100)
    assert [each.blockers[0].output for each in claimed] == [b"1"] * 7
    assert await store.list_dependents(job.id, 100) == []


async def test_only_the_guilty_one_of_a_batch_is_refused(store: SQLiteStore, path: Path) -> None:
    """Its neighbours are written, those with children and those that wait too."""
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(6)]
    child, unknown = new_job("child"), new_id()
    following = replace(new_job("next"), blockers=(NewBlocker(child.id),))
    results = await store.settle(
        [
            end(jobs[0]),
            end(jobs[1], children=(child,), kind=SettlementKind.CONTINUED, next=following),
            end(jobs[2], children=(new_job("no"), after(unknown))),
            continued(jobs[3], replace(new_job("no"), blockers=(NewBlocker(unknown),))),
            continued(jobs[4], replace(new_job("no"), blockers=(NewBlocker(jobs[4].id),))),
            end(jobs[5]),
        ]
    )
    assert [each.lost for each in results] == [None] * 6
    refused = [each.refused for each in results]
    assert [type(each) for each in refused] == [*[type(None)] * 2, BlockerNotFound, BlockerNotFound, BlockerCycle, type(None)]
    assert [each.blocker_id for each in refused if isinstance(each, BlockerNotFound)] == [unknown] * 2
    types = query(path, "SELECT type, state, open_blockers FROM job WHERE state < 2 ORDER BY type")
    assert types == [("child", 1, 0), ("next", 0, 1)]
    assert query(path, "SELECT count(*) FROM job WHERE state = 2") == [(3,)]


async def test_a_child_that_fails_with_its_insert(store: SQLiteStore) -> None:
    """The next step that waits for it hears of that without any search for what was left."""
    lease = await store.open_lease("w", 600)
    job, broken = await running(store, lease), await running(store, lease)
    await store.settle([end(broken, SettlementKind.FAILED)])
    child = after(broken.id)
    following = replace(new_job("next"), blockers=(NewBlocker(child.id),))
    (result,) = await store.settle([end(job, SettlementKind.CONTINUED, children=(child,), next=following)])
    assert (result.refused, await state_of(store, child.id)) == (None, JobState.FAILED)
    (portion,) = await tend_all(store)
    assert portion.failed == 1
    (found,) = await store.fetch([following.id])
    assert found is not None
    assert found.last_error is not None
    assert found.last_error.message == f"it waited for a {broken.id}: failed"


async def test_two_that_would_wait_for_each_other_in_one_batch(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    one, other = await running(store, lease), await running(store, lease)
    results = await store.settle(
        [
            continued(one, replace(new_job("next"), blockers=(NewBlocker(other.id),))),
            continued(other, replace(new_job("next"), blockers=(NewBlocker(one.id),))),
        ]
    )
    assert sorted(type(each.refused).__name__ for each in results) == ["BlockerCycle", "NoneType"]
    assert query(path, "SELECT count(*) FROM job WHERE state = 0") == [(1,)]


async def test_a_cycle_through_many_chains(store: SQLiteStore) -> None:
    """Through first and later steps, and beside those that have ended."""
    lease = await store.open_lease("w", 600)
    ended = await running(store, lease)
    jobs = [await running(store, lease) for _ in range(5)]
    await store.settle([end(ended)])
    for job, waits_for in itertools.pairwise(jobs):
        following = replace(new_job("next"), blockers=(NewBlocker(ended.id), NewBlocker(waits_for.id)))
        (result,) = await store.settle([continued(job, following)])
        assert result.refused is None
    first = after(jobs[0].id)
    await store.insert([first])
    (result,) = await store.settle([continued(jobs[-1], replace(new_job("next"), blockers=(NewBlocker(first.id),)))])
    assert isinstance(result.refused, BlockerCycle)
    await complete(store, jobs[-1])
    (found,) = await store.list_dependents(jobs[0].id, 10)
    assert found.job_id == first.id


async def test_nothing_is_left_in_the_end(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(3)]
    await store.insert([after(*(job.id for job in jobs)), after(jobs[0].id, settled=True)])
    for job in jobs:
        await complete(store, job)
    assert query(path, LEFT) == [(4, 3)]
    for claimed in await store.claim(lease, ["waits"], 10):
        await complete(store, claimed)
    await tend_all(store)
    assert query(path, LEFT) == [(0, 0)]
    assert await store.tend(100) == Tended()


async def test_what_failed_keeps_what_a_retry_needs(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    new = after(job.id)
    await store.insert([new])
    await store.settle([end(job, SettlementKind.FAILED)])
    await tend_all(store)
    assert query(path, LEFT) == [(1, 1)]
    await store.prune(StoredState.FAILED, 0.0, None, 100)
    await tend_all(store)
    await tend_all(store)
    assert query(path, LEFT) == [(0, 0)]


async def test_tending_needs_no_lock_where_there_is_nothing_to_do(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    await store.insert([after((await running(store, lease)).id)])
    with outsider(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(10):
            assert await store.tend(100) == Tended()


async def test_the_walks_come_to_all_rows(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a portion, and begin anew after the last."""
    monkeypatch.setattr(_tend_look, "_WALK", 2)
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(7)]
    waiting = [after(job.id, settled=True) for job in jobs]
    await store.insert(waiting)
    for _ in range(2):
        await store.tend(100)
    execute(path, f"DELETE FROM job WHERE id IN ('{jobs[0].id}', '{jobs[6].id}')")
    resolved = 0
    for _ in range(8):
        resolved += (await store.tend(100)).resolved
    assert resolved == 2
    assert [await state_of(store, each.id) for each in waiting] == [JobState.READY, *[JobState.BLOCKED] * 5, JobState.READY]
    execute(path, "DELETE FROM job", "DELETE FROM archive")
    for _ in range(20):
        await store.tend(100)
    assert query(path, LEFT) == [(0, 0)]


async def test_workers_of_older_code_claim_nothing_more(store: SQLiteStore, path: Path) -> None:
    """They would run a job with null where an output belongs; so they stop, with a reason."""
    with outsider(path) as other, pytest.raises(StoreIncompatible, match="no such index: job_ready"), translated():
        other.execute("SELECT run_at, id FROM job INDEXED BY job_ready WHERE state = 1 AND type = 'a' AND priority = 1")


async def test_ends_that_older_code_or_sql_wrote_are_told(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    ends = {SettlementKind.COMPLETED: JobState.READY, SettlementKind.FAILED: JobState.FAILED}
    for kind, state in ends.items():
        job = await running(store, lease)
        new = after(job.id)
        await store.insert([new])
        execute(path, "UPDATE job SET marked = 0 WHERE state = 2")
        await store.settle([end(job, kind, output=b'"out"' if kind is SettlementKind.COMPLETED else None)])
        assert await state_of(store, new.id) is JobState.BLOCKED
        await tend_all(store)
        assert await state_of(store, new.id) is state
    assert [each.output for each in (await claim_waiting(store, lease)).blockers] == [b'"out"']


async def test_a_chain_that_was_deleted_by_sql(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    strict, lenient = after(job.id), after(job.id, settled=True)
    await store.insert([strict, lenient])
    execute(path, f"DELETE FROM job WHERE id = '{job.id}'")
    await tend_all(store)
    (found,) = await store.fetch([strict.id])
    assert found is not None
    assert found.last_error is not None
    assert (found.state, found.last_error.message) == (JobState.FAILED, f"it waited for a job {job.id}: deleted")
    assert (await claim_waiting(store, lease)).blockers[0].end.name == "DELETED"


async def test_many_chains_that_were_deleted_by_sql(store: SQLiteStore, path: Path) -> None:
    """What is more than a portion follows at once, and doesn't wait until the walk comes again."""
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(10)]
    await store.insert([after(job.id) for job in jobs])
    execute(path, "DELETE FROM job WHERE state = 2")
    assert [each.failed for each in await tend_all(store, 4)][:3] == [4, 4, 2]


async def test_a_next_job_behind_a_child_that_fails_at_once_isnt_a_circle(store: SQLiteStore) -> None:
    """The child would wait for the chain whose next job waits for it; but what else it waits for has failed already."""
    lease = await store.open_lease("w", 600)
    failed = await running(store, lease)
    await store.settle([end(failed, kind=SettlementKind.FAILED)])
    job = await running(store, lease)
    child = after(job.id, failed.id)
    following = replace(after(child.id, settled=True), type="next")
    (result,) = await store.settle([end(job, kind=SettlementKind.CONTINUED, next=following, children=(child,))])
    assert (result.lost, result.refused) == (None, None)
    await tend_all(store)
    assert (await state_of(store, child.id), await state_of(store, following.id)) == (JobState.FAILED, JobState.READY)
    other = await running(store, lease)
    child = after(other.id)
    (result,) = await store.settle([end(other, kind=SettlementKind.CONTINUED, next=after(child.id), children=(child,))])
    assert isinstance(result.refused, BlockerCycle)
