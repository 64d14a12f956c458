"""A stream of events as a browser's own `EventSource` reads it, which loses the server and comes back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from aiohttp import web

from aioqueue import Client, Registry
from tests.examples.servers import free_port
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.soak,
    pytest.mark.skipif(CHROMIUM is None, reason="there's no Chromium here: apt-get install chromium"),
]

registry = Registry()


@registry.job(name="slow")
async def slow() -> str:
    raise NotImplementedError


Told = tuple[str, str, dict[str, Any]]


@contextmanager
def process(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    run = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        yield run
    finally:
        run.kill()
        run.wait()


@pytest.fixture
async def told() -> AsyncIterator[tuple[str, asyncio.Queue[Told]]]:
    """Where the page tells what it hears, and what it has told."""
    heard = asyncio.Queue[Told]()

    async def hear(request: web.Request) -> web.Response:
        kind, last_id, data = json.loads(await request.text())
        heard.put_nowait((kind, last_id, data))
        return web.Response()

    application = web.Application()
    application.router.add_post("/", hear)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/", heard
    await runner.cleanup()


async def answering(port: int) -> None:
    """Wait until the server serves."""
    async with httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                await http.get(f"http://127.0.0.1:{port}/page")
                return
            except httpx.ConnectError:
                await anyio.sleep(0.02)


async def until(heard: asyncio.Queue[Told], kind: str, job_id: object = None) -> list[Told]:
    found: list[Told] = []
    while not found or found[-1][0] != kind or (job_id is not None and found[-1][2]["job_id"] != str(job_id)):
        found.append(await heard.get())
    return found


async def test_an_event_source_goes_on_where_it_was_when_its_server_is_killed_and_comes_back(
    tmp_path: Path, told: tuple[str, asyncio.Queue[Told]]
) -> None:
    """Its stream ends by itself now and then beside that, as it's given less than a second."""
    assert CHROMIUM is not None
    report, heard = told
    url, port = f"sqlite:///{tmp_path / 'jobs.db'}", free_port()
    serving = (sys.executable, "-m", "uvicorn", "tests.web.app:app", "--port", str(port), "--log-level", "warning")
    seen: list[Told] = []
    with anyio.fail_after(120), ExitStack() as stack:
        server = stack.enter_context(process(*serving, AIOQUEUE_URL=url))
        await answering(port)
        page = f"http://127.0.0.1:{port}/page?report={report}"
        stack.enter_context(process(CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", page))
        seen += await until(heard, "snapshot")
        async with Client(url) as client:
            jobs = [(await client.enqueue(slow())).id]
            seen += await until(heard, "completed", jobs[0])
            server.send_signal(signal.SIGKILL)
            await asyncio.to_thread(server.wait)
            jobs.append((await client.enqueue(slow())).id)
            stack.enter_context(process(*serving, AIOQUEUE_URL=url))
            seen += await until(heard, "completed", jobs[1])
            jobs.append((await client.enqueue(slow())).id)
            seen += await until(heard, "completed", jobs[2])
    events = {data["sequence"]: (kind, data["job_id"]) for kind, _, data in seen if "sequence" in data}
    assert [kind for kind, _, data in seen if "sequence" not in data] == ["snapshot"]
    assert [last_id for _, last_id, data in seen if "sequence" in data] == [str(sequence) for sequence in events]
    assert list(events.values()) == [(kind, str(job)) for job in jobs for kind in ("enqueued", "started", "completed")]
