"""The port: `/metrics`, `/healthz` and `/readyz`, served by a thread, so that a blocked event loop can be seen.

It needs nothing but the standard library. Whoever asks for a port that this process serves already shares it.
"""

from __future__ import annotations

import contextvars
import io
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._log import event
from aioqueue.telemetry._metrics import look
from aioqueue.telemetry._probes import RefusedRequest, health, read_target, readiness, within_of
from aioqueue.telemetry._prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

__all__ = ["DEFAULT_METRICS_HOST", "MetricsServer", "serve_metrics", "serving"]

logger = logging.getLogger("aioqueue")

DEFAULT_METRICS_HOST = "127.0.0.1"

_CLIENT_SECONDS = 5.0
"""That a client may take to send its request, all of it, and as long again to read the answer."""
_LEAST_SECONDS = 0.001
"""A socket's timeout of 0 would mean something else."""
_MOST_CLIENTS = 16
_PLACE_SECONDS = 1.0
"""Within which the oldest client, whose connection is shut, makes place for the newest."""
_REFUSED_SECONDS = 0.1
"""After which a connection that can't be accepted, for want of file descriptors, is tried again."""
_END_SECONDS = 2.0
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - only compared with


def serve_metrics(port: int, *, host: str = DEFAULT_METRICS_HOST) -> MetricsServer:
    """Serve what the workers and clients of this process have done and how the workers are, by HTTP, from a thread.

    `/metrics` is for Prometheus, `/healthz` and `/readyz` for whoever restarts processes: see the guide to metrics. For
    programs that run workers inside, or only enqueue. `Worker(metrics_port=)` and `aioqueue worker --metrics-port` do the same
    while the worker runs. It may be called again, and then serves until each of the answers is closed.

    Arguments:
        port: From 1 to 65,535; 0 for one that is free, which the answer tells.
        host: The address to listen at. By default only this machine can ask; `0.0.0.0` is for containers.

    Raises:
        ConfigurationError: Somebody else has the port, or it can't be listened at.
    """
    return MetricsServer(port, host)


@contextmanager
def serving(port: int | None, host: str | None = None) -> Generator[None]:
    """Serve within the block; nothing without a port.

    Raises:
        ConfigurationError: As `serve_metrics`.
    """
    if port is None:
        yield
        return
    with serve_metrics(port, host=host or DEFAULT_METRICS_HOST):
        yield


