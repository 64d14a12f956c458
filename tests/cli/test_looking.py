"""What commands that look show: which database, in which time zone, how long; and they make nothing."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, JobCancelled, Worker
from tests.cli.jobs import greet, registry
from tests.cli.terminal import on_terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

APP = "tests.cli.jobs:registry"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("command", [["stats"], ["stats", "--json"], ["jobs", "list"], ["jobs", "show", "0" * 32]])
def test_looking_makes_no_file_and_says_which_one_isnt_there(invoke: Invoke, url: str, command: list[str]) -> None:
    output = invoke(*command, exit_code=1).output
    assert f"there is no file {path_of(url)}" in output
    assert not path_of(url).exists()


CHANGES = [("delete", "--type", "a"), ("retry", "--type", "a"), ("run-now", "--type", "a"), ("delete", "0" * 32)]
CHANGES += [("prune", "--older-than", "0s"), ("retry", "0" * 32), ("run-now", "0" * 32)]


@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_changing_jobs_makes_no_file_either_and_says_where_it_found_none(
    invoke: Invoke, url: str, command: tuple[str, ...]
) -> None:
    yes = ("--yes",)
    assert f"there is no file {path_of(url)}" in invoke("jobs", *command, *yes, exit_code=1).output
    assert not path_of(url).exists()
    invoke("migrate")
    by_id = "0" * 32 in command
    shown = invoke("jobs", *command, *yes, exit_code=int(by_id)).stdout
    assert by_id or shown.endswith(f": no jobs that fit in {url}\n")


@pytest.mark.parametrize("command", [("jobs", "list"), ("stats",), ("top", "--once"), ("workers",), ("jobs", "why", "abcd")])
def test_looking_at_somebody_elses_file_changes_nothing(invoke: Invoke, url: str, command: tuple[str, ...]) -> None:
    with closing(sqlite3.connect(path_of(url))) as connection:
        connection.execute("CREATE TABLE users (name TEXT)")
    before = path_of(url).read_bytes()
    assert "has no tables of aioqueue's" in invoke(*command, exit_code=1).output
    assert path_of(url).read_bytes() == before


def test_an_empty_listing_names_the_database(invoke: Invoke, url: str) -> None:
    invoke("migrate")
    assert invoke("jobs", "list").stdout == f"no jobs in {url}\n"
    assert invoke("jobs", "list", "--state", "failed").stdout == f"no jobs that fit in {url}\n"
    assert invoke("jobs", "list", "--json").stdout == ""
    assert invoke("stats").stdout == f"no jobs in {url}\nworkers: none\n"


def test_times_are_utc_and_show_when_it_finished_and_how_long_it_took(invoke: Invoke, url: str) -> None:
    async def work() -> None:
        async with Client(url) as client:
            await client.enqueue(greet("Ada"))
            await Worker(client, registry).run_once()

    anyio.run(work)
    header, line = invoke("jobs", "list").stdout.splitlines()
    assert header.split("  ")[0] == "id"
    assert "due (UTC)" in header
    assert "finished (UTC)" in header
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(rf"jobs\.greet  completed  1 +{moment}  {moment} +[0-9.e-]+ s$", line), line
    shown = invoke("jobs", "show", line.split()[0]).stdout
    assert re.search(r"^took +[0-9.e-]+ s$", shown, re.MULTILINE)
    assert "+00:00" in shown


def test_a_job_that_expired_shows_no_attempt(invoke: Invoke, url: str) -> None:
    async def expire() -> None:
        async with Client(url) as client:
            await client.enqueue(greet("Ada").options(expires=0))
            await Worker(client, registry).run_once()

    async def result(job_id: str) -> None:
        async with Client(url) as client:
            await client.handle(greet, job_id).result(timeout=10)

    anyio.run(expire)
    line = invoke("jobs", "list").stdout.splitlines()[1]
    assert "cancelled  0 " in line
    assert not re.search(r"\d s\b", line)
    shown = invoke("jobs", "show", line.split()[0]).stdout
    assert "took" not in shown
    assert "started by" not in shown
    with pytest.raises(JobCancelled, match="was cancelled: Expired"):
        anyio.run(result, line.split()[0])


def test_a_very_long_name_leaves_the_others_their_place(url: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            for name in ("a" * 200, "b"):
                await client.enqueue_by_name(name)

    anyio.run(put)
    shown = [on_terminal(*command, AIOQUEUE_URL=url, TERM="dumb").shown for command in (("jobs", "list"), ("stats",))]
    lines = "".join(shown).splitlines()
    assert max(map(len, lines)) < 250
    assert any("a" * 59 + "…" in line for line in lines)


@pytest.mark.parametrize("argument", ["n=1", "n=true"])
def test_text_where_a_number_is_wanted_hints_at_json(invoke: Invoke, argument: str) -> None:
    output = invoke("enqueue", "looking.square", argument, "--app", "tests.cli.test_looking:numbers", exit_code=2).output
    assert f"is given as JSON: n:={argument[2:]}" in output


def test_sentences_end_once(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("")
    output = invoke("worker", "task:registry", "--app-dir", str(tmp_path), exit_code=2).output
    assert "Did you mean tasks? Run it in the project's folder" in output.replace("\n", " ")
    assert "?." not in output


from aioqueue import Registry  # noqa: E402 - the registry that the test above names

numbers = Registry(prefix="looking.")


@numbers.job
async def square(n: int) -> int:
    return n * n


def test_one_that_upkeep_has_discarded_before_any_claim_shows_none_either(invoke: Invoke, url: str) -> None:
    async def expire() -> None:
        async with Client(url) as client:
            await client.enqueue_by_name("nobody.runs", expires=0)
            await client.store.tend(10)

    anyio.run(expire)
    assert "cancelled  0 " in invoke("jobs", "list").stdout
