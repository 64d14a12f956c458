"""Whatever becomes of spans: over the wire to a receiver, or into an exporter that hangs or fails. No job waits for that."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from aioqueue import Client, Registry, Worker
from aioqueue.telemetry._tracing import flush_telemetry
from tests.telemetry.spans import Recorded, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(name="add")
async def add(a: int) -> int:
    return a + 1


@contextmanager
def receiver(*, hangs: bool = False) -> Iterator[tuple[str, list[ExportTraceServiceRequest], threading.Event]]:
    """What takes OTLP over HTTP, and reads it: its address, what came, and what lets go of those whom it holds."""
    received: list[ExportTraceServiceRequest] = []
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if hangs:
                release.wait(120)
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            received.append(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", received, release
        finally:
            release.set()
            server.shutdown()
            server.server_close()


def sent(received: Sequence[ExportTraceServiceRequest]) -> list[Any]:
    return [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if scope.scope.name == "aioqueue"
    ]


async def test_what_is_sent_over_the_wire_is_one_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as (url, received, _):
        provider = install(monkeypatch, BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        handle = await client.enqueue(add(1))
        await Worker(client, registry, poll_interval=0.1).run_once()
        assert flush_telemetry(60)
        provider.shutdown()
    spans = {span.name: span for span in sent(received)}
    assert spans.keys() == {"send add", "process add", "settle"}
    send, process = spans["send add"], spans["process add"]
    assert process.trace_id == send.trace_id
    assert process.parent_span_id == send.span_id
    attributes = {each.key: each.value for each in process.attributes}
    assert attributes["messaging.message.id"].string_value == str(handle.id)
    assert attributes["aioqueue.attempt"].int_value == 1
    assert 0 < process.start_time_unix_nano <= process.end_time_unix_nano


async def test_a_backend_that_hangs_delays_no_job(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(hangs=True) as (url, received, release):
        exporter = OTLPSpanExporter(endpoint=url, timeout=100)
        provider = install(monkeypatch, BatchSpanProcessor(exporter, schedule_delay_millis=10))
        handles = [await client.enqueue(add(number)) for number in range(50)]
        await Worker(client, registry, poll_interval=0.1).run_once()
        assert [await handle.result(timeout=60) for handle in handles] == list(range(1, 51))
        began = time.monotonic()
        assert not flush_telemetry(0.2)
        assert time.monotonic() - began < 30  # and not the exporter's 100
        assert received == []
        release.set()
        provider.shutdown()
    assert len([span for span in sent(received) if span.name == "process add"]) == 50


class Broken(SpanProcessor):
    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        if self.where == "end":
            raise RuntimeError("broken")


class Refusing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("broken")


@pytest.mark.parametrize("where", ["start", "end", "export"])
async def test_an_sdk_that_fails_costs_no_job(client: Client, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    broken = BatchSpanProcessor(Refusing()) if where == "export" else Broken(where)
    provider = install(monkeypatch, broken)
    handle = await client.enqueue(add(1))
    async with client.transaction() as tx:
        inner = await tx.enqueue(add(2))
    await Worker(client, registry, poll_interval=0.1).run_once()
    assert [await each.result(timeout=60) for each in (handle, inner)] == [2, 3]
    assert flush_telemetry(60)
    provider.shutdown()


APP = """
import os
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from aioqueue import Registry

# At the end of the interpreter the SDK would wait for its thread, too: for 30 s.
provider = TracerProvider(shutdown_on_exit="LET_GO" not in os.environ)
# It would send by itself after an hour: whatever comes is sent at the end.
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=300), schedule_delay_millis=3_600_000))
trace.set_tracer_provider(provider)
registry = Registry()

@registry.job(name="add")
async def add(a: int) -> int:
    print("ran", flush=True)
    return a + 1
"""


def started(folder: Path, url: str, endpoint: str, *options: str) -> subprocess.Popen[str]:
    (folder / "app.py").write_text(textwrap.dedent(APP))
    return subprocess.Popen(
        [sys.executable, "-m", "aioqueue", "worker", "app:registry", "--url", url, "--log-level", "info", *options],
        cwd=folder,
        env={**os.environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_the_last_spans_are_sent_when_a_signal_comes_right_after_the_last_job(url: str, tmp_path: Path) -> None:
    async with Client(url) as client:
        await client.enqueue(add(1))
    with receiver() as (endpoint, received, _):
        process = started(tmp_path, url, endpoint)
        assert process.stdout is not None
        assert process.stdout.readline() == "ran\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "detach" not in errors
    assert {"process add", "settle"} <= {span.name for span in sent(received)}


@pytest.mark.parametrize(
    ("options", "variables", "shown"),
    [
        ((), {}, "a child"),
        (("--trace-links",), {}, "a link"),
        (("--no-tracing",), {}, "nothing"),
        # Which of the two counts is tested of every setting in tests/cli/test_setting_doors.py.
        pytest.param(("--no-trace-links",), {"AIOQUEUE_TRACE_LINKS": "1"}, "a child", marks=pytest.mark.soak),
        pytest.param(("--tracing",), {"AIOQUEUE_TRACING": "0"}, "a child", marks=pytest.mark.soak),
        pytest.param((), {"AIOQUEUE_TRACING": "0"}, "nothing", marks=pytest.mark.soak),
    ],
)
async def test_the_command_s_options(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    variables: dict[str, str],
    shown: str,
) -> None:
    spans = Recorded(monkeypatch)
    async with Client(url) as client:
        await client.enqueue(add(1))
    producer = spans.one("send add").get_span_context()
    assert producer is not None
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with receiver() as (endpoint, received, _):
        process = started(tmp_path, url, endpoint, "--once", *options)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    found = [
        (int.from_bytes(span.parent_span_id) == producer.span_id, [int.from_bytes(link.span_id) for link in span.links])
        for span in sent(received)
        if span.name == "process add"
    ]
    assert found == {"a child": [(True, [])], "a link": [(False, [producer.span_id])], "nothing": []}[shown]


async def test_a_backend_that_hangs_doesn_t_keep_the_command_from_ending(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(url) as client:
        await client.enqueue(add(1))
    with receiver(hangs=True) as (endpoint, _, _):
        monkeypatch.setenv("LET_GO", "1")
        process = started(tmp_path, url, endpoint, "--once")
        _, errors = process.communicate(timeout=30)  # the exporter would wait for 300 s
    assert process.returncode == 0, errors
    assert "couldn't be sent within 2 s" in errors