class MetricsServer:
    """The port while it's open: close it, or use it as a context manager. `serve_metrics` makes it.

    Attributes:
        port: At which it is asked.
        url: Of its root.
    """

    def __init__(self, port: int, host: str) -> None:
        self._listener = _shared(host, port)
        self.port = self._listener.port
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        self._closed = False

    def close(self) -> None:
        """Serve no more, unless somebody else shares the port. May be called again."""
        if not self._closed:
            self._closed = True
            _let_go(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


# -- who shares a port ------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_open: dict[tuple[str, int], _Listener] = {}


def _shared(host: str, port: int) -> _Listener:
    with _lock:
        listener = _open.get((host, port))
        if listener is None:
            listener = _open[host, port] = _Listener(host, port)
        listener.users += 1
        return listener


def _let_go(listener: _Listener) -> None:
    with _lock:
        listener.users -= 1
        if listener.users:
            return
        address = (listener.host, listener.asked_port)
        if _open.get(address) is listener:
            del _open[address]
    listener.close()  # it waits for the thread: whoever asks for another port shouldn't


def _forget() -> None:
    """In a forked process the threads are gone, and the port is its parent's: it would stay taken after the parent's end."""
    global _lock  # the parent's may be held by a thread that isn't there
    _lock = threading.Lock()
    for listener in _open.values():
        listener.drop()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


# -- the thread -------------------------------------------------------------------------------------------------------


class _Listener:
    """The socket and the thread that accepts; each request is answered in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.asked_port, self.users = host, port, 0
        try:
            self._server = _Server(host, port)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"the metrics can't be served at {host}:{port}: {error}") from error
        self.port = int(self._server.server_address[1])
        self._ended = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="aioqueue metrics", daemon=True)
        logger.info(
            "metrics, health and readiness are served at %s:%d", host, self.port, extra=event("metrics.served", port=self.port)
        )
        contextvars.Context().run(self._thread.start)  # a thread may inherit the context that starts it (Python 3.14)

    def _serve(self) -> None:
        while not self._ended:
            self._server.handle_request()

    def drop(self) -> None:
        """Close this process' copy of the socket; whoever else has one goes on."""
        with suppress(OSError):
            self._server.socket.close()

    def close(self) -> None:
        """End the thread. It waits for the next connection, so it gets one."""
        if os.getpid() != self._pid:
            return
        self._ended = True
        family = self._server.address_family
        nearest = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        address = str(self._server.server_address[0])
        if address in _EVERYWHERE:
            address = nearest
        with suppress(OSError):
            socket.create_connection((address, self.port), timeout=1).close()
        self._thread.join(_END_SECONDS)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._turn = threading.Lock()
        self._answering: dict[socket.socket, None] = {}  # the oldest first
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a name server for the host's name, as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept. What can't be accepted is still waiting, so that the next try comes at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REFUSED_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. If too many are being answered, the one that has taken longest makes place."""
        if not self._places.acquire(blocking=False):
            self._shut_oldest()
            if not self._places.acquire(timeout=_PLACE_SECONDS):
                self.shutdown_request(request)
                return
        try:
            with self._turn:
                self._answering[request] = None
            super().process_request(request, client_address)
        except BaseException:  # there's no thread that would do it
            self._places.release()
            raise

    def _shut_oldest(self) -> None:
        with self._turn:
            oldest = next(iter(self._answering), None)
            if oldest is not None:
                del self._answering[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """End the connection."""
        with self._turn:
            self._answering.pop(request, None)
        super().shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make place for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature of the base
        """Say it in the log: mostly a client that went away."""
        logger.debug("a request to the metrics' port has failed: %r", sys.exception(), extra=event("metrics.request_failed"))


class _Reading(io.RawIOBase):
    """What a client sends, within the time that is left: by itself a socket's timeout begins anew with each byte."""

    def __init__(self, connection: socket.socket, left: Callable[[], float]) -> None:
        super().__init__()
        self._connection, self._left = connection, left

    def readable(self) -> bool:
        """Say that it can be read, as every raw stream does."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, or wait for it."""
        self._connection.settimeout(self._left())
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server_version = "aioqueue"
    sys_version = ""
    timeout = _CLIENT_SECONDS

    def setup(self) -> None:
        """Read by the clock."""
        super().setup()
        self._until: float = time.monotonic() + (self.timeout or _CLIENT_SECONDS)
        self.rfile.close()
        self.rfile = io.BufferedReader(_Reading(self.connection, self._left))

    def _left(self) -> float:
        return max(_LEAST_SECONDS, self._until - time.monotonic())

    def do_GET(self) -> None:
        """Answer one request."""
        try:
            path, query = read_target(self.path)
            match path:
                case "/metrics":
                    look()
                    self._answer(200, CONTENT_TYPE, exposition())
                case "/healthz":
                    self._answer_json(*health(within_of(query)))
                case "/readyz":
                    self._answer_json(*readiness())
                case _:
                    self._answer(404, "text/plain", b"/metrics /healthz /readyz\n")
        except OSError:
            raise
        except RefusedRequest as refused:
            self._answer(400, "text/plain", f"{refused}\n".encode("ascii", "backslashreplace"))
        except Exception:
            logger.exception("a request to the metrics' port can't be answered", extra=event("metrics.broken"))
            self._answer(500, "text/plain", b"see the log\n")

    do_HEAD = do_GET  # noqa: N815 - the base class calls it so

    def _answer_json(self, status: int, answer: object) -> None:
        self._answer(status, "application/json", json.dumps(answer, indent=2).encode() + b"\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self._until = time.monotonic() + (self.timeout or _CLIENT_SECONDS)
        self.connection.settimeout(self._left())
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.connection.settimeout(self._left())
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Nothing: probes and scrapes come all the time."""
