"""The trace context that is stored with a job: W3C's `traceparent` and `tracestate` as JSON text. Baggage isn't."""

from __future__ import annotations

from typing import Any, cast

import orjson
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioqueue.vocabulary._trace import stored_trace

__all__ = ["read_trace", "write_trace"]

# Not the global propagators: those may carry baggage, which holds what an application wants to keep to itself.
_propagator = TraceContextTextMapPropagator()


def write_trace(span: trace.Span) -> str | None:
    """Make what is stored with a job that a span sends.

    Returns:
        JSON text, without a `tracestate` that would make it too long; None for a span that is none.
    """
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    if not carrier:
        return None
    text = stored_trace(orjson.dumps(carrier).decode())
    if text is None:
        carrier.pop("tracestate", None)
        text = stored_trace(orjson.dumps(carrier).decode())
    return text


def read_trace(stored: str | None) -> trace.SpanContext | None:
    """Read what is stored with a job, which may be anything.

    Returns:
        The producer's; None where there is none, or nothing that W3C would call one.
    """
    if (text := stored_trace(stored)) is None:
        return None
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    carrier = {
        name: each
        for name, each in cast("dict[str, Any]", value).items()
        if name in {"traceparent", "tracestate"} and isinstance(each, str)
    }
    found = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None
