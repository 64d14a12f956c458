"""The spans of a chain: one trace from type to type, a new one with a link where it loops; one conversation."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, Client, Fixed, Registry, Retry, Worker, current_attempt, done
from aioqueue.telemetry import _tracing
from aioqueue.telemetry._counters import LEDGER, AttemptOutcome
from aioqueue.testing import MemoryStore
from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from opentelemetry.sdk.trace import ReadableSpan

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(name="first")
async def first(number: int) -> Call[int]:
    return second(number)


@registry.job(name="second", retry=Retry(max_attempts=2, backoff=Fixed(0)))
def second(number: int) -> Call[int]:
    if number < 0 and current_attempt().number == 1:
        raise ValueError("not yet")
    return first(number - 1) if number > 0 else done(number)


@registry.job(name="loop")
async def loop(number: int) -> Call[int]:
    return loop(number - 1) if number > 0 else done(number)


@registry.job(name="forgets")
async def forgets() -> Call[Any]:
    wrong: Any = 5
    return wrong


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore()) as client:
        yield client


async def drained(client: Client, call: Call[Any], **options: Any) -> JobHandle[Any]:
    handle = await client.enqueue(call)
    await Worker(client, registry, name="w", **options).run_once()
    return handle


def in_order(spans: Recorded) -> list[ReadableSpan]:
    return sorted((span for span in spans.all() if span.name != "settle"), key=lambda span: span.start_time or 0)


def outcome(span: ReadableSpan) -> object:
    return dict(span.attributes or {}).get("aioqueue.outcome")


async def test_a_step_is_a_child_of_the_attempt_before_it(client: Client, spans: Recorded) -> None:
    handle = await drained(client, first(0))
    send, one, two = in_order(spans)
    assert [span.name for span in (send, one, two)] == ["send first", "process first", "process second"]
    assert len({span.context.trace_id for span in (send, one, two)}) == 1
    assert [span.parent and span.parent.span_id for span in (one, two)] == [send.context.span_id, one.context.span_id]
    assert [outcome(span) for span in (one, two)] == ["ok", "ok"]
    assert {dict(span.attributes or {})["messaging.message.conversation_id"] for span in (send, one, two)} == {str(handle.id)}
    assert {span.status.is_unset for span in (one, two)} == {True}


async def test_a_loop_begins_a_trace_each_time_with_a_link(client: Client, spans: Recorded) -> None:
    handle = await drained(client, loop(2))
    send, *rounds = in_order(spans)
    assert len({span.context.trace_id for span in rounds}) == 3
    assert rounds[0].parent is not None
    assert rounds[0].parent.span_id == send.context.span_id
    for before, after in itertools.pairwise(rounds):
        assert after.parent is None
        assert [link.context.span_id for link in after.links] == [before.context.span_id]
    conversations = {dict(span.attributes or {})["messaging.message.conversation_id"] for span in rounds}
    assert conversations == {str(handle.id)}


async def test_a_long_chain_begins_another_trace_now_and_then(
    client: Client, spans: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tracing, "_MOST_STEPS_IN_A_TRACE", 3)
    await drained(client, first(3))
    steps = in_order(spans)[1:]
    assert len(steps) == 8
    assert [len(span.links) for span in steps] == [0, 0, 0, 1, 0, 0, 1, 0]
    assert len({span.context.trace_id for span in steps}) == 3


async def test_a_retried_step_is_linked_to_the_step_before(client: Client, spans: Recorded) -> None:
    await drained(client, first(-1))
    _, one, failed, again = in_order(spans)
    assert [outcome(span) for span in (one, failed, again)] == ["ok", "retry", "ok"]
    assert failed.parent is not None
    assert failed.parent.span_id == one.context.span_id
    assert again.parent is None
    assert [link.context.span_id for link in again.links] == [one.context.span_id]


async def test_a_worker_that_makes_links_makes_one_of_each_step(client: Client, spans: Recorded) -> None:
    await drained(client, first(0), trace_links=True)
    steps = in_order(spans)[1:]
    assert [span.parent for span in steps] == [None, None]
    assert [len(span.links) for span in steps] == [1, 1]


async def test_a_worker_without_spans_passes_on_what_the_chain_came_with(client: Client, spans: Recorded) -> None:
    handle = await drained(client, first(0), tracing=False)
    (send,) = in_order(spans)
    stored = [job.trace for job in (await client.store.list_chain(handle.id, 10)).jobs]
    assert stored == [stored[0]] * 2
    assert f"{send.context.span_id:016x}" in str(stored[0])


async def test_without_an_sdk_nothing_is_stored(client: Client) -> None:
    handle = await drained(client, first(0))
    assert [job.trace for job in (await client.store.list_chain(handle.id, 10)).jobs] == [None, None]


async def test_what_is_stored_says_whether_it_is_a_link(client: Client, spans: Recorded) -> None:
    handles = [await drained(client, call) for call in (first(0), loop(1))]
    chains = [(await client.store.list_chain(handle.id, 10)).jobs for handle in handles]
    names = [[sorted(json.loads(job.trace or "{}")) for job in jobs] for jobs in chains]
    assert names == [[["traceparent"], ["traceparent"]], [["traceparent"], ["link", "traceparent"]]]


async def test_a_continued_attempt_is_counted_as_a_good_one(client: Client) -> None:
    before = LEDGER.total().of("loop").outcomes[AttemptOutcome.OK]
    await drained(client, loop(3))
    assert LEDGER.total().of("loop").outcomes[AttemptOutcome.OK] == before + 4


async def test_a_value_where_a_call_is_declared_is_poison(client: Client, spans: Recorded) -> None:
    before = LEDGER.total().of("forgets").outcomes[AttemptOutcome.POISON]
    await drained(client, forgets())
    assert LEDGER.total().of("forgets").outcomes[AttemptOutcome.POISON] == before + 1
    span = spans.one("process forgets")
    assert outcome(span) == "poison"
    assert dict(span.attributes or {})["error.type"] == "CallError"
    assert "return done(value)" in str(span.status.description)
