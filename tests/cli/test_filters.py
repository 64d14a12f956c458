"""Filters, orders and ids for pipes, of listings and of changes to many."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, JobFilter, Unique, Worker
from aioqueue.cli import _bulk
from tests.cli.jobs import fail, greet, registry
from tests.cli.terminal import on_terminal
from tests.processes import ROOT

if TYPE_CHECKING:
    from uuid import UUID

    from tests.cli.conftest import Invoke


def _put(url: str) -> dict[str, str]:
    """Their ids by what they are."""

    async def work() -> dict[str, UUID]:
        async with Client(url) as client:
            failed = await client.enqueue(fail("no").options(tags=["nightly"]))
            done = await client.enqueue(greet("Ada"))
            await Worker(client, registry, name="first").run_once()
            later = await client.enqueue(greet("Eve").options(delay=7200, key="k"))
            soon = await client.enqueue(greet("Bob").options(delay=3600))
            lease = await client.store.open_lease("second", 600)
            running = await client.enqueue(fail("yes"))
            await client.store.claim(lease, [fail.name], 1)
            return {name: each.id for name, each in locals().items() if hasattr(each, "job_type")}

    return {name: str(each) for name, each in anyio.run(work).items()}


def _listed(invoke: Invoke, *options: str, group: str = "jobs") -> list[str]:
    ids = invoke(group, "list", "--ids-only", *options).stdout.split()
    assert [json.loads(line)["id"] for line in invoke(group, "list", "--json", *options).stdout.splitlines()] == ids
    return ids


def test_each_filter_and_order(each_invoke: Invoke, each_url: str) -> None:
    ids = _put(each_url)

    def listed(*options: str, group: str = "jobs") -> set[str]:
        found = _listed(each_invoke, *options, group=group)
        return {name for name, each in ids.items() if each in found}

    assert (
        _listed(each_invoke)
        == list(ids.values())[::-1]
        == [ids[each] for each in ("running", "soon", "later", "done", "failed")]
    )
    assert _listed(each_invoke, "--order", "oldest", "--limit", "2") == [ids["failed"], ids["done"]]
    assert _listed(each_invoke, "--order", "due", "--state", "scheduled") == [ids["soon"], ids["later"]]
    assert set(_listed(each_invoke, "--order", "finished")) == {ids["done"], ids["failed"]}
    assert listed("--worker", "second") == {"running"}
    assert listed("--error-type", "Fail") == {"failed"}
    assert listed("--tag", "nightly") == {"failed"}
    assert listed("--key", "k") == {"later"}
    assert listed("--chain", ids["soon"]) == {"soon"}
    assert listed("--created-after", "1h") == set(ids)
    assert listed("--created-before", "1h") == set()
    assert listed("--finished-after", "2020-01-01T00:00:00Z") == {"failed", "done"}
    assert listed("--state", "failed", "--type", "jobs.fail", group="chains") == {"failed"}
    each_invoke("jobs", "list", "--order", "due", "--state", "failed", exit_code=2)
    each_invoke("jobs", "list", "--json", "--ids-only", exit_code=2)
    each_invoke("jobs", "list", "--limit", "1001", exit_code=2)
    assert "no job" in each_invoke("jobs", "list", "--chain", "0" * 32, exit_code=1).stderr
    for wrong in ("yesterday", "2030-01-01T00:00:00"):
        assert "--created-after" in each_invoke("jobs", "list", "--created-after", wrong, exit_code=2).stderr
    assert "such as 90m" in each_invoke("jobs", "list", "--created-after", "90x", exit_code=2).stderr
    table = each_invoke("chains", "list").stdout
    assert table.split()[:3] == ["chain", "step", "type"]


def test_pages_of_ids_are_all_there(invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = _put(url)
    monkeypatch.setattr("aioqueue.cli._listing._LARGEST_PAGE_JOBS", 2)
    newest = list(ids.values())[::-1]
    for group in ("jobs", "chains"):
        assert invoke(group, "list", "--ids-only").stdout.split() == newest
        assert invoke(group, "list", "--ids-only", "--limit", "3").stdout.split() == newest[:3]
        assert invoke(group, "list", "--ids-only", "--order", "oldest").stdout.split() == newest[::-1]


def _piped(url: str, ids: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aioqueue", *command, "--url", url],
        input=ids,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_running_jobs_are_deleted_only_where_their_state_is_named(each_invoke: Invoke, each_url: str) -> None:
    ids = _put(each_url)
    assert each_invoke("jobs", "delete", "--type", "jobs.fail", "--yes").stdout == "1 deleted\n"
    assert ids["running"] in _listed(each_invoke)
    assert each_invoke("jobs", "delete", "--type", "jobs.fail", "--state", "running", "--yes").stdout == "1 deleted\n"
    assert ids["running"] not in _listed(each_invoke)


def test_ids_from_a_pipe(invoke: Invoke, url: str) -> None:
    ids = _put(url)
    given = f"{ids['failed']}\n\n  {ids['done']}\n"
    ended = _piped(url, given, "jobs", "retry", "-")
    assert (ended.returncode, ended.stdout) == (1, f"{ids['failed']}  done\n{ids['done']}  it isn't failed or cancelled\n")
    assert ended.stderr == ""  # no progress, either
    refused = _piped(url, given, "jobs", "delete", "-")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    failed = _piped(url, f"{ids['soon']}\n{ids['done']}\n{ids['later']}\n", "jobs", "fail", "-", "--reason", "no", "--yes")
    assert (failed.returncode, failed.stdout) == (1, f"{ids['soon']}  failed\n{ids['later']}  failed\n")
    assert ids["done"] in failed.stderr
    deleted = _piped(url, given, "jobs", "delete", "-", ids["soon"], "--yes", "--json")
    assert [json.loads(line) for line in deleted.stdout.splitlines()][-1] == {"changed": 3, "unchanged": 0}
    nothing = _piped(url, "", "jobs", "delete", "-", "--yes")
    assert (nothing.returncode, nothing.stdout) == (0, "0 deleted: no ids on standard input\n")
    assert set(_listed(invoke)) == {ids["running"], ids["later"]}


def test_who_holds_a_key_is_named(each_invoke: Invoke, each_url: str) -> None:
    async def put() -> tuple[UUID, UUID]:
        options: dict[str, Any] = {"key": "k", "unique": Unique()}
        async with Client(each_url) as client:
            failed = await client.enqueue(fail("no").options(**options))
            await Worker(client, registry).run_once()
            return failed.id, (await client.enqueue(fail("no").options(delay=3600, **options))).id

    failed, holder = anyio.run(put)
    given = each_invoke("jobs", "retry", str(failed), exit_code=1)
    assert given.stdout == f"{failed}  another unfinished chain has its unique key: {holder}\n"
    fitting = each_invoke("jobs", "retry", "--state", "failed", "--yes", exit_code=1)
    assert fitting.stdout == f"0 made pending, 1 not, since other unfinished chains have their unique keys ({holder})\n"
    told, last = map(
        json.loads, each_invoke("jobs", "retry", "--state", "failed", "--yes", "--json", exit_code=1).stdout.splitlines()
    )
    assert told == {"id": str(failed), "became": "key_held", "holder": str(holder)}
    assert last == {"changed": 0, "unchanged": 1}


@pytest.mark.parametrize("most", [2, 100_000])
def test_they_are_counted_before(url: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(url)
    monkeypatch.setattr("aioqueue.cli._bulk._PAGE_JOBS", 2)
    monkeypatch.setattr("aioqueue.cli._bulk._MOST_COUNTED_JOBS", most)

    async def count() -> str:
        async with Client(url) as client:
            return str(await _bulk._count(client, JobFilter()))

    assert anyio.run(count) == ("more than 2 jobs" if most == 2 else "5 jobs")


@pytest.mark.parametrize("rich", [False, True])
def test_a_bar_on_a_terminal(url: str, rich: bool) -> None:
    _put(url)
    ended = on_terminal("jobs", "run-now", "--type", "jobs.greet", answer="y\n", without_rich=not rich, AIOQUEUE_URL=url)
    assert "2 jobs in sqlite:///" in ended.shown
    assert "100%" in ended.shown
    assert "2 looked at, 2 made due" in ended.shown
    assert ("━" in ended.shown) is rich
    assert ended.exit_code == 0
