"""Never run: jobs that wait for others, and those that are ended from outside, as both type checkers must know them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal, assert_type
from uuid import UUID

from aioqueue import Blocker, Call, Changes, Client, Completed, Failed, JobHandle, Registry, done

registry = Registry(prefix="site.")


@registry.job
async def fetch(url: str) -> str:
    return url


@registry.job
async def nothing() -> None: ...


@registry.job
async def goes_to_text() -> Call[str]:
    return done("text")


@registry.declare
def refund(order_id: int) -> bool:
    raise NotImplementedError


@registry.declare
def decide(order_id: int) -> Call[bool]:
    raise NotImplementedError


@registry.declare
async def measure() -> Call[float]:
    raise NotImplementedError


@registry.job
async def report(pages: list[str], end: Completed[str] | Failed | None = None) -> int:
    if isinstance(end, Completed):
        assert_type(end.value, str)
    elif isinstance(end, Failed):
        assert_type(end.state, Literal["failed", "cancelled", "deleted"])
        assert_type(end.chain_id, UUID)
    return len(pages)


async def waits(client: Client, handle: JobHandle[str], chain: JobHandle[bool]) -> None:
    page = fetch("a")
    assert_type(page.output, str)
    assert_type(page.settled, Completed[str] | Failed)
    assert_type(handle.output, str)
    assert_type(handle.settled, Completed[str] | Failed)
    assert_type(decide(1).output, bool)
    assert_type(nothing().settled, Completed[None] | Failed)
    assert_type(report([page.output, handle.output], page.settled), Call[int])
    report([], goes_to_text().settled)
    assert_type(report([]).options(after=[page, handle, chain]), Call[int])
    report([]).options(after=None)
    more: Completed[object] | Failed = page.settled  # covariant
    del more


async def ends(client: Client, connection: sqlite3.Connection, job_id: UUID, handle: JobHandle[bool]) -> None:
    await client.complete(refund, job_id, True)
    await client.complete(refund, handle, False, tx=connection)
    await client.complete(decide, str(job_id), True)
    await client.complete(decide, job_id, done(True))
    await client.complete(decide, job_id, decide(1))
    await client.complete(decide, job_id, refund(1))
    await client.complete(nothing, job_id, None)
    await client.complete(measure, job_id, 1.5)
    await client.complete_by_name("site.refund", job_id, {"any": "value"})
    await client.fail(job_id, "no answer")
    async with client.transaction() as tx:
        await tx.complete(refund, job_id, True)
        await tx.fail(job_id, "no answer")
        async with tx.savepoint():
            await client.using(tx).complete(decide, job_id, decide(2))
        await client.fail(job_id, "no answer", tx=tx)
    assert_type(await client.blockers(job_id), Sequence[Blocker])
    assert_type(await client.dependents(handle, limit=5), Sequence[Blocker])
    assert_type(await client.delete(job_id, handle, cascade=True), Changes)
