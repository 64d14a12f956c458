"""`aioqueue limits` and `aioqueue sequences`: looked at and changed while workers run, or none does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import pytest

from aioqueue import Client, Fail, InSequence, Job, JobState, Limit, Rate, Registry, Worker
from aioqueue.cli._job_text import waits_for

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke, Result

registry = Registry(prefix="limited.")


@registry.job(limit=(Limit(3), "stripe"), rate=Rate(100, per=60, burst=50))
async def charge() -> None: ...


@registry.job
async def close() -> None:
    raise Fail("no")


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


def test_a_rate_of_none_says_nothing_of_how_many_start_at_once(migrated: Invoke) -> None:
    migrated("limits", "put", "rate:limited.charge", "0", "--per", "1m")
    assert "at once" not in migrated("limits", "list").stdout.splitlines()[1]


def test_limits_are_put_shown_and_removed(migrated: Invoke, url: str) -> None:
    assert migrated("limits", "list").stdout.startswith("no limits in ")
    assert migrated("limits", "put", "stripe", "0").stdout == "stripe: 0 at once\n"

    async def work() -> str:
        async with Client(url) as client:
            handle = await client.enqueue(charge())
            await Worker(client, registry).run_once()
            return str(handle.id)

    job_id = anyio.run(work)
    listed = migrated("jobs", "list").stdout
    assert "held" in listed
    assert "limit stripe" in listed
    assert read(migrated("jobs", "list", "--json"))["held_by"] == "stripe"
    assert "at_limit: the limit stripe is 0" in migrated("jobs", "why", job_id).stdout
    (reason,) = read(migrated("jobs", "why", job_id, "--json"))["reasons"][:1]
    assert reason["code"] == "at_limit"
    assert "`aioqueue limits put stripe PLACES`" in reason["advice"]
    migrated("limits", "put", "job:limited.charge", "4")
    assert migrated("limits", "put", "rate:limited.charge", "7", "--per", "1m").stdout == "rate:limited.charge: 7 in 1.0 min\n"
    shown = migrated("limits", "list").stdout
    for text in ("job:limited.charge", "4 at once", "code, changed at run time", "7 in 1.0 min", "stripe", "run time"):
        assert text in shown
    found = {each["name"]: each for each in read(migrated("limits", "list", "--json"))["limits"]}
    assert list(found) == ["job:limited.charge", "rate:limited.charge", "stripe"]
    assert found["stripe"] == {
        "name": "stripe",
        "kind": "places",
        "places": 0,
        "per": None,
        "burst": None,
        "running": 0,
        "waiting": 1,
        "defined": False,
        "changed": found["stripe"]["changed"],
    }
    assert (found["rate:limited.charge"]["places"], found["rate:limited.charge"]["per"]) == (7, 60.0)
    assert found["rate:limited.charge"]["running"] is None
    assert migrated("limits", "remove", "stripe").stdout == "stripe: removed\n"
    gone = migrated("limits", "remove", "stripe", exit_code=1)
    assert (gone.stdout, gone.stderr) == ("", "there is no limit stripe\n")
    assert anyio.run(work)
    assert "completed" in migrated("jobs", "why", job_id).stdout


def test_a_new_limit_that_nobody_is_known_to_ask_for_is_told_of(migrated: Invoke, url: str) -> None:
    put = migrated("limits", "put", "strype", "3")
    assert put.stdout == "strype: 3 at once\n"
    assert put.stderr.startswith("strype is new, and no job is known to wait at it: job types share it by limit='strype'.")
    assert migrated("limits", "put", "strype", "4").stderr == ""
    assert "strype is new" not in (said := read(migrated("limits", "put", "job:limited.chrge", "3", "--json"))["note"])
    assert said == "there is no job of the type limited.chrge, and no live worker runs it: is that its name?"

    async def work() -> None:
        async with Client(url) as client:
            await client.enqueue_many([charge(), close()])
            await Worker(client, registry, types=["limited.charge"]).run_once()

    anyio.run(work)
    assert migrated("limits", "put", "job:limited.charge", "4").stderr == ""
    assert read(migrated("limits", "put", "rate:limited.charge", "4", "--per", "1m", "--json"))["note"] is None
    mistaken = migrated("limits", "put", "limited.charge", "4").stderr
    assert mistaken.endswith("That of the job type limited.charge is job:limited.charge, its rate rate:limited.charge\n")
    nobodys = migrated("limits", "put", "rate:limited.close", "4", "--per", "1m").stderr
    assert nobodys.startswith("no worker has told of a rate=Rate(...) of limited.close so far")


def test_run_now_says_which_limit_of_0_keeps_a_job(migrated: Invoke, url: str) -> None:
    async def work() -> list[str]:
        async with Client(url) as client:
            await client.limits.put("stripe", 0)
            held = await client.enqueue(charge())
            later, free = await client.enqueue_many([charge().options(delay=60), close().options(delay=60)])
            await Worker(client, registry).run_once()
            return [str(each.id) for each in (held, later, free)]

    held, later, free = anyio.run(work)
    said = migrated("jobs", "run-now", held)
    assert said.stdout == f"{held}  done\n"
    assert said.stderr == (
        "the limit stripe is 0: what was made due is first in line there, and starts once it's raised: "
        "`aioqueue limits put stripe PLACES`\n"
    )
    migrated("limits", "put", "stripe", "1")
    assert migrated("jobs", "run-now", held, free).stderr == ""
    migrated("limits", "put", "rate:limited.charge", "0", "--per", "1m")
    assert "put rate:limited.charge STARTS --per TIME`" in migrated("jobs", "run-now", later).stderr
    assert migrated("jobs", "run-now", "0" * 32, exit_code=1).stderr == ""
    assert migrated("jobs", "run-now", "--type", "limited.charge", "--yes").stderr == ""  # none is left that is scheduled
    migrated("jobs", "reschedule", later, "--delay", "1h")
    assert "the rate rate:limited.charge is 0" in migrated("jobs", "run-now", "--type", "limited.charge", "--yes").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rate:limited.charge", "3"), "--per"),
        (("stripe", "3", "--per", "1m"), "whose name begins with rate:"),
        (("stripe", "-3"), ""),
        (("job:", "3"), ""),
    ],
)
def test_what_is_refused(migrated: Invoke, arguments: tuple[str, ...], said: str) -> None:
    assert said in migrated("limits", "put", *arguments, exit_code=2).stderr


def test_a_sequence_goes_on(migrated: Invoke, url: str) -> None:
    async def work() -> tuple[str, str]:
        kept = InSequence("my account", on_failure="block")
        async with Client(url) as client:
            failed, behind = await client.enqueue_many([close().options(sequence=kept), charge().options(sequence=kept)])
            await Worker(client, registry).run_once()
            return str(failed.id), str(behind.id)

    failed, behind = anyio.run(work)
    why = migrated("jobs", "why", behind).stdout
    assert f"in_sequence: sequence my account is kept by the failed job {failed}" in why
    assert "`aioqueue sequences resume 'my account'`" in why
    assert "my account" in (shown := migrated("sequences", "list").stdout)
    assert failed in shown
    kept = read(migrated("sequences", "list", "--json"))
    assert kept == {"sequences": [{"name": "my account", "blocked_by": failed, "waiting": 1}]}
    assert migrated("sequences", "resume", "my account").stdout == "my account: resumed\n"
    again = migrated("sequences", "resume", "my account", exit_code=1)
    assert (again.stdout, again.stderr) == ("", "no failed job keeps the sequence my account\n")
    assert migrated("sequences", "list").stdout.startswith("no failed job keeps a sequence in ")


def test_a_job_is_put_in_a_sequence(migrated: Invoke, url: str) -> None:
    first, second = (migrated("enqueue", "limited.close", "--sequence", "my account").stdout.split()[0] for _ in range(2))

    async def look() -> str:
        async with Client(url) as client:
            head = str((await client.sequences.status("my account")).head)
            await client.delete(first)
            return f"{head} {(await client.sequences.status('my account')).head}"

    assert anyio.run(look) == f"{first} {second}"
    assert "sequence" in migrated("enqueue", "limited.close", "--sequence", "", exit_code=2).stderr


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        (None, ""),
        ("stripe", "limit stripe"),
        ('job:resize="acme"', 'limit job:resize="acme"'),
        ("rate:resize=1", "rate resize=1"),
        ("sequence=account:42", "its turn in sequence account:42"),
        ('fair:resize="acme"', 'its turn among resize="acme"'),
        ("pause:customer 7", "pause of the key customer 7"),
    ],
)
def test_a_few_words_on_what_holds_a_job(gate: str | None, says: str) -> None:
    now, job_id = datetime(2026, 1, 31, tzinfo=UTC), UUID(int=1)
    job = Job(
        id=job_id,
        chain_id=job_id,
        type="a",
        state=JobState.HELD,
        priority=2,
        payload=b"{}",
        created_at=now,
        run_at=now,
        held_by=gate,
    )
    assert waits_for(job) == says
