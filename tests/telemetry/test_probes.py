"""What is understood of a request to the port: paths, parameters, and whatever somebody may send."""

from __future__ import annotations

import json
import socket

import pytest

from aioqueue import serve_metrics
from aioqueue.telemetry._probes import HEALTHY_WITHIN_SECONDS
from aioqueue.worker._watchdog import STUCK_SECONDS


def asked(target: str) -> tuple[int, bytes]:
    """The status and the body. As it stands: what a library would correct is sent, too."""
    with serve_metrics(0) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1]), answer.read().partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("within", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("0.5", 0.5), ("500ms", 0.5), ("1e2", 100), ("+1+h", 3600), ("0", 0)],
)
def test_within_is_a_duration_as_everywhere(within: str, seconds: float) -> None:
    status, text = asked(f"/healthz?within={within}")
    assert (status, json.loads(text)["within_seconds"]) == (200, seconds)


@pytest.mark.parametrize(
    "target",
    [
        *(
            f"/healthz?within={within}"
            for within in ("nan", "inf", "-inf", "-1", "1e999", "abc", "", "30x", "%FF", "%0a", "1,5", "\u0663")
        ),
        *(f"/healthz?within={text * 20_000}x" for text in ("111", "+++", "1__", "1.1", "1++")),
        "/healthz?within",
        "/healthz?within=30&within=60",
        "/healthz?withn=30",
        "/healthz?within=30&other=1",
        "/readyz?within=30",
        "http://[/healthz",
    ],
    ids=lambda target: target[:30],
)
def test_a_request_that_isnt_understood_is_refused(caplog: pytest.LogCaptureFixture, target: str) -> None:
    status, text = asked(target)
    assert status == 400
    assert text.strip()
    assert text.count(b"\n") == 1
    assert caplog.records == []


def test_prometheus_may_send_parameters() -> None:
    assert asked("/metrics?name[]=aioqueue_jobs")[0] == 200


def test_a_worker_is_alive_for_longer_than_its_handlers_may_block() -> None:
    assert HEALTHY_WITHIN_SECONDS > STUCK_SECONDS
