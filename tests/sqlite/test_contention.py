"""Several processes that produce and work on one file, while somebody from outside keeps its lock for long at times."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import make_store
from tests.sqlite.conftest import outsider, query

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

PROCESSES = 3
EACH = 60
LIMIT = 240

SCRIPT = """
import asyncio, logging, os, sys
from aioqueue import Client, Registry, Worker

url, ledger, each, total = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
registry = Registry()
ran = os.open(ledger, os.O_WRONLY | os.O_APPEND)

@registry.job
async def note(name: str) -> None:
    os.write(ran, (name + "\\n").encode())

async def produce(client):
    for number in range(each):
        await client.enqueue(note(f"{os.getpid()}-{number}"))

async def main():
    async with Client(url) as client:
        async with Worker(client, registry, concurrency=4, poll_interval=0.1):
            sys.stdout.write("ready\\n")
            sys.stdout.flush()
            await produce(client)
            while True:
                counts = (await client.stats()).types["note"].counts
                if counts.get("completed", 0) >= total:
                    break
                await asyncio.sleep(0.1)

logging.basicConfig(level=logging.WARNING)
asyncio.run(main())
"""


async def test_nobody_finds_the_file_locked_and_every_job_runs_once(path: Path, tmp_path: Path) -> None:
    await make_store(f"sqlite:///{path}").migrate()
    ledger = tmp_path / "ledger"
    ledger.touch()
    arguments = [f"sqlite:///{path}?busy_timeout=120", str(ledger), str(EACH), str(PROCESSES * EACH)]
    processes = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for each in processes:
            assert each.stdout is not None
            each.stdout.readline()  # it works, or has failed, which is found below
        with outsider(path, 120.0) as other:
            for held in (1.0, 0.3, 0.3):
                other.execute("BEGIN IMMEDIATE")
                other.execute("SELECT count(*) FROM job").fetchone()
                time.sleep(held)  # what the lock is kept for
                other.execute("COMMIT")
        outputs = [each.communicate(timeout=LIMIT) for each in processes]
    finally:
        for each in processes:
            each.kill()
    assert [each.returncode for each in processes] == [0] * PROCESSES, outputs
    assert not any("is locked" in errors or "fails, and" in errors for _, errors in outputs), outputs
    ran = ledger.read_text().split()
    assert (len(ran), len(set(ran))) == (PROCESSES * EACH, PROCESSES * EACH)
    counts = query(path, "SELECT state, attempt, count(*) FROM archive GROUP BY state, attempt")
    assert counts == [(4, 1, PROCESSES * EACH)]
    assert query(path, "SELECT count(*) FROM job") == [(0,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
