"""What a worker's process writes: one line a record in each format, whatever jobs do, and nobody's secrets at any level."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, Registry, Worker
from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Invoke

JOBS = r"""
import logging
from aioqueue import Fail, Fixed, Registry, Retry, current_attempt
registry = Registry()
app = logging.getLogger("app")
FORGED = "x\n2030-01-01T00:00:00.000Z ERROR    root              forged\r\x1b[2J\x1b[31mred\x00\x85\u2028end"
Strange = type("Strange\nERROR forged", (Exception,), {})

@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
async def fails(password: str) -> None:
    app.warning("from a handler: %s", FORGED)
    raise Strange(FORGED)

@registry.job
async def declines(password: str) -> None:
    raise Fail(FORGED, FORGED)

@registry.job
def returns(password: str) -> str:
    app.warning("from a thread", extra={"job_id": "mine", "attempt": 7, "event": "attempt.ended"})
    return password + " again"
"""
SECRET = "hunter2-correct-horse"
SAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR)\s{1,5} [a-z.]+ +\S")


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "AIOQUEUE_URL": "sqlite:///jobs.db", "PATH": "", **variables}
    aioqueue = [sys.executable, "-m", "aioqueue", *arguments]
    return subprocess.run(aioqueue, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


async def enqueue(url: str) -> None:
    async with Client(url) as client:
        for name in ("fails", "declines", "returns"):
            await client.enqueue_by_name(name, {"password": SECRET})
        await client.enqueue_by_name("returns", {"password": {"not": SECRET}})


def work(folder: Path, *options: str, **variables: str) -> list[str]:
    """Run jobs that do all that they can to a log, and give the lines that were written of it."""
    (folder / "jobs.py").write_text(JOBS)
    anyio.run(enqueue, f"sqlite:///{folder / 'jobs.db'}")
    done = run(folder, "worker", "jobs:registry", "--once", "--name", "w1", *options, **variables)
    assert done.returncode == 3, done.stderr
    assert SECRET not in done.stdout + done.stderr
    lines = done.stderr.removesuffix("\n").split("\n")
    assert [line for line in lines if SAFE.search(line)] == []
    return lines


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_text_is_one_line_a_record_without_secrets(tmp_path: Path, level: str) -> None:
    lines = work(tmp_path, "--log-level", level)
    records = [line for line in lines if not line.startswith("Error: ")]
    assert [line for line in records if not TEXT_LINE.match(line)] == []
    assert any("Strange" in line for line in records)
    found = [line for line in records if " app  " in line]
    assert len(found) == (0 if level == "error" else 3)  # two attempts, and the thread
    assert all(re.search(r" \[(fails|returns) [0-9a-f-]{36} attempt [12]\]$", line) for line in found)


@pytest.mark.parametrize("level", ["debug", "info", "error"])
def test_json_is_one_object_a_record_without_secrets(tmp_path: Path, level: str) -> None:
    lines = work(tmp_path, "--log-level", level, "--log-format", "json")
    objects: list[dict[str, Any]] = [json.loads(line) for line in lines if not line.startswith("Error: ")]
    for each in objects:
        assert list(each)[:3] == ["time", "level", "logger"]
        assert ("event" in each) == each["logger"].startswith("aioqueue")
    ended = [each for each in objects if each.get("event") == "attempt.ended" and each["outcome"] == "failed"]
    assert {each["job_type"] for each in ended} == {"fails", "declines", "returns"}
    assert all(each["worker"] == "w1" for each in ended)
    if level == "info":
        (thread,) = [each for each in objects if each["message"] == "from a thread"]
        assert (thread["job_type"], thread["attempt"], thread["worker"]) == ("returns", 1, "w1")
        assert (thread["job_id_"], thread["attempt_"], thread["event_"]) == ("mine", 7, "attempt.ended")


def test_the_format_has_a_variable(tmp_path: Path) -> None:
    lines = work(tmp_path, AIOQUEUE_LOG_FORMAT=" json ")
    assert json.loads(lines[0])["event"] == "worker.started"


def test_a_format_that_there_is_not_is_refused(invoke: Invoke) -> None:
    assert "log-format" in invoke("worker", "tests.cli.jobs:registry", "--log-format", "xml", exit_code=2).output
    assert "LOG_FORMAT" in invoke("worker", "tests.cli.jobs:registry", exit_code=2, AIOQUEUE_LOG_FORMAT="xml").output


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("query", ["", f"?password={SECRET}"], ids=["before the host", "in the query"])
def test_no_password_of_an_url_is_written(tmp_path: Path, log_format: str, query: str) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    options = ["--once", "--log-level", "debug", "--log-format", log_format]
    url = f"postgresql://app:{SECRET}@127.0.0.1:1/db{query}"
    done = run(tmp_path, "worker", "jobs:registry", *options, AIOQUEUE_URL=url)
    assert done.returncode == 1, done.stderr
    assert "Error: " in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_what_is_shown_of_clients_workers_and_stores_has_no_password() -> None:
    registry = Registry()

    @registry.job
    async def works() -> None: ...

    client = Client(f"postgresql://app:{SECRET}@db.example/queue")
    worker = Worker(client, registry)
    for shown in (client, worker, client.store, registry, worker.settings, worker.health()):
        for text in (repr(shown), str(shown), f"{shown}", ascii(shown)):
            assert SECRET not in text
    assert SECRET not in client.store.description
