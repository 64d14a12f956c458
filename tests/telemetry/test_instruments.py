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


def test_without_a_provider_nothing_is_recorded() -> None:
    assert _instruments.recorders() is None
