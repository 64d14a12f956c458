"""`migrate`, `enqueue`, `jobs` and `stats`, on a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue import AttemptError, Client
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

APP = "tests.cli.jobs:registry"


def _jobs(invoke: Invoke, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in invoke("jobs", "list", "--json", *arguments).stdout.splitlines()]


def _show(invoke: Invoke, job_id: str, *arguments: str) -> dict[str, object]:
    shown = json.loads(invoke("jobs", "show", job_id, "--json", *arguments).stdout)
    assert isinstance(shown, dict)
    return shown


def _enqueue(invoke: Invoke, *arguments: str) -> str:
    job_id = invoke("enqueue", *arguments).stdout.split()[0]
    assert UUID(job_id).version == 7
    return job_id


def _fail(url: str, job_id: str) -> None:
    """Let an attempt of the job end badly, as a worker would."""

    async def fail() -> None:
        async with Client(url) as client:
            store = client.store
            lease = await store.open_lease("somebody", 60)
            (claimed,) = await store.claim(lease, ["jobs.greet"], 1)
            assert claimed.id == UUID(job_id)
            error = AttemptError(
                attempt=1, at=datetime.now(UTC), type="Odd\nError", message="with\x1b[31m colour", traceback="a\nb"
            )
            kind = SettlementKind.FAILED
            settlement = Settlement(id=claimed.id, claims=claimed.claims, lease_id=lease, kind=kind, error=error)
            (result,) = await store.settle([settlement])
            assert result.lost is None

    anyio.run(fail)


def test_migrating_twice_changes_nothing_the_second_time(invoke: Invoke) -> None:
    assert "0001" in invoke("migrate").stdout
    assert invoke("migrate").stdout == "nothing to do\n"
    assert "by itself" in invoke("migrate", "--check").stdout
    invoke("migrate", "--sql", exit_code=2)
    invoke("migrate", "--sql", "--check", exit_code=2)
    invoke("migrate", "--sql", "--dry-run", exit_code=2)
    assert "by itself" in invoke("migrate", "--dry-run", exit_code=2).output


def test_enqueueing_by_name_stores_what_was_given(invoke: Invoke) -> None:
    job_id = _enqueue(
        invoke, "jobs.greet", "name=world", "shout:=true", "--priority", "3", "--tag", "a", "--tag", "b", "--key", "k",
        "--max-attempts", "4", "--timeout", "90s", "--delay", "1h",
    )  # fmt: skip
    job = _show(invoke, job_id, "--arguments")
    assert job["arguments"] == {"name": "world", "shout": True}
    assert job["state"] == "scheduled"
    assert (job["priority"], job["tags"], job["key"]) == (3, ["a", "b"], "k")
    assert (job["max_attempts"], job["timeout"]) == (4, 90)


NOT_JSON = ["NaN", "Infinity", "1e400", "{", '"\x01"', "1" * 5000, "[" * 100_000]


@pytest.mark.parametrize("value", NOT_JSON, ids=lambda value: value[:10])
def test_what_isnt_json_is_refused_in_a_line(invoke: Invoke, value: str) -> None:
    for argument in (f"n:={value}", f'{{"n": {value}'):
        shown = invoke("enqueue", "jobs.greet", argument, exit_code=2).stderr
        assert "that isn't JSON" in shown
        assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("value", [2**64 + 1, -(2**63) - 1, 2**64 - 1, -(2**63)])
def test_an_integer_is_kept_exactly_or_refused(invoke: Invoke, value: int) -> None:
    for argument in (f"n:={value}", f'{{"n": {value}}}', f"n:=[[{value}]]"):
        if not -(2**63) <= value < 2**64:
            assert "n" in invoke("enqueue", "jobs.greet", argument, exit_code=2).stderr
        else:
            assert str(value) in str(_show(invoke, _enqueue(invoke, "jobs.greet", argument), "--arguments"))


def test_an_integer_that_others_have_stored_is_shown_exactly(invoke: Invoke, url: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=new_id(), type="a", payload=b'{"n": 18446744073709551617}')])

    anyio.run(put)
    (job,) = _jobs(invoke)
    assert "18446744073709551617" in invoke("jobs", "show", str(job["id"]), "--arguments").stdout


def test_an_option_that_cant_be_is_refused_in_a_line(invoke: Invoke) -> None:
    shown = invoke("enqueue", "jobs.greet", "--max-attempts", "40000", exit_code=2).stderr
    assert "max_attempts" in shown
    assert len(shown.splitlines()) == 1


def test_arguments_are_shown_only_on_request(invoke: Invoke) -> None:
    job_id = _enqueue(invoke, "jobs.greet", "password=hunter2")
    assert "hunter2" not in invoke("jobs", "show", job_id).output
    assert "hunter2" not in invoke("jobs", "list").output
    assert "hunter2" not in invoke("jobs", "list", "--json").output
    assert "hunter2" in invoke("jobs", "show", job_id, "--arguments").output


def test_a_unique_key_gives_the_job_that_is_there(invoke: Invoke) -> None:
    first = _enqueue(invoke, "jobs.greet", "--key", "k", "--unique")
    again = invoke("enqueue", "jobs.greet", "--key", "k", "--unique").stdout
    assert again.split()[0] == first
    assert "was there already" in again


def test_a_time_of_its_own(invoke: Invoke) -> None:
    at = datetime.now(UTC) + timedelta(days=3)
    job = _show(invoke, _enqueue(invoke, "jobs.greet", "--at", at.isoformat()))
    assert abs(datetime.fromisoformat(str(job["run_at"])) - at) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["name"], "neither name=text nor name:=json"),
        (["1=2"], "neither name=text nor name:=json"),
        (["name=a", "name=b"], "given twice"),
        (["name:={"], "isn't JSON"),
        (["--at", "tomorrow"], "ISO 8601"),
        (["--at", "2030-01-01T00:00:00"], "in which time zone: add an offset, such as 2030-01-01T00:00:00Z for UTC"),
        (["--at", "2030-12-01"], "in which time zone: add an offset, such as 2030-12-01T00:00:00Z for UTC"),
        (["--delay", "soon"], "must be a duration"),
        (["--delay", "1h", "--at", "2030-01-01T00:00:00Z"], "delay"),
        (["--unique"], "key"),
        (["--priority", "9"], "priority"),
    ],
)
def test_what_can_t_be_enqueued_is_explained(invoke: Invoke, arguments: list[str], message: str) -> None:
    assert message in invoke("enqueue", "jobs.greet", *arguments, exit_code=2).output


def test_with_an_app_the_arguments_are_checked(invoke: Invoke) -> None:
    assert "nam" in invoke("enqueue", "--app", APP, "jobs.greet", "nam=world", exit_code=2).output
    assert "shout" in invoke("enqueue", "--app", APP, "jobs.greet", "name=world", "shout=maybe", exit_code=2).output
    assert "no job type" in invoke("enqueue", "--app", APP, "jobs.leave", exit_code=2).output
    assert _show(invoke, _enqueue(invoke, "--app", APP, "jobs.greet", "name=world"))["type"] == "jobs.greet"


def test_listing_filters_and_pages(invoke: Invoke) -> None:
    ids = [_enqueue(invoke, "jobs.greet", "--tag", "even" if number % 2 == 0 else "odd") for number in range(4)]
    assert [job["id"] for job in _jobs(invoke)] == ids[::-1]
    assert [job["id"] for job in _jobs(invoke, "--tag", "even")] == [ids[2], ids[0]]
    assert _jobs(invoke, "--state", "failed") == []
    assert _jobs(invoke, "--type", "other") == []
    page = invoke("jobs", "list", "--json", "--limit", "3")
    cursor = page.stderr.split()[-1]
    assert [job["id"] for job in _jobs(invoke, "--cursor", cursor)] == ids[:1]
    assert "cursor" in invoke("jobs", "list", "--cursor", "nonsense", exit_code=2).output


def test_a_failed_job_is_listed_on_one_line_and_can_be_retried(invoke: Invoke, url: str) -> None:
    job_id = _enqueue(invoke, "jobs.greet")
    _fail(url, job_id)
    listed = invoke("jobs", "list", "--state", "failed").stdout
    assert len(listed.splitlines()) == 2
    assert r"Odd\nError: with\x1b[31m colour" in listed
    shown = invoke("jobs", "show", job_id).stdout
    assert "\x1b" not in shown
    assert "    a\n    b\n" in shown
    assert "done" in invoke("jobs", "retry", job_id).stdout
    assert _show(invoke, job_id)["state"] == "ready"
    assert "isn't failed" in invoke("jobs", "retry", job_id, exit_code=1).stdout


def test_running_now_and_deleting(invoke: Invoke) -> None:
    job_id = _enqueue(invoke, "jobs.greet", "--delay", "1d")
    other = "01a220ea-1ed8-7000-a079-c642a115fa2a"
    assert "no such job" in invoke("jobs", "run-now", job_id, other, exit_code=1).stdout
    assert _show(invoke, job_id)["state"] == "ready"
    invoke("jobs", "delete", job_id, "--yes")
    invoke("jobs", "show", job_id, exit_code=1)
    assert "UUID" in invoke("jobs", "delete", "nonsense", "--yes", exit_code=2).output


def test_statistics(invoke: Invoke) -> None:
    job_id = _enqueue(invoke, "jobs.greet")
    invoke("jobs", "delete", job_id, "--yes")
    first, second = invoke("stats").stdout.splitlines()
    assert first.startswith("no jobs in sqlite:///")
    assert second == "workers: none"
    _enqueue(invoke, "jobs.greet")
    _enqueue(invoke, "jobs.greet", "--delay", "1h")
    numbers = json.loads(invoke("stats", "--json").stdout)
    assert numbers["types"]["jobs.greet"]["counts"] == {"ready": 1, "scheduled": 1}
    assert invoke("stats").stdout.splitlines()[0].split() == ["type", "scheduled", "ready", "oldest", "ready"]


def test_a_url_s_password_is_never_shown(invoke: Invoke) -> None:
    # Nothing listens on port 1.
    for bad in ("postgresql://user:hunter2@127.0.0.1:1/x", "mysql://user:hunter2@127.0.0.1/x", "user:hunter2@host"):
        for command in (["stats"], ["jobs", "list"], ["migrate"], ["--help"], ["stats", "--help"]):
            output = invoke(
                *command, exit_code=0 if "--help" in command else 1 if "postgres" in bad else 2, AIOQUEUE_URL=bad
            ).output
            assert "hunter2" not in output
