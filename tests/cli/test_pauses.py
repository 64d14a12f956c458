"""`aioqueue pause`, `resume` and `pauses`, and what other commands show of what is paused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, Worker
from aioqueue.cli import _pauses
from tests.cli.jobs import registry

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke, Result


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


@pytest.fixture
def migrated(invoke: Invoke) -> Invoke:
    invoke("migrate")
    return invoke


def read(result: Result) -> dict[str, Any]:
    (line,) = result.stdout.splitlines()
    value: dict[str, Any] = json.loads(line)
    return value


def work(url: str) -> None:
    async def run() -> None:
        async with Client(url) as client:
            await Worker(client, registry).run_once()

    anyio.run(run)


def enqueue(invoke: Invoke, *options: str) -> str:
    return str(read(invoke("enqueue", "jobs.greet", "name=Ada", *options, "--json"))["id"])


def test_a_type(migrated: Invoke, url: str) -> None:
    assert migrated("pauses").stdout == "nothing is paused\n"
    job_id = enqueue(migrated)
    paused = migrated(
        "pause", "jobs.greet", "--reason", "the provider is down", "--by", "Ada", "--until", "2030-01-31T12:00:00Z"
    )
    assert paused.stdout == "type jobs.greet: paused until 2030-01-31 12:00:00 UTC; 1 due job waits\n"
    assert paused.stderr == ""
    work(url)
    why = migrated("jobs", "why", job_id).stdout
    assert "paused: all jobs of jobs.greet are paused by Ada since" in why
    assert "`aioqueue resume jobs.greet`" in why
    shown = migrated("pauses").stdout
    for text in ("type jobs.greet", "Ada", "2030-01-31 12:00:00", "the provider is down"):
        assert text in shown
    (pause,) = read(migrated("pauses", "--json"))["pauses"]
    assert (pause["target"], pause["value"], pause["by"], pause["waiting"]) == ("type", "jobs.greet", "Ada", 1)
    assert pause["until"] == "2030-01-31T12:00:00+00:00"
    (frame,) = [json.loads(line) for line in migrated("top", "--once", "--json").stdout.splitlines()]
    assert frame["pauses"] == [pause]
    assert "the provider is down" in migrated("top", "--once").stdout
    assert "paused: type jobs.greet\n" in migrated("stats").stdout
    assert read(migrated("stats", "--json"))["pauses"] == [pause]
    assert "type jobs.greet is paused by Ada" in migrated("doctor", exit_code=0).stdout
    assert migrated("resume", "jobs.greet").stdout == "1 pause lifted\n"
    work(url)
    assert "completed" in migrated("jobs", "why", job_id).stdout


def test_a_key_holds_jobs(migrated: Invoke, url: str) -> None:
    job_id = enqueue(migrated, "--key", "customer 7")
    assert "key customer 7" in migrated("pause", "--key", "customer 7").stdout
    work(url)
    assert read(migrated("jobs", "show", job_id, "--json"))["held_by"] == "pause:customer 7"
    assert job_id in migrated("jobs", "list", "--state", "held").stdout
    assert "held by pause:customer 7" in migrated("chains", "show", job_id).stdout
    assert "held" in migrated("stats").stdout
    assert "`aioqueue resume --key 'customer 7'`" in migrated("jobs", "why", job_id).stdout
    assert read(migrated("resume", "--key", "customer 7", "--json")) == {"lifted": 1, "left": []}
    work(url)
    assert read(migrated("jobs", "show", job_id, "--json"))["output"] == "Ada"


def test_held_jobs_are_rescheduled_and_cancelled(migrated: Invoke, url: str) -> None:
    ids = [enqueue(migrated, "--key", "k") for _ in range(2)]
    migrated("pause", "--key", "k")
    work(url)
    migrated("jobs", "reschedule", "--state", "held", "--delay", "1h", "--yes")
    migrated("jobs", "run-now", ids[0])
    work(url)
    assert read(migrated("jobs", "show", ids[0], "--json"))["state"] == "held"
    migrated("jobs", "cancel", ids[0], "--yes")
    assert read(migrated("jobs", "show", ids[0], "--json"))["state"] == "cancelled"
    migrated("resume", "--key", "k")
    work(url)
    assert read(migrated("jobs", "show", ids[1], "--json"))["state"] == "scheduled"
    migrated("pause", "--key", "k")
    assert "no jobs that fit" in migrated("jobs", "cancel", "--state", "held", "--yes").stdout


def test_all(migrated: Invoke, url: str) -> None:
    job_id = enqueue(migrated)
    assert migrated("pause", "--all", "--by", "").stdout == "all jobs: paused until it's resumed; 1 due job waits\n"
    migrated("pause", "jobs.greet", "--by", "Eve")
    resumed = migrated("resume", "--all").stdout
    assert "1 pause lifted" in resumed
    assert "still paused:" in resumed
    assert "Eve" in resumed
    assert migrated("resume", "jobs.greet", "--by", "Ada").stdout.startswith("nothing of that was paused\n")
    work(url)
    assert read(migrated("jobs", "show", job_id, "--json"))["state"] == "ready"


def test_a_name_that_nobody_knows_is_paused_and_told(migrated: Invoke) -> None:
    paused = migrated("pause", "jobs.greeet")
    assert paused.stdout.startswith("type jobs.greeet: paused")
    assert "jobs.greeet" in paused.stderr
    assert read(migrated("pause", "jobs.greeet", "--json"))["unknown"] == ["jobs.greeet"]


def test_who_asks(migrated: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pauses.getpass, "getuser", lambda: "ops")
    (pause,) = read(migrated("pause", "--all", "--json"))["paused"]
    assert pause["by"] == "ops"

    def nobody() -> str:
        raise KeyError("uid not found: 1234")

    monkeypatch.setattr(_pauses.getpass, "getuser", nobody)
    (pause,) = read(migrated("pause", "--all", "--json"))["paused"]
    assert pause["by"] == ""


def test_wrong_usage(migrated: Invoke) -> None:
    for wrong in (
        ("pause",),
        ("pause", "jobs.greet", "--all"),
        ("pause", "--key", "k", "--all"),
        ("pause", "--key", ""),
        ("pause", "--all", "--until", "2030-01-31T12:00:00"),
        ("pause", "--all", "--until", "2020-01-31T12:00:00Z"),
        ("pause", "--all", "--until", "soon"),
        ("pause", "--all", "--until", "9999999d"),
        ("pause", "--all", "--by", "x" * 201),
        ("resume",),
    ):
        migrated(*wrong, exit_code=2)
    assert "--until" in migrated("pause", "--all", "--until", "soon", exit_code=2).stderr
    (pause,) = read(migrated("pause", "--all", "--until", "90m", "--json"))["paused"]
    assert pause["until"] > pause["since"]
