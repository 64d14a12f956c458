"""The embedded examples, as real servers: orders over HTTP, SIGTERM in mid-work, and nothing is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from aioqueue import JobState
from tests.examples.servers import WATCHED, Placed, Server, Shop, command, gunicorn, pids, uvicorn
from tests.processes import FORBIDDEN, ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    shop = Shop(url, tmp_path)
    try:
        yield shop
    finally:
        shop.close()


# FastAPI's lifespan is Starlette's.
@pytest.mark.parametrize("framework", ["fastapi", pytest.param("starlette", marks=pytest.mark.soak), "aiohttp"])
async def test_stopped_in_mid_work_and_started_again(shop: Shop, framework: str) -> None:
    """What ends within the grace counts; the rest is given back with its attempt, and done after the next start."""
    first = await shop.start(command(framework), AIOQUEUE_GRACE="2s", AIOQUEUE_CONCURRENCY="4")
    served = await shop.place(first, "quick")
    await shop.begun("quick", 1)
    await until(lambda: _is_shipped(shop, first, served), "the status says so")
    ends = await shop.place(first, "gate-ends")
    stays = await shop.place(first, "gate-stays")
    await shop.begun("gate-ends", 1)
    await shop.begun("gate-stays", 1)
    assert (await shop.status(first, ends))["state"] == "running"
    flowing = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(shop.place_until_it_stops, first, flowing)
        await flowing.wait()
        first.send(signal.SIGTERM)
        shop.open("ends")
        await first.ended()
    assert shop.events("cancelled", "gate-stays") == 1
    left = {job.id: job.state for job in await shop.jobs() if not job.state.finished}
    assert left[stays.job_id] is JobState.READY
    assert JobState.RUNNING not in left.values()

    shop.open("stays")
    second = await shop.start(command(framework))
    await shop.check_all_shipped()
    second.send(signal.SIGTERM)
    await second.ended()


@pytest.mark.parametrize("framework", ["fastapi", pytest.param("starlette", marks=pytest.mark.soak), "aiohttp"])
async def test_a_handler_that_swallows_its_cancellation_doesnt_keep_the_server(shop: Shop, framework: str) -> None:
    """The worker lets go of it, and the event loop ends. Other jobs were given back, and this one runs again elsewhere."""
    first = await shop.start(command(framework), AIOQUEUE_GRACE="1s", AIOQUEUE_LEASE="4s")
    stubborn = await shop.place(first, "stubborn")
    stays = await shop.place(first, "gate-stays")
    await shop.begun("stubborn", 1)
    await shop.begun("gate-stays", 1)
    first.send(signal.SIGTERM)
    await first.ended()
    assert f"{stubborn.job_id} doesn't stop" in first.output()
    left = {job.id: job.state for job in await shop.jobs() if not job.state.finished}
    assert left == {stubborn.job_id: JobState.RUNNING, stays.job_id: JobState.READY}

    await shop.start(command(framework), AIOQUEUE_LEASE="4s")
    await shop.begun("stubborn", 2)


async def _is_shipped(shop: Shop, server: Server, placed: Placed) -> bool:
    status = await shop.status(server, placed)
    return status["state"] == "completed" and status["parcel"] is not None


async def test_sigint_ends_the_host_as_it_would_without_a_worker(shop: Shop) -> None:
    server = await shop.start(uvicorn("fastapi", watched=False))
    await shop.place(server, "pear")
    server.send(signal.SIGINT)
    await server.ended()
    assert "Application shutdown complete" in server.output()


async def test_script_stopped_in_mid_work_and_started_again(shop: Shop) -> None:
    printed = shop.folder / "printed"

    def script(*items: str) -> subprocess.Popen[bytes]:
        with printed.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-W", "error", "-m", WATCHED, "script", *items],
                cwd=ROOT,
                env=shop.environment(AIOQUEUE_GRACE="1s"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    with script("pear", "gate-plum") as first:
        try:
            await shop.begun("gate-plum", 1)
            await until(lambda: "pear: P00000" in printed.read_text(), "the other one's result")
            first.send_signal(signal.SIGTERM)
            await until(lambda: first.poll() is not None, "the script's end")
        finally:
            first.kill()
    text = printed.read_text()
    assert first.returncode == 130, text
    assert "interrupted" in text
    assert not any(phrase in text for phrase in (*FORBIDDEN, "Traceback"))

    shop.open("plum")
    with script() as second:
        try:
            await until(lambda: second.poll() is not None, "the script's end")
        finally:
            second.kill()
    assert (second.returncode, printed.read_text()) == (0, "1 shipped\n")
    await shop.check_all_shipped()


# -- several processes, reload, fork ----------------------------------------------------------------------------------


@pytest.mark.soak
async def test_several_server_processes(shop: Shop) -> None:
    """Each has a worker of its own, on one queue."""
    # uvicorn's parent process leaves its socket to the interpreter.
    quiet = {"PYTHONWARNINGS": "", "AIOQUEUE_CONCURRENCY": "2"}
    first = await shop.start(uvicorn("fastapi", "--workers", "2"), AIOQUEUE_GRACE="2s", **quiet)
    await until(lambda: len(pids(first.output())) == 2, "both processes started")
    for _ in range(3):
        await shop.place(first, "gate-work")
    await shop.begun("gate-work", 3)
    assert len({entry.pid for entry in shop.ledger.entries("start")}) == 2, "two slots each, so that three need both"
    for _ in range(20):
        await shop.place(first, "quick")
    first.send(signal.SIGTERM)
    await first.ended()
    assert shop.events("cancelled", "gate-work") == 3
    shop.open("work")
    second = await shop.start(uvicorn("fastapi", "--workers", "2"), **quiet)
    await shop.check_all_shipped()
    second.send(signal.SIGTERM)
    await second.ended()


@pytest.mark.soak
async def test_reload(shop: Shop) -> None:
    """A changed file ends the old worker in an orderly way, and starts one with the new code: exactly one is there."""
    source = shop.folder / "code"
    source.mkdir()
    module = source / "reloaded.py"
    module.write_text("from examples.shop.fastapi_app import app\n")
    options = ["reloaded:app", "--app-dir", str(source), "--reload", "--reload-dir", str(source), "--port", "{port}"]
    server = await shop.start(["-m", "uvicorn", *options])
    for number in range(1, 4):
        await shop.place(server, "pear")
        module.write_text(f"from examples.shop.fastapi_app import app\n\nVERSION = {number}\n")
        await until(lambda: len(pids(server.output())) == number + 1, f"reload {number}")  # noqa: B023 - awaited at once
        await server.ready()
    await shop.place(server, "pear")
    await shop.check_all_shipped(attempts=None)
    assert all(job.attempt == 1 for job in await shop.jobs())
    server.send(signal.SIGTERM)
    await server.ended()


@pytest.mark.soak
@pytest.mark.parametrize("preload", [False, True], ids=["each", "preload"])
async def test_gunicorn(shop: Shop, *, preload: bool) -> None:
    """Workers are forked; the lifespan opens a client in each, after the fork."""
    options = ["--workers", "2", *(["--preload"] if preload else [])]
    app = f"{WATCHED}:forked_app()" if preload else f"{WATCHED}:fastapi_app()"
    server = await shop.start(gunicorn(app, *options), AIOQUEUE_GRACE="2s", SHOP_FORKED="1")
    for _ in range(10):
        await shop.place(server, "quick")
    await shop.place(server, "gate-work")
    await shop.begun("gate-work", 1)
    if preload:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            assert "opened before this process was forked" in (await http.get(server.url("/early"))).text
    server.send(signal.SIGTERM)
    await server.ended()
    shop.open("work")
    again = await shop.start(gunicorn(f"{WATCHED}:fastapi_app()"), SHOP_FORKED="1")
    await shop.check_all_shipped()
    again.send(signal.SIGTERM)
    await again.ended()
