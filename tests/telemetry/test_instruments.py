"""The metrics on OpenTelemetry's meter provider: the same names and numbers as those that are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aioqueue import Client, Registry
from aioqueue.telemetry import _instruments
from aioqueue.telemetry._counters import DURATION_BOUNDS_SECONDS
from aioqueue.telemetry._metrics import METRICS
from aioqueue.testing import MemoryStore
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """Of a provider that is the global one for the test."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    _instruments.instrument.cache_clear()
    yield reader
    _instruments.instrument.cache_clear()
    provider.shutdown()


def points(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    """The points of each metric, by the values of their attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: {tuple((point.attributes or {}).values()): point for point in metric.data.data_points}
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_the_same_metrics_are_on_a_provider(client: Client, reader: InMemoryMetricReader) -> None:
    registry = Registry()
    found: dict[str, dict[tuple[Any, ...], Any]] = {}

    @registry.job
    async def instrumented() -> None:
        found.update(points(reader))

    await client.enqueue(instrumented())
    await Worker(client, registry).run_once()
    assert set(found) <= {metric.name for metric in METRICS}
    assert found["aioqueue.in_flight"]["instrumented",].value == 1
    assert found["aioqueue.slots.busy"][()].value == 1
    after = points(reader)
    assert after["aioqueue.jobs.processed"]["instrumented", "ok"].value == 1
    duration = after["aioqueue.job.duration"]["instrumented",]
    assert (duration.count, duration.explicit_bounds) == (1, DURATION_BOUNDS_SECONDS)
    assert after["aioqueue.job.start_delay"]["instrumented",].count == 1
    assert "aioqueue.slots.busy" not in after  # no worker runs


async def test_so_are_those_of_ticks(reader: InMemoryMetricReader) -> None:
    registry, store = Registry(name="shop"), MemoryStore()

    @registry.job
    async def scheduled() -> None: ...

    registry.schedule(scheduled(), every=60.0)
    async with Client(store) as client:
        await Worker(client, registry).run_once()
        before = points(reader)["aioqueue.schedule.ticks"]["enqueued",].value
        store.advance(61)
        await Worker(client, registry).run_once()
    after = points(reader)
    assert after["aioqueue.schedule.ticks"]["enqueued",].value == before + 1
    assert after["aioqueue.schedule.delay"][()].count == 1
    assert 1 <= after["aioqueue.schedule.delay"][()].sum < 30
    assert after["aioqueue.jobs.enqueued"]["scheduled",].value == 1


def test_without_a_provider_nothing_is_recorded() -> None:
    assert _instruments.recorders() is None
