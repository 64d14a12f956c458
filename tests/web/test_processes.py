"""A server's process that is told to end, while browsers read its stream of events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from aioqueue import Client, JobState
from tests.examples.servers import free_port
from tests.processes import ROOT
from tests.web.browser import Browser

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_server_with_open_streams_ends_and_its_worker_is_drained(tmp_path: Path) -> None:
    """One that is idle, one that doesn't read, and one that comes back until nobody is there any more."""
    url, port = f"sqlite:///{tmp_path / 'jobs.db'}", free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.web.app:app", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "AIOQUEUE_URL": url}, stderr=subprocess.PIPE, text=True)
    try:
        with anyio.fail_after(60):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", transport=httpx.AsyncHTTPTransport()) as http:
                while True:
                    try:
                        job_id = (await http.post("/jobs")).json()
                        break
                    except httpx.ConnectError:
                        await anyio.sleep(0.02)
            async with Browser(port) as idle, Browser(port), Browser(port, f"/events?job={job_id}") as reading:
                async for frame in reading.frames():
                    if frame.event == "started" or frame.data.get("state") == "running":
                        break
                await idle.take(1)
                server.send_signal(signal.SIGTERM)
                assert [each.event async for each in idle.frames()] == []
            _, errors = await anyio.to_thread.run_sync(server.communicate)
    finally:
        server.kill()
    assert (server.returncode, errors) in ((0, ""), (-signal.SIGTERM, ""))
    async with Client(url) as client:
        job = await client.job(job_id)
    assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
