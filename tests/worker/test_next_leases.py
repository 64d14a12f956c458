"""When an idle worker looks for lost jobs: when the next lease of somebody else runs out, also after a look in vain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from aioqueue.worker import Worker
from aioqueue.worker._loop import Loop
from tests.worker.faults import Jobs

if TYPE_CHECKING:
    from aioqueue import Client

pytestmark = pytest.mark.anyio


async def test_a_lease_that_runs_out_after_one_that_held_nothing_isnt_forgotten(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is taken, and there is nothing to recover; a busy worker's third of a lease is half a minute here."""
    monkeypatch.setattr(Loop, "notified", lambda *_: None)  # no notification helps
    jobs = Jobs()
    handle = await client.enqueue(jobs.quick())
    await client.store.open_lease("dead and idle", 1.0)
    lease = await client.store.open_lease("dead", 4.0)
    assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    began = time.monotonic()
    async with Worker(client, jobs.registry, lease=90, renew_every=0.5, poll_interval=600):
        assert await handle.result(timeout=120) == 2
    assert time.monotonic() - began < 20
