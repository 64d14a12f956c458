"""`aioqueue schedules`, and what other commands show of jobs that a schedule has enqueued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.definitions._schedules import generation_of
from tests.cli.jobs import registry

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke, Result

code = Registry(prefix="code.")


@code.job
async def defined() -> None: ...


code.schedule(defined(), every=60)

NIGHTLY = ("schedules", "put", "nightly", "jobs.greet", "name=Ada", "shout:=true", "--cron", "30 2 * * *")


@pytest.fixture
def migrated(invoke: Invoke) -> Invoke:
    invoke("migrate")
    return invoke


def read(result: Result) -> dict[str, Any]:
    (line,) = result.stdout.splitlines()
    value: dict[str, Any] = json.loads(line)
    return value


def test_put_and_looked_at(migrated: Invoke) -> None:
    assert "no schedules in" in migrated("schedules", "list").stdout
    put = migrated(*NIGHTLY, "--timezone", "Europe/Berlin", "--overlap", "skip", "--key", "k", "--tag", "t", "--priority", "1")
    assert put.stdout.startswith("nightly: jobs.greet, 30 2 * * * Europe/Berlin; next 20")
    shown = migrated("schedules", "list").stdout
    assert "nightly" in shown
    assert "30 2 * * * Europe/Berlin" in shown
    described = read(migrated("schedules", "show", "nightly", "--json"))
    assert "arguments" not in described
    assert (described["key"], described["tags"], described["priority"], described["overlap"]) == ("k", ["t"], 1, "skip")
    assert read(migrated("schedules", "list", "--json")) == {"schedules": [described], "cursor": None}
    told = migrated("schedules", "show", "nightly", "--arguments").stdout
    assert '{"name": "Ada", "shout": true}' in told
    assert "at run time" in told
    again = read(migrated(*NIGHTLY, "--timezone", "Europe/Berlin", "--grace", "1m", "--catch-up", "latest", "--json"))
    assert (again["grace"], again["overlap"], again["next_tick"]) == (60.0, "allow", described["next_tick"])


def test_pages(migrated: Invoke) -> None:
    for name in ("b", "a"):
        migrated("schedules", "put", name, "jobs.greet", "--every", "5m")
    first = migrated("schedules", "list", "--limit", "1")
    assert "every 5 min" in first.stdout
    cursor = first.stderr.removeprefix("more: --cursor ").strip()
    assert [each["name"] for each in read(migrated("schedules", "list", "--cursor", cursor, "--json"))["schedules"]] == ["b"]


def test_paused_run_by_hand_and_deleted(migrated: Invoke, url: str) -> None:
    migrated(*NIGHTLY)
    assert migrated("schedules", "pause", "nightly", "--reason", "holidays", "--by", "Ada").stdout == "nightly: paused\n"
    assert "by Ada: holidays" in migrated("schedules", "list").stdout
    ran = read(migrated("schedules", "run-now", "nightly", "--json"))
    assert (ran["schedule"], ran["created"]) == ("nightly", True)

    async def work() -> None:
        async with Client(url) as client:
            await Worker(client, registry).run_once()

    anyio.run(work)
    job = read(migrated("jobs", "show", ran["id"], "--json"))
    assert (job["output"], job["schedule"]) == ("ADA", "nightly")
    (tick,) = read(migrated("schedules", "show", "nightly", "--json"))["ticks"]
    assert (tick["outcome"], tick["chain"], tick["nominal_time"]) == ("enqueued", ran["id"], job["nominal_time"])
    assert ran["id"] in migrated("schedules", "show", "nightly").stdout
    assert "scheduled by nightly, tick 20" in migrated("jobs", "why", ran["id"]).stdout
    assert read(migrated("jobs", "why", ran["id"], "--json"))["schedule"] == "nightly"
    assert "tick (UTC)" in migrated("jobs", "list").stdout
    assert "nightly" in migrated("chains", "list").stdout
    assert migrated("schedules", "resume", "nightly").stdout == "nightly: resumed\n"
    migrated("schedules", "delete", "nightly", exit_code=2)  # nobody can be asked
    assert migrated("schedules", "delete", "nightly", "--yes").stdout == "nightly: deleted\n"
    assert "there is no schedule" in migrated("schedules", "show", "nightly", exit_code=1).stderr
    migrated("jobs", "show", ran["id"])


def test_a_plain_listing_has_no_columns_for_schedules(migrated: Invoke) -> None:
    migrated("enqueue", "jobs.greet", "name=Ada")
    assert "tick (UTC)" not in migrated("jobs", "list").stdout


def test_what_code_defines_is_refused_with_the_way_out(migrated: Invoke, url: str) -> None:
    async def deploy() -> None:
        async with Client(url) as client:
            store: Any = client.store
            await store.reconcile_schedules(generation_of("code", code.schedules), code.schedules, 90)

    anyio.run(deploy)
    assert "in the code of the registry code" in migrated("schedules", "show", "code/code.defined").stdout
    for refused in (("delete", "code/code.defined", "--yes"), ("put", "code/code.defined", "jobs.greet", "--every", "60")):
        assert "ScheduleOwned" in migrated("schedules", *refused, exit_code=1).stderr
    migrated("schedules", "pause", "code/code.defined")


def test_previews(migrated: Invoke) -> None:
    spring = ("--timezone", "Europe/Berlin", "--after", "2031-03-29T12:00:00Z", "--count", "2")
    shown = migrated("schedules", "preview", "--cron", "30 2 * * *", *spring).stdout
    assert "2031-03-30 01:00:00" in shown
    assert "Sun 2031-03-30 03:00:00 +0200" in shown
    ticks = read(migrated("schedules", "preview", "--cron", "30 2 * * *", *spring, "--json"))
    assert ticks == {
        "timezone": "Europe/Berlin",
        "ticks": ["2031-03-30T01:00:00+00:00", "2031-03-31T00:30:00+00:00"],
        "local": ["2031-03-30T03:00:00+02:00", "2031-03-31T02:30:00+02:00"],
    }
    migrated("schedules", "put", "often", "jobs.greet", "--every", "90s")
    assert len(read(migrated("schedules", "preview", "often", "--json"))["ticks"]) == 10
    for wrong in ((), ("often", "--every", "60"), ("--every", "60", "--after", "2031-03-29"), ("--cron", "0 0 30 2 *")):
        migrated("schedules", "preview", *wrong, exit_code=2)


def test_wrong_usage(migrated: Invoke) -> None:
    for wrong in (
        ("put", "n", "jobs.greet"),
        ("put", "n", "jobs.greet", "--cron", "x"),
        ("put", "n", "jobs.greet", "--every", "10ms"),
        ("put", "n", "jobs.greet", "--every", "60", "--at", "2030-01-31T12:00:00Z"),
        ("put", "n", "jobs.greet", "name:={", "--every", "60"),
        ("put", "n", "jobs.greet", "name:=7", "--every", "60", "--app", "tests.cli.jobs:registry"),
        ("put", "n", "jobs.nobodys", "--every", "60", "--app", "tests.cli.jobs:registry"),
        ("put", "x\ny", "jobs.greet", "--every", "60"),
        ("list", "--limit", "0"),
    ):
        migrated("schedules", *wrong, exit_code=2)
    for verb in ("show", "pause", "resume", "run-now", "preview"):
        assert "ScheduleNotFound" in migrated("schedules", verb, "nobody's", exit_code=1).stderr
    made = migrated("schedules", "put", "n", "jobs.greet", "name=Ada", "--every", "60", "--app", "tests.cli.jobs:registry")
    assert made.stdout.startswith("n: jobs.greet, every 1 min; next 20")
    for interval, told in (("100", "100 s"), ("1.5", "1.5 s"), ("90m", "90 min"), ("36h", "36 h"), ("2d", "2 d")):
        made = migrated("schedules", "put", "n", "jobs.greet", "name=Ada", "--every", interval)
        assert f", every {told}; next" in made.stdout
