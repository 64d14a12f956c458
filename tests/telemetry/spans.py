"""Spans that a test looks at: an SDK with an exporter in memory, in place of the process's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

if TYPE_CHECKING:
    import pytest
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

__all__ = ["Recorded", "install"]


def install(monkeypatch: pytest.MonkeyPatch, *processors: SpanProcessor) -> TracerProvider:
    """Make a provider the process's until the test has ended: the public way allows it once."""
    provider = TracerProvider(resource=Resource.create({}), shutdown_on_exit=False)
    for each in processors:
        provider.add_span_processor(each)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


class Recorded:
    """What was exported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = install(monkeypatch, SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def counts(self) -> Counter[str]:
        return Counter(span.name for span in self.all())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found
