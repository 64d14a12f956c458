"""Every attempt gives one ended span, whatever becomes of it; and so does every enqueueing in a transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from aioqueue import Cancel, Client, Fail, Fixed, Registry, Reschedule, Retry, RetryIn, Worker
from aioqueue.errors import StoreUnavailable
from aioqueue.worker import _shutdown
from tests.client.fake_store import FakeStore
from tests.sqlite.conftest import execute
from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.worker.faults import Faults
    from tests.worker.stubborn import Stubborn

pytestmark = pytest.mark.anyio

ONCE = Retry(max_attempts=1)
AGAIN = Retry(max_attempts=5, backoff=Fixed(3600.0))


@asynccontextmanager
async def opened() -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def broken_at_its_end() -> AsyncIterator[int]:
    yield 1
    raise OSError("it doesn't close")


async def fine() -> int:
    return 1


def fine_in_a_thread() -> int:
    return 1


async def fails() -> None:
    raise ValueError("no\nluck")


def fails_in_a_thread() -> None:
    raise ValueError("no\nluck")


async def exits() -> None:
    raise SystemExit(3)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def gives_up() -> None:
    raise Fail("hopeless")


async def cancels() -> None:
    raise Cancel("obsolete")


async def retries() -> None:
    raise RetryIn(3600)


async def puts_off() -> None:
    raise Reschedule(delay=3600)


async def too_long() -> None:
    await asyncio.Event().wait()


async def not_json() -> object:
    return object()


async def leaves_a_generator() -> int:
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)

    async for number in numbers():
        if number == 3:
            return number
    return 0


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def said(span: ReadableSpan) -> tuple[Any, Any, StatusCode]:
    found = dict(span.attributes or {})
    return found.get("aioqueue.outcome"), found.get("error.type"), span.status.status_code


@pytest.mark.parametrize(
    ("name", "retry", "outcome", "error"),
    [
        ("fine", ONCE, "ok", None),
        ("fine_in_a_thread", ONCE, "ok", None),
        ("leaves_a_generator", ONCE, "ok", None),
        ("fails", ONCE, "failed", "ValueError"),
        ("fails", AGAIN, "retry", "ValueError"),
        ("fails_in_a_thread", ONCE, "failed", "ValueError"),
        ("exits", ONCE, "failed", "SystemExit"),
        ("cancels_itself", ONCE, "failed", "CancelledError"),
        ("gives_up", AGAIN, "poison", "Fail"),
        ("cancels", AGAIN, "cancelled", "Cancel"),
        ("retries", AGAIN, "retry", "RetryIn"),
        ("puts_off", AGAIN, "rescheduled", None),
        ("too_long", ONCE, "failed", "TimeoutError"),
        ("too_long", AGAIN, "retry", "TimeoutError"),
        ("not_json", AGAIN, "poison", "OutputError"),
    ],
)
async def test_an_attempt_is_one_span(
    client: Client,
    spans: Recorded,
    caplog: pytest.LogCaptureFixture,
    name: str,
    retry: Retry,
    outcome: str,
    error: str | None,
) -> None:
    registry = Registry()
    job = registry.job(name="a", retry=retry, timeout=0.2 if name == "too_long" else None)(globals()[name])
    await client.enqueue(job())
    await Worker(client, registry, poll_interval=0.1).run_once()
    span = spans.one("process a")
    assert span.end_time is not None
    well = outcome in {"ok", "rescheduled"}
    assert said(span) == (outcome, error, StatusCode.UNSET if well else StatusCode.ERROR)
    assert [event.name for event in span.events] == ([] if error is None else ["exception"])
    if error == "ValueError":
        recorded = dict(span.events[0].attributes or {})
        assert (recorded["exception.type"], recorded["exception.message"]) == ("ValueError", "no\nluck")
        assert "ValueError: no" in str(recorded["exception.stacktrace"])
    elif error == "OutputError":  # its text may quote a value
        assert dict(span.events[0].attributes or {}) == {"exception.type": "OutputError", "exception.message": "at output"}
    assert "detach" not in caplog.text


@pytest.mark.parametrize("broken", [False, True])
async def test_resources_are_opened_and_closed_in_the_span_s_context(
    client: Client, spans: Recorded, caplog: pytest.LogCaptureFixture, broken: bool
) -> None:
    tracer = spans.provider.get_tracer("app")

    registry = Registry()

    @registry.resource(scope="attempt")
    async def traced() -> AsyncIterator[int]:
        with tracer.start_as_current_span("resource"):
            async with broken_at_its_end() if broken else opened() as number:
                yield number

    @registry.job(name="a", retry=ONCE)
    async def a() -> int:
        return await traced.get()

    await client.enqueue(a())
    await Worker(client, registry, poll_interval=0.1).run_once()
    process, inner = spans.one("process a"), spans.one("resource")
    assert inner.parent is not None
    assert inner.parent.span_id == process.context.span_id
    assert said(process)[0] == ("failed" if broken else "ok")
    assert "detach" not in caplog.text


async def test_a_lost_lease_and_a_stop_end_the_span(client: Client, spans: Recorded, tmp_path: Path) -> None:
    registry, begun = Registry(), asyncio.Event()

    @registry.job(name="a", retry=AGAIN)
    async def a() -> None:
        begun.set()
        await asyncio.Event().wait()

    await client.enqueue(a())
    async with Worker(client, registry, grace=0, poll_interval=0.1):
        await begun.wait()
    assert said(spans.one("process a")) == ("interrupted", "interrupted", StatusCode.ERROR)
    begun.clear()
    async with Worker(client, registry, grace=0, lease=3, poll_interval=0.1):
        await begun.wait()
        execute(tmp_path / "jobs.db", "DELETE FROM job")
        async with asyncio.timeout(60):
            while len(spans.named("process a")) < 2:
                await asyncio.sleep(0.05)
    found = {said(span)[0]: span for span in spans.named("process a")}
    assert found.keys() == {"interrupted", "lost"}
    assert found["lost"].status.description == "not_found"
    assert found["lost"].parent is None  # given back before: a trace of its own


async def test_what_is_left_behind_has_ended_its_span(
    client: Client, spans: Recorded, stubborn: Stubborn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_INTERRUPTED_SECONDS", "_LAST_CANCEL_SECONDS"):
        monkeypatch.setattr(_shutdown, name, 0.2)
    await client.enqueue(stubborn.stubborn())
    async with Worker(client, stubborn.registry, grace=0, poll_interval=0.1):
        await stubborn.started()
    assert [said(span)[0] for span in spans.named("process stubborn")] == ["interrupted"]


async def test_a_batch_that_fails_says_so(client: Client, spans: Recorded, faults: Faults) -> None:
    registry = Registry()
    job = registry.job(name="a")(fine)
    await client.enqueue(job())
    faults.before["settle"] = [StoreUnavailable("away")]
    await Worker(client, registry, poll_interval=0.1).run_once()
    assert [dict(span.attributes or {}).get("error.type") for span in spans.named("settle")] == ["StoreUnavailable", None]
    assert {span.kind for span in spans.named("settle")} == {SpanKind.CLIENT}


# -- transactions -----------------------------------------------------------------------------------------------------

producing = Registry()


@producing.job(name="a")
async def a() -> None: ...


async def test_what_is_enqueued_in_a_transaction_is_sent_with_its_commit(client: Client, spans: Recorded) -> None:
    async with client.transaction() as tx:
        await tx.enqueue(a())
        await tx.enqueue_many([a(), a()])
        assert spans.all() == []
    assert [said(span) for span in spans.named("send a")] == [(None, None, StatusCode.UNSET)] * 2


async def test_what_was_rolled_back_is_no_sent_job(client: Client, spans: Recorded) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await tx.enqueue(a())
            raise ZeroDivisionError
    assert said(spans.one("send a")) == (None, "rolled_back", StatusCode.ERROR)


async def test_an_unclear_commit_says_so(spans: Recorded) -> None:
    fake = FakeStore()
    fake.faults["commit"] = ["after"]
    async with Client(fake) as client:
        with pytest.raises(StoreUnavailable):
            async with client.transaction() as tx:
                await tx.enqueue(a())
    assert said(spans.one("send a")) == (None, "unclear", StatusCode.ERROR)


async def test_in_a_foreign_transaction_the_span_ends_with_the_statement(
    client: Client, spans: Recorded, tmp_path: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    handle = await client.enqueue(a(), tx=connection)
    assert said(spans.one("send a")) == (None, None, StatusCode.UNSET)
    connection.execute("COMMIT")
    connection.close()
    assert (await client.job(handle)).trace is not None


async def test_a_foreign_transaction_on_postgresql_stores_the_trace(postgres_url: str, spans: Recorded) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    client = Client(postgres_url)
    await client.migrate()
    async with client:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                bound = await client.enqueue(a(), tx=connection)
                sql, parameters = client.statement(a(), placeholder="$1")
                stated = (await connection.fetch(sql, *parameters))[0][0]
                huge = await connection.fetchval(
                    """SELECT id FROM aioqueue.enqueue_v1(json_build_object('type', 'a', 'trace', repeat('x', 2000)))"""
                )
                given = await connection.fetchval(
                    """SELECT id FROM aioqueue.enqueue_v1('{"type": "a", "trace": {"traceparent": "00-1"}}')"""
                )
        finally:
            await connection.close()
        stored = [(await client.job(each)).trace for each in (bound, stated, huge, given)]
    ids = [f"{span.context.span_id:016x}" for span in spans.named("send a")]
    assert [ids[0] in (stored[0] or ""), ids[1] in (stored[1] or "")] == [True, True]
    assert stored[2:] == [None, '{"traceparent": "00-1"}']
