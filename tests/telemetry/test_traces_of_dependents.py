"""What is enqueued with an outcome is sent by its attempt; jobs that have waited name what they have waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Call, Client, Fixed, Registry, Retry, Worker, current_attempt
from aioqueue.testing import MemoryStore
from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore()) as client:
        yield client


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def test_what_is_enqueued_with_an_outcome_is_sent_once_it_is_written(
    client: Client, registry: Registry, spans: Recorded
) -> None:
    @registry.job
    async def child(number: int) -> int:
        return number

    @registry.job
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent() -> None:
        attempt = current_attempt()
        attempt.enqueue(total([child(1).output, child(2).output]))
        if attempt.number == 1:
            raise ValueError("boom")

    await client.enqueue(parent())
    await Worker(client, registry).run_once()
    first, second = spans.named("process parent")
    dropped, sent = spans.named("send")  # of two types, so no type is named
    assert (dropped.attributes or {})["error.type"] == "dropped"
    assert "error.type" not in (sent.attributes or {})
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    for attempt, send in ((first, dropped), (second, sent)):
        assert attempt.context is not None
        assert send.parent is not None
        assert send.parent.span_id == attempt.context.span_id
    children = spans.named("process child")
    for process in (*children, spans.one("process total")):
        assert process.parent is not None
        assert sent.context is not None
        assert process.parent.span_id == sent.context.span_id
    waited = (spans.one("process total").attributes or {})["aioqueue.blockers"]
    assert list(waited) == [(each.attributes or {})["messaging.message.id"] for each in children]


async def test_a_completing_transaction_ends_the_span_once(client: Client, registry: Registry, spans: Recorded) -> None:
    @registry.job
    async def child() -> None: ...

    @registry.job
    async def parent() -> str:
        async with current_attempt().completion() as tx:
            current_attempt().enqueue(child())
            result = tx.done("value")
        raise ValueError(result)

    await client.enqueue(parent())
    await Worker(client, registry).run_once()
    process = spans.one("process parent")
    assert (process.attributes or {})["aioqueue.outcome"] == "ok"
    assert spans.counts()["send child"] == 1
    assert spans.counts()["process child"] == 1


async def test_a_call_is_sent_with_what_it_waits_for_as_one(client: Client, registry: Registry, spans: Recorded) -> None:
    @registry.job
    async def part(number: int) -> int:
        return number

    @registry.job
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    await client.enqueue(total([part(1).output, part(2).output]))
    sent = spans.one("send")
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    async with client.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            async with tx.savepoint():
                await tx.enqueue(part(3))
                raise ZeroDivisionError
        async with tx.savepoint():
            await tx.enqueue(part(4))
    rolled_back, committed = spans.named("send part")
    assert (rolled_back.attributes or {})["error.type"] == "rolled_back"
    assert "error.type" not in (committed.attributes or {})
    await Worker(client, registry).run_once()
    parents = [each.parent.span_id for each in spans.named("process part") if each.parent is not None]
    assert parents.count(sent.context.span_id) == 2


async def test_what_is_continued_from_outside_keeps_the_chains_trace(
    client: Client, registry: Registry, spans: Recorded
) -> None:
    @registry.declare
    def ask(number: int) -> Call[int]:
        raise NotImplementedError

    @registry.job
    async def last(number: int) -> int:
        return number

    handle = await client.enqueue(ask(1))
    await client.complete(ask, handle, last(2))
    await Worker(client, registry).run_once()
    assert spans.one("process last").context.trace_id == spans.one("send ask").context.trace_id
    assert await handle.result(timeout=5) == 2
