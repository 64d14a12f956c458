"""Spans: one for each call that enqueues, one for each attempt, one for each batch of outcomes; and how they hang together."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from aioqueue import Client, Fixed, Registry, Retry, Worker, current_attempt
from aioqueue.errors import ConfigurationError
from tests.sqlite.conftest import execute
from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(name="add")
async def add(a: int) -> int:
    return a + 1


@registry.job(name="show")
async def show() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:x}"


@registry.job(name="show-in-a-thread")
def show_in_a_thread() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:x}"


@registry.job(name="first")
async def first() -> str:
    client = current_attempt().client
    assert isinstance(client, Client)
    return str((await client.enqueue(add(1))).id)


@registry.job(name="flaky", retry=Retry(max_attempts=2, backoff=Fixed(0.0)))
async def flaky() -> None:
    if current_attempt().number == 1:
        raise ValueError("not yet")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


async def drained(client: Client, **options: Any) -> None:
    await Worker(client, registry, name="w", poll_interval=0.1, **options).run_once()


async def test_an_attempt_is_a_child_of_what_has_enqueued_it(each_url: str, spans: Recorded) -> None:
    client = Client(each_url)
    if each_url.startswith("postgres"):
        await client.migrate()
    async with client:
        with spans.provider.get_tracer("app").start_as_current_span("request") as request:
            handle = await client.enqueue(add(1))
        await drained(client)
        stored = (await client.job(handle)).trace
    assert spans.counts() == {"send add": 1, "request": 1, "process add": 1, "settle": 1}
    send, process, settle = spans.one("send add"), spans.one("process add"), spans.one("settle")
    trace_id = request.get_span_context().trace_id
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert {send.context.trace_id, process.context.trace_id} == {trace_id}
    assert (send.kind, process.kind, settle.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT)
    assert dict(send.attributes or {}) == {
        "messaging.system": "aioqueue",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "add",
        "messaging.message.id": str(handle.id),
        "messaging.message.conversation_id": str(handle.id),
    }
    found = dict(process.attributes or {})
    assert 0 <= found.pop("aioqueue.delay") < 60
    assert found == {
        "messaging.system": "aioqueue",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "add",
        "messaging.message.id": str(handle.id),
        "messaging.message.conversation_id": str(handle.id),
        "messaging.client.id": "w",
        "aioqueue.attempt": 1,
        "aioqueue.outcome": "ok",
    }
    assert dict(settle.attributes or {}) == {
        "messaging.system": "aioqueue",
        "messaging.operation.name": "settle",
        "messaging.operation.type": "settle",
        "messaging.batch.message_count": 1,
        "messaging.client.id": "w",
    }
    assert json.loads(stored or "")["traceparent"].startswith(f"00-{trace_id:032x}-{send.context.span_id:016x}-0")
    assert {each.status.status_code for each in spans.all()} == {StatusCode.UNSET}


async def test_one_trace_leads_through_a_job_that_enqueues_another(client: Client, spans: Recorded) -> None:
    await client.enqueue(first())
    await drained(client)
    assert spans.counts().keys() == {"send first", "process first", "send add", "process add", "settle"}
    traces = {each.context.trace_id for each in spans.all() if each.name != "settle"}
    assert len(traces) == 1
    inner = spans.one("send add")
    assert inner.parent is not None
    assert inner.parent.span_id == spans.one("process first").context.span_id


@pytest.mark.parametrize("job", [show, show_in_a_thread], ids=["in the loop", "in a thread"])
async def test_the_span_is_current_in_the_handler_and_nowhere_else(
    client: Client, spans: Recorded, job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handles = [await client.enqueue(job()) for _ in range(20)]
    await drained(client, concurrency=5)
    seen = {await handle.result(timeout=10) for handle in handles}
    assert seen == {f"{span.context.span_id:x}" for span in spans.named(f"process {job.name}")}
    assert len(seen) == 20
    assert not trace.get_current_span().get_span_context().is_valid
    assert "detach" not in caplog.text


async def test_a_retry_is_a_trace_of_its_own_with_a_link(client: Client, spans: Recorded) -> None:
    await client.enqueue(flaky())
    await drained(client)
    send = spans.one("send flaky")
    begun, again = sorted(spans.named("process flaky"), key=lambda span: span.start_time or 0)
    assert begun.parent is not None
    assert begun.parent.span_id == send.context.span_id
    assert again.parent is None
    assert again.context.trace_id != send.context.trace_id
    assert [link.context.span_id for link in again.links] == [send.context.span_id]
    assert [dict(each.attributes or {})["aioqueue.attempt"] for each in (begun, again)] == [1, 2]
    assert [dict(each.attributes or {})["aioqueue.outcome"] for each in (begun, again)] == ["retry", "ok"]


@pytest.mark.parametrize("by_variable", [False, True])
async def test_first_attempts_are_linked_if_that_is_wanted(
    client: Client, spans: Recorded, by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_variable:
        monkeypatch.setenv("AIOQUEUE_TRACE_LINKS", "yes")
    await client.enqueue(add(1))
    await drained(client, **({} if by_variable else {"trace_links": True}))
    process = spans.one("process add")
    assert process.parent is None
    assert [link.context.span_id for link in process.links] == [spans.one("send add").context.span_id]


async def test_enqueue_many_is_one_span(client: Client, spans: Recorded) -> None:
    await client.enqueue_many([add(number) for number in range(3)])
    await client.enqueue_many([add(1), show()])
    assert await client.enqueue_many([]) == []
    assert spans.counts() == {"send add": 1, "send": 1}
    found = dict(spans.one("send add").attributes or {})
    assert found["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in found
    assert "messaging.destination.name" not in dict(spans.one("send").attributes or {})
    await drained(client)
    parents = {each.parent.span_id for each in spans.named("process add") if each.parent is not None}
    assert parents == {each.context.span_id for each in (spans.one("send add"), spans.one("send"))}


async def test_gathered_enqueues_end_after_their_commit(
    client: Client, spans: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()
    insert = client.store.insert

    async def held(*arguments: Any, **named: Any) -> Any:
        begun.set()
        await gate.wait()
        return await insert(*arguments, **named)

    monkeypatch.setattr(client.store, "insert", held)
    tasks = [asyncio.ensure_future(client.enqueue(add(number))) for number in range(5)]
    await begun.wait()
    assert spans.all() == []
    gate.set()
    ids = {str((await each).id) for each in tasks}
    assert {dict(each.attributes or {})["messaging.message.id"] for each in spans.named("send add")} == ids


async def test_an_enqueueing_that_fails_says_so(client: Client, spans: Recorded) -> None:
    call = add(1)
    await client.enqueue(call)
    with pytest.raises(Exception, match="enqueued already"):
        await client.enqueue(call)
    (failed,) = [each for each in spans.named("send add") if each.status.status_code is StatusCode.ERROR]
    assert dict(failed.attributes or {})["error.type"] == "CallAlreadyEnqueued"


async def test_a_taken_key_names_the_job_that_is_there(client: Client, spans: Recorded) -> None:
    there = await client.enqueue(add(1).options(key="k", unique=True))
    await client.enqueue(add(1).options(key="k", unique=True))
    assert [dict(each.attributes or {})["messaging.message.id"] for each in spans.named("send add")] == [str(there.id)] * 2


@pytest.mark.parametrize(
    "stored",
    [
        "5",
        "''",
        "x'00ff'",
        "'{}'",
        "'{\"traceparent\": 5}'",
        '\'{"traceparent": "00-1-1-1"}\'',
        '\'{"b3": "1"}\'',
        "hex(zeroblob(100000))",
        "CAST(x'ff' AS TEXT)",
        "'not json'",
        "9e999",
    ],
)
async def test_a_bad_stored_context_harms_nothing(
    client: Client, tmp_path: Path, spans: Recorded, stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await client.enqueue(add(1))
    execute(tmp_path / "jobs.db", f"UPDATE job SET trace = {stored}")
    await client.job(handle)
    with caplog.at_level(logging.WARNING):
        await drained(client)
    assert await handle.result(timeout=10) == 2
    process = spans.one("process add")
    assert (process.parent, list(process.links)) == (None, [])
    assert caplog.records == []


@pytest.mark.parametrize("way", ["argument", "variable", "sdk"])
async def test_tracing_is_turned_off(url: str, spans: Recorded, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"tracing": False} if way == "argument" else {}
    if way != "argument":
        monkeypatch.setenv(*(("AIOQUEUE_TRACING", "off") if way == "variable" else ("OTEL_SDK_DISABLED", "True")))
    async with Client(url, **given) as client:
        with trace.get_tracer("app").start_as_current_span("request"):
            handle = await client.enqueue(add(1))
        assert (await client.job(handle)).trace is None
        await drained(client, **given)
    assert spans.counts() == {"request": 1}


async def test_nothing_is_done_without_an_sdk(client: Client) -> None:
    handle = await client.enqueue(show())
    assert (await client.job(handle)).trace is None
    await drained(client)
    assert await handle.result(timeout=10) == "0"


async def test_a_setting_that_is_neither_on_nor_off_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="tracing must be True or False, not 1"):
        Client(url, tracing=1)
    with pytest.raises(ConfigurationError, match="trace_links must be True or False"):
        Worker(Client(url), registry, trace_links="no")
    monkeypatch.setenv("AIOQUEUE_TRACING", "perhaps")
    with pytest.raises(ConfigurationError, match="AIOQUEUE_TRACING must be 1 or 0"):
        Client(url)


async def test_an_sdk_that_is_configured_later_gets_spans(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.enqueue(add(1))
    spans = Recorded(monkeypatch)
    await client.enqueue(add(2))
    other = Recorded(monkeypatch)
    await client.enqueue(add(3))
    assert [spans.counts(), other.counts()] == [{"send add": 1}, {"send add": 1}]


async def test_an_api_without_the_variable_that_is_looked_at_is_asked_by_its_function(
    client: Client, spans: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(trace, "_TRACER_PROVIDER")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    await client.enqueue(add(1))
    assert spans.counts() == {"send add": 1}
