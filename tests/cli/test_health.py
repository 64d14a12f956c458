"""`aioqueue health`, and the worker's port."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from aioqueue import serve_metrics
from aioqueue.cli import _health
from aioqueue.telemetry._views import VIEWS, Readiness

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke


class Shown:
    """A view of a worker that isn't there."""

    def __init__(self, *reasons: str, notes: tuple[str, ...] = ()) -> None:
        self._readiness = Readiness(name="w1", reasons=reasons, notes=notes)

    def readiness(self) -> Readiness:
        return self._readiness


def test_a_worker_that_is_ready(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VIEWS, "_all", [Shown(notes=("notifications: they don't arrive",))])
    with serve_metrics(0) as server:
        result = invoke("health", "--metrics-port", str(server.port))
        assert result.output == "ready\n  w1: notifications: they don't arrive\n"
        result = invoke("health", "--json", AIOQUEUE_METRICS_PORT=str(server.port), AIOQUEUE_METRICS_HOST="0.0.0.0")
        assert json.loads(result.output)["ready"] is True


def test_a_worker_that_isnt(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_metrics(0) as server:
        assert "no worker runs" in invoke("health", "--metrics-port", str(server.port), exit_code=1).output
        assert invoke("health", "--live", "--metrics-port", str(server.port)).output == "alive\n"
        monkeypatch.setattr(VIEWS, "_all", [Shown("claim: the database\x1b[31m is away")])
        output = invoke("health", "--metrics-port", str(server.port), exit_code=1).output
        assert output.startswith("not ready\n  w1: claim: the database")
        assert "\x1b" not in output


@pytest.mark.parametrize(
    ("lag", "said"), [("7.96", "the event loop hasn't turned for over 7 s"), ("Infinity", "isn't a worker's port")]
)
def test_how_long_the_event_loop_hasnt_turned(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, lag: str, said: str) -> None:
    """At least: it's counted from when it was asked."""
    monkeypatch.setattr(_health, "_ask", lambda *_: (503, f'{{"alive": false, "event_loop_lag_seconds": {lag}}}'))
    assert said in invoke("health", "--live", "--metrics-port", "1", exit_code=1).output


@pytest.mark.parametrize("host", ["a\nb", "a..b", "a\u0130" * 50])
def test_a_host_that_cant_be_one(invoke: Invoke, host: str) -> None:
    shown = invoke("health", "--metrics-port", "1", "--metrics-host", host, exit_code=1).stderr
    assert "doesn't answer" in shown
    assert len(shown.splitlines()) == 1


def test_nobody_answers(invoke: Invoke) -> None:
    assert "at which port" in invoke("health", exit_code=2).output
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "doesn't answer" in invoke("health", "--metrics-port", str(port), exit_code=1).output


def test_a_peer_that_sends_a_byte_now_and_then_is_given_up(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.cli._health._ANSWER_SECONDS", 0.3)
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not over.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = threading.Thread(target=drip, args=[server])
        peer.start()
        port = str(server.getsockname()[1])
        assert "no whole answer within 0.3 s" in invoke("health", "--metrics-port", port, exit_code=1).output
        over.set()
        peer.join()
    for each in threading.enumerate():
        if each.name == "aioqueue health":
            each.join()


def test_an_occupied_port_ends_the_start(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        output = invoke("worker", "tests.cli.jobs:registry", "--once", "--metrics-port", port, exit_code=2).output
    assert "can't be served" in output
    invoke("worker", "tests.cli.jobs:registry", "--once", "--metrics-port", "0")
