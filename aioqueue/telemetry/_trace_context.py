"""The trace context that is stored with a job: W3C's `traceparent` and `tracestate` as JSON text. Baggage isn't."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import orjson
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioqueue.vocabulary._trace import stored_trace

__all__ = ["StoredTrace", "read_trace", "write_trace"]

_LINK = "link"
"""Beside W3C's names: whether the job only links to that span. Code that doesn't know it makes a child of the job."""

# Not the global propagators: those may carry baggage, which holds what an application wants to keep to itself.
_propagator = TraceContextTextMapPropagator()


class StoredTrace(NamedTuple):
    """What is stored with a job.

    Attributes:
        context: The span from which the job comes.
        link: Whether the job begins a trace of its own, with a link to that span, in place of being its child.
    """

    context: trace.SpanContext
    link: bool = False


def write_trace(span: trace.Span, *, link: bool = False) -> str | None:
    """Make what is stored with a job that comes from a span.

    Arguments:
        span: That sends it, or whose attempt it follows.
        link: As of `StoredTrace`.

    Returns:
        JSON text, without a `tracestate` that would make it too long; None for a span that is none.
    """
    carrier: dict[str, Any] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    if not carrier:
        return None
    if link:
        carrier[_LINK] = True
    text = stored_trace(orjson.dumps(carrier).decode())
    if text is None:
        carrier.pop("tracestate", None)
        text = stored_trace(orjson.dumps(carrier).decode())
    return text


def read_trace(stored: str | None) -> StoredTrace | None:
    """Read what is stored with a job, which may be anything.

    Returns:
        Where it comes from; None where there is none, or nothing that W3C would call one.
    """
    if (text := stored_trace(stored)) is None:
        return None
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    entries = cast("dict[str, Any]", value)
    carrier = {name: each for name in ("traceparent", "tracestate") if isinstance(each := entries.get(name), str)}
    found = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return StoredTrace(found, entries.get(_LINK) is True) if found.is_valid else None
