"""The port: metrics, health and readiness, asked as a probe or Prometheus would."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aioqueue import Client, ConfigurationError, Registry, StoreUnavailable, serve_metrics
from aioqueue.telemetry import _server
from aioqueue.worker import Worker
from tests.worker.faults import Faults
from tests.worker.stubborn import Stubborn

pytestmark = pytest.mark.anyio


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # an address of the test's own
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def asked(url: str) -> tuple[int, str]:
    """From a thread: the event loop goes on meanwhile."""
    return await asyncio.to_thread(ask, url)


async def ready(url: str) -> tuple[int, Any]:
    status, text = await asked(f"{url}/readyz")
    return status, json.loads(text)


async def samples(url: str) -> dict[tuple[str, ...], float]:
    status, text = await asked(f"{url}/metrics")
    assert status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def until(true: Any) -> Any:
    async with asyncio.timeout(60):
        while not (found := await true()):
            await asyncio.sleep(0.01)
        return found


def test_without_a_worker_it_is_alive_and_not_ready() -> None:
    with serve_metrics(0) as server:
        assert ask(f"{server.url}/healthz")[0] == 200
        status, text = ask(f"{server.url}/readyz")
        assert (status, json.loads(text)["ready"], json.loads(text)["workers"]) == (503, False, [])
        assert "database" in text
        assert ask(f"{server.url}/elsewhere")[0] == 404
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server.url}/metrics", data=b"posted", timeout=10)
        assert refused.value.code == 501
        refused.value.close()


def test_a_port_of_somebody_else_is_refused_and_ours_is_shared() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ConfigurationError, match="can't be served"):
        serve_metrics(other.getsockname()[1])
    first = serve_metrics(0)
    second = serve_metrics(0)
    assert first.port == second.port
    first.close()
    first.close()
    assert ask(f"{second.url}/healthz")[0] == 200
    second.close()
    with pytest.raises(urllib.error.URLError):
        ask(f"{second.url}/healthz")
    again = serve_metrics(second.port)  # it's free again at once
    again.close()
    assert "aioqueue metrics" not in {thread.name for thread in threading.enumerate()}


def test_clients_that_say_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server._Handler, "timeout", 0.2)
    with serve_metrics(0) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if ask(f"{server.url}/healthz")[0] == 200:
                    break
            except OSError:
                continue
        else:
            pytest.fail("nobody else was answered")
        for each in silent:
            each.close()


def test_a_request_has_a_deadline_however_often_a_byte_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server._Handler, "timeout", 0.5)
    with serve_metrics(0) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(0.1)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                slow.sendall(b"G")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("a byte now and then has held the connection")


def test_when_all_places_are_held_the_oldest_makes_place() -> None:
    with serve_metrics(0) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(_server._MOST_CLIENTS)]
        began = time.monotonic()
        assert ask(f"{server.url}/healthz")[0] == 200
        assert silent[0].recv(1) == b""
        assert time.monotonic() - began < _server._CLIENT_SECONDS
        for each in silent:
            each.close()


def test_a_thread_that_cant_be_started_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_metrics(0) as server:
        with monkeypatch.context() as patched:

            def start(_: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patched.setattr(threading.Thread, "start", start)
            for _ in range(_server._MOST_CLIENTS + 1):
                with pytest.raises(OSError):
                    ask(f"{server.url}/healthz")
        assert ask(f"{server.url}/healthz")[0] == 200


def test_connections_that_cant_be_accepted_dont_keep_the_thread_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def refused(_: socket.socket) -> Any:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "too many open files")

    with serve_metrics(0) as server:
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", refused)
            with socket.create_connection(("127.0.0.1", server.port)):
                time.sleep(0.5)
        assert 1 <= len(tries) <= 6
        assert ask(f"{server.url}/healthz")[0] == 200


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_doesnt_keep_the_port() -> None:
    ours, its = socket.socketpair()
    server = serve_metrics(0)
    child = os.fork()
    if not child:
        ours.close()
        its.send(b"1")  # the hook has run
        its.recv(1)
        os._exit(0)
    its.close()
    try:
        assert ours.recv(1)
        server.close()
        serve_metrics(server.port).close()
    finally:
        ours.close()
        os.waitpid(child, 0)


def test_who_asks_for_a_port_doesnt_wait_for_one_that_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    close = _server._Listener.close

    def closing(listener: _server._Listener) -> None:
        held.append(_server._lock.locked())
        close(listener)

    monkeypatch.setattr(_server._Listener, "close", closing)
    serve_metrics(0).close()
    assert held == [False]


async def test_errors_texts_arent_for_everybody(client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()

    @registry.job
    async def work() -> None: ...

    monkeypatch.setattr(type(client.store), "troubles", property(lambda _: {"rows": "secret: of the store"}), raising=False)
    worker = Worker(client, registry, poll_interval=0.05)
    with serve_metrics(0) as server:
        async with worker:
            faults.before["next_due"] = [StoreUnavailable("postgres://u:secret@host") for _ in range(10_000)]

            async def failing() -> Any:
                text = (await asked(f"{server.url}/readyz"))[1]
                return text if "next_due" in text else None

            text = await until(failing)
            assert "secret" in worker.health().troubles["next_due"]
            faults.before.clear()
    assert "secret" not in text
    assert json.loads(text)["workers"][0]["reasons"] == ["next_due: StoreUnavailable"]
    assert json.loads(text)["workers"][0]["notes"] == ["rows: see the log"]


async def test_a_worker_serves_what_it_counts_and_is_ready(client: Client) -> None:
    registry = Registry()
    started, go_on = asyncio.Event(), asyncio.Event()

    @registry.job
    async def watched(fail: bool = False) -> None:
        if fail:
            raise ValueError
        started.set()
        await go_on.wait()

    @registry.declare
    async def answered() -> None: ...

    await client.enqueue_many([watched(), watched(fail=True), answered()])
    await client.enqueue_by_name("no_handler")
    async with Worker(client, registry, concurrency=3, metrics_port=0):
        url = serve_metrics(0)
        try:
            await started.wait()
            status, answer = await ready(url.url)
            assert (status, answer["ready"]) == (200, True)
            assert [each["reasons"] for each in answer["workers"]] == [[]]

            async def retried() -> dict[tuple[str, ...], float] | None:
                found = await samples(url.url)
                figures = ("aioqueue_jobs", "watched", "running") in found
                return found if found["aioqueue_jobs_processed_total", "watched", "retry"] and figures else None

            found = await until(retried)
            assert found["aioqueue_in_flight", "watched"] == 1
            assert (found["aioqueue_slots_busy",], found["aioqueue_slots_free",]) == (1, 2)
            assert found["aioqueue_jobs_enqueued_total", "watched"] == 2
            assert found["aioqueue_job_duration_seconds_count", "watched"] == 1
            assert found["aioqueue_job_duration_seconds_bucket", "watched", "+Inf"] == 1
            assert found["aioqueue_jobs", "watched", "running"] == 1
            assert found["aioqueue_jobs", "watched", "failed"] == 0
            assert found["aioqueue_jobs", "other", "ready"] == 1  # what no registry knows
            assert found["aioqueue_oldest_ready_seconds", "other"] > 0
            assert found["aioqueue_jobs", "answered", "ready"] == 1
            assert found["aioqueue_oldest_ready_seconds", "answered"] == 0  # it waits for an answer, and isn't late
            assert found["aioqueue_failing", "notifications"] == 0
            assert 0 <= found["aioqueue_event_loop_lag_seconds",] < 60
            go_on.set()
        finally:
            url.close()
    serve_metrics(0).close()


async def test_a_blocked_event_loop_is_seen(client: Client) -> None:
    registry = Registry()
    seen: list[tuple[int, str]] = []
    with serve_metrics(0) as server:

        def probe() -> None:
            seen.extend(ask(f"{server.url}/healthz?within={within}") for within in (0.3, "300ms", 0.3, "5m"))
            over.set()

        over = threading.Event()

        @registry.job
        async def block() -> None:
            threading.Thread(target=probe).start()
            over.wait(60)

        await client.enqueue(block())
        await Worker(client, registry).run_once()
    assert [status for status, _ in seen][1:] == [503, 503, 200]
    assert json.loads(seen[2][1])["event_loop_lag_seconds"] > 0.3


async def test_reasons_are_told_and_what_is_tolerated_is_noted(
    client: Client, faults: Faults, stubborn: Stubborn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn.registry.check()
    await client.enqueue(stubborn.stubborn().options(timeout=0.01))
    worker = Worker(client, stubborn.registry, poll_interval=0.05, grace=0)
    with serve_metrics(0) as server:
        async with worker:
            await stubborn.started()
            faults.failing.add("next_due")

            async def not_ready() -> Any:
                status, answer = await ready(server.url)
                return status == 503 and answer["workers"][0]["reasons"]

            assert (await until(not_ready))[0] == "next_due: StoreUnavailable"
            faults.failing.clear()

            async def late() -> Any:
                status, answer = await ready(server.url)
                return status == 200 and answer["workers"][0]["notes"]

            assert "doesn't stop (timeout)" in (await until(late))[0]
            assert worker.health().late[0].reasons == ("timeout",)
            assert (await samples(server.url))["aioqueue_late_attempts",] == 1
            monkeypatch.setattr(
                type(client.store), "troubles", property(lambda _: {"notifications": "lost: secret"}), raising=False
            )
            status, answer = await ready(server.url)
            shown = "notifications: they don't arrive: jobs are found by polling"
            assert (status, shown in answer["workers"][0]["notes"]) == (200, True)
            assert (await samples(server.url))["aioqueue_failing", "notifications"] == 1
            worker.stop()
            status, answer = await ready(server.url)
            assert (status, answer["workers"][0]["reasons"]) == (503, ["it is stopping"])
            assert (await asked(f"{server.url}/healthz"))[0] == 200
            stubborn.release.set()


async def test_renewals_that_fail_are_a_reason(client: Client, faults: Faults) -> None:
    registry = Registry()
    registry.job(lambda: None, name="nothing")
    async with Worker(client, registry, lease=3) as worker:
        with serve_metrics(0) as server:
            faults.failing.add("renew")

            async def not_ready() -> Any:
                status, answer = await ready(server.url)
                return status == 503 and answer["workers"][0]["reasons"]

            assert "renew: StoreUnavailable" in await until(not_ready)
            faults.failing.clear()

            async def ready_again() -> bool:
                return (await ready(server.url))[0] == 200

            await until(ready_again)
            assert worker.health().ready


async def test_figures_that_cant_be_read_harm_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()

    @registry.job
    async def work() -> None: ...

    async def away() -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(client.store, "stats", away)
    with serve_metrics(0) as server:
        async with Worker(client, registry) as worker:

            async def failing() -> bool:
                return (await samples(server.url))["aioqueue_failing", "stats"] == 1

            await until(failing)
            assert worker.health().ready
            assert worker.health().ok
            assert (await ready(server.url))[0] == 200


async def test_without_anybody_who_looks_the_store_isnt_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    calls: list[int] = []
    stats = client.store.stats

    async def counted() -> Any:
        calls.append(1)
        return await stats()

    @registry.job
    async def work() -> None: ...

    monkeypatch.setattr(client.store, "stats", counted)
    await client.enqueue(work())
    with serve_metrics(0) as server:
        await Worker(client, registry).run_once()
        assert calls == []
        async with Worker(client, registry):
            for _ in range(5):
                await samples(server.url)
            assert len(calls) == 1  # they aren't old yet
