"""What is shown of a job's progress, its phases, its attempts and what these have logged."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import orjson
import pytest

from aioqueue import AttemptError, AttemptLog, Client, Job, JobState, Phase, PhaseState, Progress
from aioqueue.cli._job_life import describe_life, log_lines, phase_lines, progress_line, timeline
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
from tests.cli.jobs import greet

if TYPE_CHECKING:
    from uuid import UUID

    from tests.cli.conftest import Invoke

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def a_job(state: JobState, **fields: object) -> Job:
    identifier = new_id()
    values = {"id": identifier, "chain_id": identifier, "type": "a", "state": state, "priority": 2, "payload": b"{}"}
    return Job(**{**values, "created_at": NOON, "run_at": at(1), "worker": "w", **fields})


@pytest.mark.parametrize(
    ("percent", "phase", "message", "shown"),
    [
        (0.0, None, None, "[--------------------] 0 %"),
        (42.4, "process", "page 3\nof 7", "[########------------] 42 %  process: page 3\\nof 7"),
        (100.0, None, "done", "[####################] 100 %  done"),
    ],
)
def test_progress_is_a_bar(percent: float, phase: str | None, message: str | None, shown: str) -> None:
    progress = Progress(percent=percent, message=message, phase=phase, phases=(), at=NOON)
    assert progress_line(describe_life(a_job(JobState.RUNNING, progress=progress))["progress"]) == shown


def test_phases_are_lines() -> None:
    phases = (
        Phase(name="download", state=PhaseState.COMPLETED, started_at=at(1), finished_at=at(3)),
        Phase(name="process", state=PhaseState.RUNNING, started_at=at(3)),
        Phase(name="up", state=PhaseState.WAITING),
    )
    assert list(phase_lines(phases)) == [
        "download  completed  2026-01-01T12:01:00+00:00  took 2.0 min",
        "process   running    2026-01-01T12:03:00+00:00",
        "up        waiting",
    ]
    described = describe_life(a_job(JobState.RUNNING, phases=phases))["phases"]
    assert described[1:] == [
        {"name": "process", "state": "running", "started_at": "2026-01-01T12:03:00+00:00"},
        {"name": "up", "state": "waiting"},
    ]


def test_the_timeline_says_which_worker_ran_which_attempt() -> None:
    error = AttemptError(attempt=1, at=at(3), type="ValueError", message="no", worker="v", started_at=at(2))
    older = AttemptError(attempt=1, at=at(3), type="ValueError", message="no")
    job = a_job(JobState.COMPLETED, attempt=2, started_at=at(5), finished_at=at(6), errors=(error,))
    assert [entry["what"] for entry in timeline(job)] == [
        "created", "due", "started by v: attempt 1", "attempt 1 failed: ValueError: no", "started by w: attempt 2",
        "finished: completed",
    ]  # fmt: skip
    put_off = a_job(JobState.SCHEDULED, attempt=1, started_at=at(5), errors=(older,))
    assert [entry["what"] for entry in timeline(put_off)] == [
        "created", "due", "attempt 1 failed: ValueError: no", "started by w",
    ]  # fmt: skip
    cancelled = AttemptError(attempt=0, at=at(3), type="Cancelled", message="enough")
    ended = a_job(JobState.CANCELLED, finished_at=at(3), errors=(cancelled,))
    assert [entry["what"] for entry in timeline(ended)] == ["created", "due", "Cancelled: enough", "finished: cancelled"]


def test_logs_are_lines_whatever_they_hold() -> None:
    lines = [
        {"left_out": 3},
        {"time": "2026-01-01T12:00:00.000Z", "level": "INFO", "logger": "app", "message": "one\ntwo"},
        {"level": "ERROR", "logger": "app", "message": "no", "exception": "Traceback\nValueError: no"},
        "nonsense",
    ]
    kept = AttemptLog(attempt=1, claims=1, lines_json=orjson.dumps(lines))
    assert list(log_lines(kept)) == [
        "3 earlier lines were left out",
        "2026-01-01T12:00:00.000Z INFO     app               one\\ntwo",
        "ERROR    app               no",
        "    Traceback",
        "    ValueError: no",
        "nonsense",
    ]
    assert list(log_lines(AttemptLog(attempt=1, claims=1, lines_json=b"{broken"))) == ["{broken"]
    assert list(log_lines(AttemptLog(attempt=1, claims=1, lines_json=b"7"))) == ["7"]


# -- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


def _failed(url: str) -> tuple[UUID, UUID]:
    """The ids of a job that has failed in its second phase, and of one that is scheduled."""

    async def put() -> tuple[UUID, UUID]:
        async with Client(url) as client:
            failed = await client.enqueue(greet("Ada"))
            lease = await client.store.open_lease("w", 600)
            (job,) = await client.store.claim(lease, ["jobs.greet"], 1)
            fence = {"id": job.id, "claims": job.claims, "lease_id": lease}
            states = {"download": PhaseState.COMPLETED, "upload": PhaseState.RUNNING}
            await client.store.write_phases([PhaseWrite(**fence, name=name, state=each) for name, each in states.items()])
            phases = ("download", "upload", "tidy")
            await client.store.write_progress(
                [ProgressWrite(**fence, percent=50, message="half", phase="upload", phases=phases)]
            )
            error = AttemptError(attempt=1, at=NOON, type="E", message="no", worker="w", started_at=job.started_at)
            lines = b'[{"time":"12:00","level":"INFO","logger":"app","message":"hello"}]'
            failure = Settlement(**fence, kind=SettlementKind.FAILED, attempt=1, error=error, logs=lines)
            assert [each.lost for each in await client.store.settle([failure])] == [None]
            later = await client.enqueue(greet("Eve").options(delay=3600, tags=["t"]))
            return failed.id, later.id

    return anyio.run(put)


def test_a_job_with_phases_is_shown_begun_anew_and_put_off(invoke: Invoke, url: str) -> None:
    failed, later = _failed(url)
    text = invoke("jobs", "show", str(failed)).stdout
    assert "[##########----------] 50 %  upload: half" in text
    assert [line.split()[:2] for line in text.split("\nphases\n")[1].splitlines()[:3]] == [
        ["download", "completed"],
        ["upload", "failed"],
        ["tidy", "waiting"],
    ]
    assert "started by w: attempt 1\n" in text
    shown = json.loads(invoke("jobs", "show", str(failed), "--json").stdout)
    assert (shown["progress"]["percent"], [each["name"] for each in shown["phases"]]) == (50, ["download", "upload", "tidy"])
    assert [(each["number"], each["worker"], each["error"]) for each in shown["attempts"]] == [(1, "w", "E: no")]

    assert invoke("jobs", "logs", str(failed)).stdout == "attempt 1\n12:00 INFO     app               hello\n"
    (log,) = json.loads(invoke("jobs", "logs", str(failed), "--json").stdout)["logs"]
    assert (log["attempt"], log["lines"][0]["message"]) == (1, "hello")
    assert invoke("jobs", "logs", str(later)).stdout == "nothing that it has logged was kept\n"

    assert invoke("jobs", "retry", str(failed), "--from-start").stdout == f"{failed}  done\n"
    assert "phases" not in json.loads(invoke("jobs", "show", str(failed), "--json").stdout)

    for wrong in ((), ("--delay", "1h", "--at", "2030-01-01T00:00:00Z"), ("--at", "tomorrow")):
        invoke("jobs", "reschedule", str(later), *wrong, exit_code=2)
    assert invoke("jobs", "reschedule", str(later), "--at", "2030-01-01T00:00:00Z").stdout == f"{later}  done\n"
    assert json.loads(invoke("jobs", "show", str(later), "--json").stdout)["run_at"] == "2030-01-01T00:00:00+00:00"
    assert invoke("jobs", "reschedule", "--tag", "t", "--delay", "0s", "--yes").stdout == "1 rescheduled\n"
    assert json.loads(invoke("jobs", "show", str(later), "--json").stdout)["state"] == "ready"
