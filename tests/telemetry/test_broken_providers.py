"""Providers that can't be made, and SDKs that raise: they're told seldom, and cost no job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan

from aioqueue import Client, Registry
from aioqueue.telemetry import _instruments, _providers
from aioqueue.telemetry._tracing import SendSpan, flush_telemetry
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def told_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was told before, and the instruments aren't made yet."""
    for name in ("_spans", "_metrics"):
        monkeypatch.setattr(_providers, name, _providers._Seldom())
    _instruments.instrument.cache_clear()
    yield
    _instruments.instrument.cache_clear()


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["event"] for record in caplog.records if record.name == "aioqueue.telemetry"]


async def one_job_works(client: Client) -> None:
    registry = Registry()

    @registry.job
    async def work() -> int:
        return 1

    handles = await client.enqueue_many([work() for _ in range(3)])
    await Worker(client, registry, concurrency=1).run_once()
    assert [await handle.result(timeout=60) for handle in handles] == [1] * 3


async def test_a_recorder_that_raises_costs_no_job_and_is_told_once(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def record(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    provider = MeterProvider()
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setattr(Histogram, "record", record)
    monkeypatch.setattr(type(provider.get_meter("x").create_histogram("x")), "record", record)
    await one_job_works(client)
    assert events(caplog) == ["telemetry.metrics_lost"]
    provider.shutdown()


async def test_a_meter_provider_that_cant_be_made_costs_no_job(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_PYTHON_METER_PROVIDER", "nothing_that_is_there")
    with pytest.raises(StopIteration):
        metrics.get_meter_provider()
    assert _instruments.recorders() is None
    assert flush_telemetry(60)
    await one_job_works(client)
    assert events(caplog) == ["telemetry.metrics_lost"]


def test_a_send_span_that_raises_is_told_at_most_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("broken")

    for name in ("get_span_context", "set_attribute", "set_attributes"):
        monkeypatch.setattr(NonRecordingSpan, name, fails)
    span = SendSpan(NonRecordingSpan(INVALID_SPAN_CONTEXT))
    for _ in range(3):
        span.stored_as(uuid4())
    assert events(caplog) == ["telemetry.span_lost"]
    monkeypatch.setattr(_providers, "_TELL_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(_providers, "_spans", _providers._Seldom())
    assert span.trace is None
    span.sent()
    assert events(caplog)[1:] == ["telemetry.span_lost"] * 2
