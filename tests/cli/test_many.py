"""Ids by their first digits, timelines, and commands that change all jobs that fit."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest
from click.testing import CliRunner

from aioqueue import Client, Worker
from aioqueue.cli import main
from aioqueue.cli._bulk import Count
from aioqueue.vocabulary._job import NewJob
from tests.cli.conftest import APART
from tests.cli.jobs import fail, greet, registry

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

IDS = [UUID(f"abcd{digit}000-0000-7000-8000-000000000000") for digit in "012"] + [UUID(int=2**128 - 2)]


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


def _store(url: str, *jobs: NewJob) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert(jobs)

    anyio.run(put)


def _work(url: str) -> None:
    async def work() -> None:
        async with Client(url) as client:
            await client.enqueue_many([greet("Ada"), greet("Bob"), fail("no"), greet("Eve").options(delay=3600)])
            await Worker(client, registry).run_once()

    anyio.run(work)


def _states(invoke: Invoke) -> list[str]:
    return sorted(json.loads(line)["state"] for line in invoke("jobs", "list", "--json").stdout.splitlines())


def test_first_digits_of_an_id(invoke: Invoke, each_url: str) -> None:
    _store(each_url, *(NewJob(id=each, type="a") for each in IDS))
    assert json.loads(invoke("jobs", "show", "abcd1", "--json").stdout)["id"] == str(IDS[1])
    assert json.loads(invoke("jobs", "why", "ABCD2000-0", "--json").stdout)["id"] == str(IDS[2])
    assert json.loads(invoke("jobs", "show", "ffff", "--json").stdout)["id"] == str(IDS[3])
    several = invoke("jobs", "delete", "abcd", "--yes", exit_code=1).output
    assert all(str(each) in several for each in IDS[:3])
    assert "begins with abce" in invoke("jobs", "delete", "abce", "--yes", exit_code=1).output
    assert "UUID" in invoke("jobs", "delete", "abc", "--yes", exit_code=2).output
    invoke("jobs", "delete", "abcd0", "abcd1", "--yes")
    assert _states(invoke) == ["ready", "ready"]


def test_a_timeline(invoke: Invoke, each_url: str) -> None:
    _work(each_url)
    job_id = json.loads(invoke("jobs", "list", "--json", "--state", "failed").stdout)["id"]
    timeline = json.loads(invoke("jobs", "show", job_id, "--json").stdout)["timeline"]
    assert [each["at"] for each in timeline] == sorted(each["at"] for each in timeline)
    told = [each["what"] for each in timeline]
    assert told[0] == "created"
    assert any(each.startswith("started by ") and each.endswith(": attempt 1") for each in told)  # by the one that ran it
    assert any(each.startswith("attempt 1 failed: ") for each in told)
    assert "finished: failed" in told
    assert "finished: failed" in invoke("jobs", "show", job_id).stdout


def test_all_that_fit(invoke: Invoke, each_url: str) -> None:
    _work(each_url)
    assert _states(invoke) == ["completed", "completed", "failed", "scheduled"]
    refused = invoke("jobs", "retry", "--type", "jobs.fail", exit_code=2)  # nobody answers
    assert "--yes" in refused.output
    assert _states(invoke) == ["completed", "completed", "failed", "scheduled"]
    assert invoke("jobs", "retry", "--type", "jobs.fail", "--yes").stdout == "1 made pending\n"
    assert invoke("jobs", "run-now", "--type", "jobs.greet", "--yes").stdout == "1 made due\n"
    assert _states(invoke) == ["completed", "completed", "ready", "ready"]
    assert invoke("jobs", "delete", "--state", "ready", "--yes").stdout == "2 deleted\n"
    assert _states(invoke) == ["completed", "completed"]
    assert "either ids" in invoke("jobs", "delete", exit_code=2).output
    assert "either ids" in invoke("jobs", "delete", "abcd", "--type", "a", exit_code=2).output


def test_pruning(invoke: Invoke, each_url: str) -> None:
    _work(each_url)
    assert invoke("jobs", "prune", "--older-than", "1h", "--yes").stdout.startswith("0 deleted: no jobs that fit in ")
    assert invoke("jobs", "prune", "--older-than", "0s", "--state", "failed", "--yes").stdout == "1 deleted\n"
    invoke("jobs", "prune", "--older-than", "0s", exit_code=2)  # nobody answers
    assert _states(invoke) == ["completed", "completed", "scheduled"]
    assert invoke("jobs", "prune", "--older-than", "0s", "--yes").stdout == "2 deleted\n"
    assert _states(invoke) == ["scheduled"]


def test_what_is_retried_while_the_question_stands_is_kept(
    invoke: Invoke, each_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _work(each_url)

    async def retry() -> None:
        async with Client(each_url) as client:
            (failed,) = (await client.list_jobs(states=["failed"])).jobs
            await client.retry(failed.id)

    def retried_meanwhile(*_: object, **__: object) -> None:
        other = threading.Thread(target=anyio.run, args=[retry])
        other.start()
        other.join()

    monkeypatch.setattr("aioqueue.cli._changes.check_somebody_answers", lambda **_: None)
    monkeypatch.setattr("click.confirm", retried_meanwhile)
    assert invoke("jobs", "delete", "--state", "failed").stdout.startswith("0 deleted: no jobs that fit in ")
    assert _states(invoke) == ["completed", "completed", "ready", "scheduled"]


def test_who_comes_after_an_empty_look_isnt_changed_unasked(invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _work(url)

    async def none(*_: object) -> Count:
        return Count(0, more=False)

    monkeypatch.setattr("aioqueue.cli._changes.check_somebody_answers", lambda **_: None)
    monkeypatch.setattr("aioqueue.cli._bulk._count", none)
    assert invoke("jobs", "delete", "--state", "failed").stdout.startswith("0 deleted: no jobs that fit in ")
    monkeypatch.undo()
    assert "failed" in _states(invoke)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", [("delete", "--type", "jobs.greet"), ("prune", "--older-than", "0s")], ids=" ".join)
def test_an_interrupted_change_tells_how_many_were_changed(
    url: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], as_json: bool
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    _work(url)
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 2)
    monkeypatch.setattr("aioqueue.cli._bulk.show_progress", lambda **_: nullcontext(interrupt))
    result = CliRunner(**APART).invoke(main, ["jobs", *command, "--yes", "--url", url, *(["--json"] if as_json else [])])
    assert result.exit_code == 1
    assert "Aborted!" in result.stderr
    last = result.stdout.splitlines()[-1]
    assert last == ('{"changed": 2, "unchanged": 0}' if as_json else "2 deleted until then")
