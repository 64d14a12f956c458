"""Several processes on one file, with somebody who keeps the lock at times."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import make_store
from tests.sqlite.conftest import outsider, query

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

_SCRIPT = """
import asyncio, sys
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.sqlite import make_store
from tests.sqlite.conftest import outsider, query

path, role, number = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def produce(store):
    for _ in range(number):
        await store.insert([NewJob(id=new_id(), type="a") for _ in range(5)])

async def work(store):
    lease = await store.open_lease("worker", 600)
    while True:
        jobs = await store.claim(lease, ["a"], 4)
        for job in jobs:
            print(job.id)
        results = await store.settle(
            [Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=SettlementKind.COMPLETED) for job in jobs]
        )
        assert all(result.lost is None for result in results), results
        counts = (await store.stats()).types.get("a")
        if counts is not None and counts.counts.get("completed", 0) >= number:
            return

async def main():
    store = make_store("sqlite:///" + path, busy_timeout=120)
    await store.open()
    await (produce if role == "produce" else work)(store)
    await store.close()

asyncio.run(main())
"""


async def test_every_job_runs_once_and_nobody_finds_the_file_locked(path: Path) -> None:
    await make_store(f"sqlite:///{path}").migrate()
    roles = [("produce", "30"), ("produce", "30"), ("work", "300"), ("work", "300"), ("work", "300")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(path), role, number], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for role, number in roles
    ]
    with outsider(path, 120.0) as other:
        for _ in range(5):
            other.execute("BEGIN IMMEDIATE")
            other.execute("SELECT count(*) FROM job").fetchone()
            other.execute("COMMIT")
    outputs = [each.communicate(timeout=240) for each in processes]
    assert [each.returncode for each in processes] == [0] * 5, [errors for _, errors in outputs]
    ran = [line for output, _ in outputs for line in output.split()]
    assert len(ran) == 300
    assert len(set(ran)) == 300
    assert query(path, "SELECT count(*) FROM archive") == [(300,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
