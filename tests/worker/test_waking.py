"""What makes a worker look for jobs, and what needn't."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, Registry, Retry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.abc import Due
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


@pytest.fixture
def claims(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many jobs each claim asked for, and got."""
    seen: list[tuple[int, int]] = []
    claim: Callable[..., Sequence[ClaimedJob]] = client.store.claim

    async def counted(lease_id: int, types: Sequence[str], limit: int, **named: Any) -> Sequence[ClaimedJob]:
        jobs = await claim(lease_id, types, limit, **named)
        seen.append((limit, len(jobs)))
        return jobs

    monkeypatch.setattr(client.store, "claim", counted)
    return seen


async def test_a_slot_that_is_free_again_is_no_reason_to_look_when_nothing_was_left(client: Client, claims) -> None:
    registry = Registry()

    @registry.job
    async def quick(number: int) -> int:
        return number

    async with Worker(client, registry, concurrency=10, lease=3600, poll_interval=3600):
        for number in range(30):
            assert await (await client.enqueue(quick(number))).result(timeout=60) == number
    assert sum(got for _, got in claims) == 30
    assert len(claims) < 45  # one for each, and a few for what else woke it


async def test_a_slot_that_is_free_again_is_filled_when_something_may_be_left(client: Client, claims) -> None:
    """With no poll and no notification that could help."""
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
    async def quick(number: int) -> int:
        if current_attempt().number == 1 and number % 5 == 0:
            raise ValueError("the first time")
        return number

    handles = await client.enqueue_many([quick(number) for number in range(40)])
    async with Worker(client, registry, concurrency=3, lease=3600, poll_interval=3600):
        assert [await handle.result(timeout=60) for handle in handles] == list(range(40))
    assert sum(got for _, got in claims) == 48


@pytest.mark.parametrize("concurrency", [1, 3, 100])
async def test_once_ends_when_the_last_has_ended(client: Client, claims, concurrency: int) -> None:
    registry = Registry()

    @registry.job
    async def quick(number: int) -> int:
        return number

    handles = await client.enqueue_many([quick(number) for number in range(12)])
    await Worker(client, registry, concurrency=concurrency, lease=3600, poll_interval=3600).run_once()
    assert [(await handle.snapshot()).output for handle in handles] == list(range(12))


async def test_what_was_locked_at_the_claim_is_claimed_a_little_later(client: Client, monkeypatch) -> None:
    """As on PostgreSQL, where rows that another transaction has locked are passed over."""
    registry = Registry()

    @registry.job
    async def quick(number: int) -> int:
        return number

    claim, passed_over = client.store.claim, 3

    async def passes_over(lease_id: int, types: Sequence[str], limit: int, **named: Any) -> Sequence[ClaimedJob]:
        nonlocal passed_over
        if passed_over:
            passed_over -= 1
            return []
        return await claim(lease_id, types, limit, **named)

    monkeypatch.setattr(client.store, "claim", passes_over)
    handles = await client.enqueue_many([quick(number) for number in range(3)])
    async with Worker(client, registry, lease=3600, poll_interval=3600):
        assert [await handle.result(timeout=60) for handle in handles] == [0, 1, 2]


async def test_once_looks_again_when_something_has_ended_while_it_asked_what_is_due(client: Client, monkeypatch) -> None:
    """What is due by then wasn't when the question was answered."""
    registry = Registry()
    asked = asyncio.Event()
    next_due = client.store.next_due

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def second_time() -> int:
        await asked.wait()
        if current_attempt().number == 1:
            raise ValueError("the first time")
        return current_attempt().number

    handle = await client.enqueue(second_time())

    async def late(types: Sequence[str], **others: Any) -> Due:
        due = await next_due(types, **others)
        if not asked.is_set():
            asked.set()
            while not (await handle.snapshot()).errors:
                await asyncio.sleep(0)
        return due

    monkeypatch.setattr(client.store, "next_due", late)
    result = await Worker(client, registry, concurrency=2, lease=3600, poll_interval=3600).run_once()
    assert (result.retried, result.completed) == (1, 1)
