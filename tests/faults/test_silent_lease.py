"""Only the line over which a worker renews its lease falls silent; everything else goes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.test_line import behind_proxy
from tests.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proxy import Connection, Proxy

pytestmark = pytest.mark.anyio

RENEWAL = re.compile(r"update .*\blease\b.* set expires_at", re.IGNORECASE | re.DOTALL)


def lease_lines(proxy: Proxy) -> list[Connection]:
    """The connections over which leases are renewed."""
    return [each for each in proxy.connections if any(RENEWAL.search(text) for text in each.statements)]


async def test_a_worker_whose_lease_line_falls_silent_keeps_its_lease(postgres_url: str, tmp_path: Path) -> None:
    """It gives the line up in time for another try, again and again, for longer than its lease. Another one, and itself, could
    take its jobs: they run once."""
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        gate = scene.gate()
        worker = scene.worker(lease="12s", renew_every="2s", concurrency="8")
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(4)])
        await scene.started(4)
        other = scene.worker(url=postgres_url, lease="12s", renew_every="2s")
        await other.wait_for("slots for")
        for _ in range(4):
            await until(lambda: lease_lines(proxy), "a renewal", story=scene.story)
            silent = lease_lines(proxy)
            for connection in silent:
                connection.pause()
            await until(
                lambda silent=silent: any(each not in silent for each in lease_lines(proxy)),
                "a renewal over another line",
                story=scene.story,
            )
        gate.touch()
        jobs = await scene.finished(handles)
        assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, worker.pid)}
        assert "took over" not in worker.output() + other.output()
        await scene.check(jobs)
