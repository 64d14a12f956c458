"""Due times are exact whatever the time zone of the process is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """
import asyncio, json, sys
from datetime import UTC, datetime, timedelta, timezone
from aioqueue import Client, Registry
registry = Registry()

@registry.job
async def work() -> None: ...

TIMES = {
    "utc": datetime(2040, 1, 1, 12, tzinfo=UTC),
    "tokyo": datetime(2040, 1, 1, 21, tzinfo=timezone(timedelta(hours=9))),
    "folded": datetime(2040, 11, 4, 1, 30, fold=1, tzinfo=timezone(timedelta(hours=-5))),
    "last": datetime(9999, 12, 31, tzinfo=UTC),
}

async def main():
    found = {}
    async with Client(sys.argv[1]) as client:
        for name, at in TIMES.items():
            job = await (await client.enqueue(work().options(at=at))).snapshot()
            found[name] = [job.run_at == at, job.run_at.isoformat()]
        job = await (await client.enqueue(work().options(delay=timedelta(minutes=1)))).snapshot()
        waits = (job.run_at - job.created_at).total_seconds()
        found["delay"] = [59 < waits < 61, job.run_at.isoformat()[-6:]]
    for at in (datetime.now(), datetime(2040, 1, 1)):
        try:
            work().options(at=at)
        except Exception as error:
            found.setdefault("naive", []).append(type(error).__name__)
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_due_times_are_exact_in_every_zone(tmp_path: Path, zone: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", _SCRIPT, f"sqlite:///{tmp_path}/jobs.db"],
        env={**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    found = json.loads(completed.stdout)
    naive = found.pop("naive")
    assert naive == ["ConfigurationError"] * 2
    assert all(exact and text.endswith("+00:00") for exact, text in found.values()), found
