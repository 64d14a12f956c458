"""Never run: what operators look at and change, as both type checkers must know it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from aioqueue import (
    AttemptLog,
    Blocker,
    Cancellation,
    Changed,
    Changes,
    Client,
    Job,
    JobAttempt,
    JobFilter,
    JobHandle,
    JobState,
    ListOrder,
    Page,
    Phase,
    Progress,
    Registry,
)

registry = Registry(prefix="site.")


@registry.job
async def fetch(url: str) -> str:
    return url


async def throttled(portion: Changes, total: Counter[Changed]) -> None:
    del portion, total


def told(portion: Changes, total: Counter[Changed]) -> int:
    return total[Changed.DONE] + len(portion.holders)


async def ended(portion: dict[UUID, Cancellation], total: Counter[Cancellation]) -> None:
    assert_type(portion.get(UUID(int=1)), Cancellation | None)
    assert_type(total[Cancellation.CANCELLING], int)


async def looks(client: Client, connection: sqlite3.Connection, job_id: UUID, handle: JobHandle[str]) -> None:
    assert_type(await client.job(job_id, tx=connection), Job)
    assert_type(await client.chain(handle, tx=connection), Job)
    assert_type(await client.chain_jobs(handle, limit=3, tx=connection), Page)
    assert_type(await client.blockers(job_id, tx=connection), Sequence[Blocker])
    assert_type(await client.dependents(job_id, tx=connection), Sequence[Blocker])
    assert_type(await client.find(fetch, key="k"), JobHandle[str] | None)
    assert_type(await client.find(fetch, key="k", tx=connection), JobHandle[str] | None)
    page = await client.list_jobs(
        states=["failed", JobState.READY],
        types=[fetch, "site.other"],
        key=None,
        tag="nightly",
        created_after=timedelta(hours=1),
        finished_before=datetime.now(UTC),
        worker="w",
        outcome="empty",
        error_type="ValueError",
        chain=handle,
        order=ListOrder.FINISHED,
        limit=10,
        tx=connection,
    )
    assert_type(page, Page)
    assert_type(await client.list_chains(states=["failed"], order="finished", cursor=page.cursor), Page)
    assert_type(await client.list_chains(where=JobFilter(types=[fetch], states=["failed"])), Page)


async def heard(progress: Progress) -> None:
    assert_type(progress.percent, float)


async def life(client: Client, handle: JobHandle[str]) -> None:
    assert_type(await handle.progress(), Progress | None)
    assert_type(await handle.result(timeout=3, on_progress=heard), str)
    assert_type(await handle.result(on_progress=lambda progress: progress.message), str)
    job = await handle.snapshot()
    assert_type(job.phases, tuple[Phase, ...])
    assert_type(job.attempts, tuple[JobAttempt, ...])
    assert_type(await client.logs(handle), Sequence[AttemptLog])
    assert_type(await client.logs(handle, tx=sqlite3.connect("a.db")), Sequence[AttemptLog])


async def changes(client: Client, connection: sqlite3.Connection, job_id: UUID, handle: JobHandle[Any]) -> None:
    failed = JobFilter(states=["failed", JobState.CANCELLED], types=[fetch], finished_after=datetime.now(UTC))
    assert_type(failed.states, frozenset[JobState])
    assert_type(await client.retry(job_id, handle, str(job_id)), Changes)
    assert_type(await client.retry(where=failed, from_start=True), Counter[Changed])
    assert_type(await client.reschedule(job_id, handle, delay=timedelta(hours=2)), Changes)
    assert_type(await client.reschedule(where=failed, at=datetime.now(UTC), on_portion=told), Counter[Changed])
    async with client.transaction() as tx:
        assert_type(await tx.reschedule(handle, delay=3), Changes)
        assert_type(await tx.logs(handle), Sequence[AttemptLog])
    assert_type((await client.retry(job_id, cascade=True, tx=connection)).holders, dict[UUID, UUID])
    assert_type(await client.retry(where=failed), Counter[Changed])
    assert_type(await client.retry(where=failed, on_portion=throttled, cascade=True), Counter[Changed])
    assert_type(await client.run_now(job_id), Changes)
    assert_type(await client.run_now(where=JobFilter(key="k"), on_portion=told, tx=connection), Counter[Changed])
    assert_type(await client.delete(job_id, cascade=True), Changes)
    assert_type(await client.delete(where=failed, on_portion=told), Counter[Changed])
    assert_type(await client.cancel(job_id, handle, str(job_id), reason="no"), dict[UUID, Cancellation])
    assert_type(await client.cancel(where=JobFilter(key="k"), on_portion=ended, tx=connection), Counter[Cancellation])
    assert_type(await handle.cancel(reason="no"), Cancellation)
    plain: dict[UUID, Changed] = await client.retry(job_id)
    del plain


async def within(client: Client, connection: sqlite3.Connection, job_id: UUID) -> None:
    async with client.transaction() as tx:
        assert_type(await tx.find(fetch, key="k"), JobHandle[str] | None)
        assert_type(await tx.job(job_id), Job)
        assert_type(await tx.list_jobs(states=["ready"], order="due"), Page)
        assert_type(await tx.retry(job_id), Changes)
        assert_type(await tx.delete(where=JobFilter(key="k")), Counter[Changed])
        assert_type(await client.run_now(job_id, tx=tx), Changes)
        assert_type(await tx.cancel(job_id), dict[UUID, Cancellation])
    bound = client.using(connection)
    assert_type(await bound.chain(job_id), Job)
    assert_type(await bound.list_chains(key="k"), Page)
    assert_type(await bound.run_now(where=JobFilter(key="k")), Counter[Changed])
    assert_type(await bound.cancel(where=JobFilter(key="k"), reason="no"), Counter[Cancellation])
