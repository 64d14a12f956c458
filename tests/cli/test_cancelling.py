"""`aioqueue jobs cancel`, and what other commands say of a job that was asked to end."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue import Client
from aioqueue.cli._tree import step_text
from tests.cli.jobs import greet

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

HOUR = 3600.0
EVIL = "a\x1b[31m\nforged"


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


def _put(url: str, *, running: int, scheduled: int = 0) -> list[UUID]:
    """Store jobs of which the first ones run."""

    async def put() -> list[UUID]:
        async with Client(url) as client:
            handles = await client.enqueue_many([greet(f"{number}") for number in range(running)])
            lease = await client.store.open_lease("w", HOUR, types=["jobs.greet"], slots=running)
            await client.store.claim(lease, ["jobs.greet"], running)
            handles += await client.enqueue_many([greet("later").options(delay=HOUR, tags=["t"]) for _ in range(scheduled)])
            return [each.id for each in handles]

    return anyio.run(put)


def _cancel(url: str, job_id: UUID, reason: str) -> None:
    async def cancel() -> None:
        async with Client(url) as client:
            await client.cancel(job_id, reason=reason)

    anyio.run(cancel)


def test_ids_and_what_becomes_of_each(invoke: Invoke, url: str) -> None:
    runs, waits = _put(url, running=1, scheduled=1)
    assert "--yes" in invoke("jobs", "cancel", str(waits), exit_code=2).output  # nobody answers
    told = invoke("jobs", "cancel", str(waits), str(runs), "--reason", "not needed", "--yes").stdout
    assert told == f"{waits}  cancelled\n{runs}  asked to end: it is running, and its worker is told\n"
    shown = json.loads(invoke("jobs", "show", str(waits), "--json").stdout)
    assert (shown["state"], shown["errors"][0]["type"], shown["errors"][0]["message"]) == (
        "cancelled",
        "Cancelled",
        "not needed",
    )
    nobody = UUID(int=5)
    again = invoke("jobs", "cancel", str(waits), str(nobody), "--yes", exit_code=1).stdout
    assert again == f"{waits}  it has finished before\n{nobody}  there is no such job\n"
    lines = invoke("jobs", "cancel", str(waits), str(runs), "--yes", "--json", exit_code=1).stdout.splitlines()
    assert [json.loads(each) for each in lines] == [
        {"id": str(waits), "became": "finished"},
        {"id": str(runs), "became": "cancelling"},
        {"changed": 1, "unchanged": 1},
    ]


def test_all_that_fit(invoke: Invoke, url: str) -> None:
    _put(url, running=2, scheduled=3)
    assert "failed" in invoke("jobs", "cancel", "--state", "failed", "--yes", exit_code=2).output
    assert invoke("jobs", "cancel", "--tag", "t", "--yes", "--reason", "no").stdout == "3 cancelled\n"
    assert invoke("jobs", "cancel", "--tag", "t", "--yes").stdout.startswith("0 cancelled: no jobs that fit in ")
    told = invoke("jobs", "cancel", "--type", "jobs.greet", "--yes").stdout
    assert told == "2 cancelled, 2 of them are running, and their workers are told\n"


def test_where_it_is_seen_that_one_was_asked_to_end(invoke: Invoke, url: str) -> None:
    named, silent = _put(url, running=2)
    assert "asked" not in invoke("jobs", "show", str(named)).stdout
    _cancel(url, named, EVIL)
    _cancel(url, silent, "")
    for command in (("jobs", "show"), ("jobs", "why"), ("chains", "show")):
        told = invoke(*command, str(named)).stdout
        assert "\\x1b[31m" in told, command
        assert not any(line.startswith("forged") for line in told.splitlines()), command
    assert re.search("^asked_to_end +no reason was given$", invoke("jobs", "show", str(silent)).stdout, re.MULTILINE)
    assert json.loads(invoke("jobs", "show", str(silent), "--json").stdout)["cancel_reason"] == ""
    assert "running, asked to end\n" in invoke("chains", "show", str(silent)).stdout
    why = json.loads(invoke("jobs", "why", str(named), "--json").stdout)
    assert [each["code"] for each in why["reasons"]] == ["cancelling", "running"]


def test_a_line_of_a_tree_says_it(url: str) -> None:
    (runs,) = _put(url, running=1)

    async def look() -> str:
        async with Client(url) as client:
            await client.cancel(runs, reason="no")
            return step_text(await client.job(runs))

    assert "  asked to end: no" in anyio.run(look)
