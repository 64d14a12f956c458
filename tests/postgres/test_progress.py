"""What workers say of running jobs, on PostgreSQL: it waits for nobody's lock on a job, and nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import Changed
from aioqueue.errors import RowRejected, StoreContended
from aioqueue.vocabulary._job import LostReason, SettleResult
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite, ProgressWrite
from tests.postgres.stores import claimed, completed, connected, opened

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


def phase(job: ClaimedJob, name: str = "one", state: PhaseState = PhaseState.COMPLETED, **values: Any) -> PhaseWrite:
    fence = {"id": job.id, "claims": job.claims, "lease_id": job.lease_id}
    return PhaseWrite(**{"result": b"1" if state is PhaseState.COMPLETED else None, **fence, **values}, name=name, state=state)


def progress(job: ClaimedJob, percent: float = 50, **values: Any) -> ProgressWrite:
    return ProgressWrite(**{"id": job.id, "claims": job.claims, "lease_id": job.lease_id, "percent": percent, **values})


async def test_a_completing_transaction_and_a_word_about_its_job_dont_wait_for_each_other(postgres_url: str) -> None:
    """`completion()` has the row locked all the while; and a settlement isn't kept by what was said at that moment."""
    async with opened(postgres_url) as store, connected(postgres_url) as holder, asyncio.timeout(60):
        _, (job,) = await claimed(store)
        async with holder.transaction():
            await holder.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", job.id)
            assert await store.write_phases([phase(job, state=PhaseState.RUNNING), phase(job)]) == [None, None]
            await store.write_progress([progress(job, message="half", phase="one", phases=("one", 'odd "{},\\'))])
        async with holder.transaction():
            await holder.execute("UPDATE aioqueue.progress SET percent = 51 WHERE job_id = $1", job.id)
            await holder.execute("UPDATE aioqueue.phase SET name = name WHERE job_id = $1", job.id)
            assert await store.settle([completed(job)]) == [SettleResult()]
        ((found,), (end,)) = await store.fetch([job.id]), await store.fetch_ends([job.id])
        assert found is not None
        assert found == end
        assert [(each.name, each.state, each.result) for each in found.phases] == [("one", PhaseState.COMPLETED, 1)]
        assert found.phases[0].started_at
        assert found.phases[0].finished_at
        assert found.progress is not None
        assert (found.progress.percent, found.progress.message, found.progress.phases) == (51, "half", ("one", 'odd "{},\\'))


async def test_what_somebody_holds_keeps_nobody_else(postgres_url: str) -> None:
    """One job is being deleted by an open transaction: words about the others are stored meanwhile."""
    async with opened(postgres_url) as store, connected(postgres_url) as holder, asyncio.timeout(60):
        _, (held, free) = await claimed(store, jobs=2)
        await store.write_phases([phase(held), phase(free)])
        await store.write_progress([progress(held), progress(free)])
        async with holder.transaction():
            assert await store.within(holder).delete([held.id]) == [Changed.DONE]
            await store.write_progress([progress(held, 60), progress(free, 60)])
            with pytest.raises(StoreContended):
                await store.write_phases([phase(held, result=b"2"), phase(free, result=b"2")])
            (found,) = await store.fetch([free.id])
            assert found is not None
            assert found.progress is not None
            assert (found.progress.percent, [each.result for each in found.phases]) == (60, [2])
        assert await store.write_phases([phase(held)]) == [LostReason.NOT_FOUND]
        for table in ("phase", "progress"):
            rows = await holder.fetch(f"SELECT job_id FROM aioqueue.{table}")
            assert [row[0] for row in rows] == [free.id]


async def test_a_row_that_cant_be_stored_keeps_no_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, jobs = await claimed(store, jobs=5)
        with pytest.raises(RowRejected):
            await store.write_progress([progress(job, message="\0" if job is jobs[2] else "fine") for job in jobs])
        found = await store.fetch([job.id for job in jobs])
        assert [each and each.progress and each.progress.message for each in found] == ["fine", "fine", None, "fine", "fine"]
        with pytest.raises(RowRejected):
            await store.write_phases([phase(jobs[0]), phase(jobs[1], result=b"{")])
        assert await store.fetch_phases(jobs[0].id) == []


async def test_words_are_few_and_small_writes(postgres_url: str) -> None:
    """The job's row isn't written, and what is said over and over stays on its page."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        _, (job,) = await claimed(store)
        before = await connection.fetchval("SELECT xmin::text || ctid::text FROM aioqueue.job")
        for percent in range(50):
            await store.write_progress([progress(job, percent)])
        assert await connection.fetchval("SELECT xmin::text || ctid::text FROM aioqueue.job") == before
        await connection.execute("SELECT pg_stat_force_next_flush()")
        async with asyncio.timeout(60):
            while True:
                updates, hot = await connection.fetchrow(
                    "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'progress'"
                )
                if updates >= 49:
                    break
                await asyncio.sleep(0.05)
        assert hot >= updates - 2


async def test_odd_values_that_somebody_wrote_are_shown_as_well_as_they_can_be(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        _, (job,) = await claimed(store)
        await store.write_phases([phase(job)])
        await store.write_progress([progress(job)])
        await connection.execute("UPDATE aioqueue.phase SET state = 99, started_at = '-infinity', finished_at = 'infinity'")
        await connection.execute(
            "UPDATE aioqueue.progress SET percent = 'NaN', at = '4000-01-01 BC', phases = '{{a,NULL},{b,c}}'"
        )
        (found,) = await store.fetch([job.id])
        assert found is not None
        assert found.progress is not None
        assert found.progress.phases == ("a", "b", "c")
        assert [each.state for each in found.phases] == [PhaseState.RUNNING]
