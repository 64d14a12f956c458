"""The command line and the logging that an application sets up when it's imported."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client
from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

JOBS = """
import logging, logging.config
{setup}
from aioqueue import Registry, Retry
registry = Registry()

@registry.job(retry=Retry(max_attempts=1))
async def fails() -> None:
    logging.getLogger("app").warning("from the handler")
    raise ValueError("boom")
"""

BASIC = 'logging.basicConfig(level=logging.WARNING, format="APP %(levelname)s %(name)s %(message)s")'
DICT = """
logging.config.dictConfig({
    "version": 1,
    "formatters": {"app": {"format": "APP %(levelname)s %(name)s %(message)s"}},
    "handlers": {"err": {"class": "logging.StreamHandler", "formatter": "app"}},
    "root": {"level": "WARNING", "handlers": ["err"]},
})
"""


async def enqueue(url: str) -> None:
    async with Client(url) as client:
        await client.enqueue_by_name("fails")


def run(folder: Path, setup: str, *options: str) -> list[str]:
    """The lines that a worker writes that runs a job which fails."""
    (folder / "jobs.py").write_text(JOBS.format(setup=setup))
    common = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120}
    environment = {"PYTHONPATH": str(ROOT), "AIOQUEUE_URL": "sqlite:///jobs.db", "PATH": ""}
    aioqueue = [sys.executable, "-m", "aioqueue"]
    anyio.run(enqueue, f"sqlite:///{folder / 'jobs.db'}")
    done = subprocess.run([*aioqueue, "worker", "jobs:registry", "--once", *options], env=environment, **common)
    assert done.returncode == 3, done.stderr
    lines: list[str] = done.stderr.splitlines()
    return lines


@pytest.mark.parametrize("setup", [BASIC, DICT], ids=["basicConfig", "dictConfig"])
def test_what_the_application_sets_up_counts_and_nothing_is_doubled(tmp_path: Path, setup: str) -> None:
    lines = run(tmp_path, setup)
    failures = [line for line in lines if "attempt 1 failed" in line]
    assert len(failures) == 1
    assert failures[0].startswith("APP ERROR aioqueue.worker fails ")
    assert [line for line in lines if "from the handler" in line] == ["APP WARNING app from the handler"]
    assert not any("begins" in line for line in lines)  # the application's level


def test_a_level_that_was_asked_for_counts_for_our_records(tmp_path: Path) -> None:
    lines = run(tmp_path, BASIC.replace("WARNING", "DEBUG"), "--log-level", "error")
    assert not any("begins" in line for line in lines)
    assert any("attempt 1 failed" in line for line in lines)


def test_the_applications_format_stays(tmp_path: Path) -> None:
    lines = run(tmp_path, BASIC, "--log-format", "json")
    assert any(line.startswith("APP ERROR aioqueue.worker fails ") for line in lines)
    assert not any(line.startswith("{") for line in lines)


def test_where_nothing_is_set_up_there_is_one_line_per_record(tmp_path: Path) -> None:
    lines = run(tmp_path, "")
    assert len([line for line in lines if "attempt 1 failed" in line]) == 1
    assert any("attempt 1 begins" in line for line in lines)
    assert all("Z " in line.split(" aioqueue")[0] or "Z " in line for line in lines if "aioqueue.worker" in line)
