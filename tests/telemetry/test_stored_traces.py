"""What is stored with a job of the trace that it was enqueued in: short, and harmless whatever somebody writes there."""

from __future__ import annotations

import json

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from aioqueue.telemetry._trace_context import read_trace, write_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def span(state: TraceState | None = None) -> NonRecordingSpan:
    return NonRecordingSpan(SpanContext(0xAF, 0xB7, is_remote=False, trace_flags=TraceFlags(1), trace_state=state))


def test_what_is_written_is_read() -> None:
    context = span(TraceState([("vendor", "x")])).get_span_context()
    text = write_trace(NonRecordingSpan(context))
    assert text is not None
    assert json.loads(text).keys() == {"traceparent", "tracestate"}
    found = read_trace(text)
    assert found is not None
    assert (found.context.trace_id, found.context.span_id, found.context.trace_flags) == (0xAF, 0xB7, 1)
    assert found.context.trace_state == context.trace_state
    assert found.context.is_remote
    assert not found.link


def test_baggage_isnt_stored() -> None:
    token = attach(baggage.set_baggage("secret", "of the application"))
    try:
        text = write_trace(span())
    finally:
        detach(token)
    assert text is not None
    assert json.loads(text).keys() == {"traceparent"}


def test_a_link_is_told_beside_it_and_older_code_finds_a_parent() -> None:
    text = write_trace(span(), link=True)
    assert text is not None
    found = read_trace(text)
    assert found is not None
    assert found.link
    assert found.context == getattr(read_trace(write_trace(span())), "context", None)
    stored = json.loads(text)
    assert stored.pop("link") is True
    assert json.dumps(stored, separators=(",", ":")) == write_trace(span())


@pytest.mark.parametrize("link", [False, None, 1, "true", [True]])
def test_an_odd_link_is_none(link: object) -> None:
    found = read_trace(json.dumps({"traceparent": PARENT, "link": link}))
    assert found is not None
    assert not found.link


@pytest.mark.parametrize("link", [False, True])
def test_a_long_state_is_left_out(link: bool) -> None:
    state = TraceState([(f"vendor{number}", "x" * 200) for number in range(20)])
    text = write_trace(span(state), link=link)
    assert text is not None
    assert json.loads(text).keys() == ({"traceparent", "link"} if link else {"traceparent"})


def test_no_span_is_no_trace() -> None:
    assert write_trace(trace.INVALID_SPAN) is None


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "",
        "5",
        "null",
        "[]",
        '"text"',
        "{",
        "{}",
        PARENT,
        '{"traceparent": 5}',
        '{"traceparent": null}',
        '{"traceparent": "00-1"}',
        '{"traceparent": "00-00000000000000000000000000000000-b7ad6b7169203331-01"}',
        f'{{"traceparent": ["{PARENT}"]}}',
        f'{{"Traceparent": "{PARENT}"}}',
        f'{{"b3": "{PARENT}"}}',
        f'{{"traceparent": "ff{PARENT[2:]}"}}',
        f'{{"traceparent": "{PARENT}", "tracestate": "{"x" * 1024}"}}',
        "[" * 1000,
        f'{{"traceparent": "{PARENT}\\u0000"}}',
    ],
)
def test_what_is_no_trace_is_none(stored: str | None) -> None:
    assert read_trace(stored) is None


@pytest.mark.parametrize("state", ["", "=", "a=b=c,,", ",".join(f"k{number}=v" for number in range(100)), "ü=1"])
def test_an_odd_state_costs_only_itself(state: str) -> None:
    stored = json.dumps({"traceparent": PARENT, "tracestate": state, "baggage": "secret=1"})
    found = read_trace(stored)
    assert found is not None
    assert f"{found.context.span_id:016x}" == "b7ad6b7169203331"
