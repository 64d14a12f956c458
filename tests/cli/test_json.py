"""Every command has `--json`, and prints nothing beside it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import click
import pytest

from aioqueue import Client, Worker, serve_metrics
from aioqueue.cli import main
from aioqueue.cli._json import read_json, to_json
from aioqueue.telemetry._views import VIEWS
from tests.cli.jobs import fail, greet, registry
from tests.cli.test_health import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Invoke

WITHOUT = {
    "worker": "--log-format json is that",
    "completion": "prints a script",
    "webhooks secret": "prints a secret",
}


def _commands(group: click.Group, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


COMMANDS = dict(_commands(main))
NOBODY = "00000000-0000-7000-8000-000000000000"
# With what each is tried here, and the exit code; {id} is a failed job's. SQLite's migrations aren't known beforehand.
TRIED: dict[str, dict[str, int]] = {
    "migrate": {"": 0, "--check": 0, "--dry-run": 0, "--sql": 0},
    "enqueue": {"jobs.greet name=Bob": 0, "jobs.greet --key k --unique": 0, "jobs.greet name:={": 2},
    "jobs list": {"": 0, "--state failed": 0, "--limit 1": 0},
    "jobs show": {"{id}": 0, "{id} --arguments": 0, NOBODY: 1},
    "jobs logs": {"{id}": 0, NOBODY: 1},
    "jobs why": {"{id}": 0, NOBODY: 1},
    "jobs retry": {"{id}": 0, "--type jobs.fail --yes": 0, NOBODY: 1, "--type jobs.fail": 2},
    "jobs run-now": {"{id}": 1, "--type jobs.greet --yes": 0},
    "jobs reschedule": {"{id} --delay 1h": 1, "--type jobs.greet --delay 1h --yes": 0, "{id}": 2, "{id} --at now": 2},
    "jobs cancel": {"--type jobs.greet --yes --reason no": 0, "{id} --yes": 1, f"{NOBODY} --yes": 1, "{id}": 2},
    "jobs delete": {"{id} --yes": 0, "--type jobs.greet --yes": 0, "{id}": 2},
    "jobs complete": {"{id} 1 --yes": 1, "{id} 1": 2, "{id} { --yes": 2, f"{NOBODY} 1 --yes": 1},
    "jobs fail": {"{id} --reason no --yes": 1, "{id} --reason no": 2, "{id} --yes": 2},
    "jobs prune": {"--older-than 0s --yes": 0, "--older-than 1d --yes": 0, "--older-than 0s": 2},
    "chains list": {"": 0, "--state failed --order finished": 0, "--order due --state failed": 2},
    "chains show": {"{id}": 0, "{id} --limit 1": 0, NOBODY: 1, "{id} --cursor x": 2},
    "pause": {"jobs.greet --reason no --until 1h": 0, "--key k": 0, "--all --by me": 0, "": 2, "jobs.greet --until never": 2},
    "resume": {"jobs.greet": 0, "--key k": 0, "--all --by me": 0, "": 2},
    "pauses": {"": 0},
    "limits list": {"": 0},
    "limits put": {"stripe 3": 0, "job:jobs.greet 3": 0, "rate:jobs.greet 3 --per 1m": 0, "stripe": 2, "rate:jobs.greet 3": 2},
    "limits remove": {"stripe": 1},
    "sequences list": {"": 0},
    "sequences resume": {"account:42": 1},
    "schedules list": {"": 0, "--limit 1": 0, "--limit 0": 2},
    "schedules show": {"often": 0, "often --arguments": 0, "nobody's": 1},
    "schedules put": {"new jobs.greet name=Ada --every 5m": 0, "new jobs.greet": 2, "new jobs.greet name:={ --every 5m": 2},
    "schedules pause": {"often --reason no --by me": 0, "nobody's": 1},
    "schedules resume": {"often": 0, "nobody's": 1},
    "schedules delete": {"often --yes": 0, "nobody's --yes": 1, "often": 2},
    "schedules run-now": {"often": 0, "nobody's": 1},
    "schedules preview": {"often": 0, "--every 5m": 0, "nobody's": 1, "": 2},
    "workers": {"": 0},
    "stats": {"": 0},
    "top": {"--once": 0, "--interval 0s": 2},
    "health": {"": 0, "--live": 0},
    "webhooks list": {"": 0, "--job {id} --state failed": 0, "--cursor x": 2},
    "webhooks replay": {"--failed": 0, NOBODY: 3, "": 2, "x": 2},
    "doctor": {"": 0, "tests.cli.jobs:registry": 0, "isnt.there:registry": 2},
}
# What they can't do is said on standard error.
SILENT = ("jobs show", "jobs logs", "jobs complete", "jobs fail", "chains show", "schedules")
NOT_ON_SQLITE = {"migrate --dry-run", "migrate --sql"}


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


@pytest.fixture
def failed(url: str) -> str:
    """The id of a failed job, among others."""

    async def work() -> str:
        async with Client(url) as client:
            handles = await client.enqueue_many([fail("no"), greet("Ada"), greet("Eve").options(delay=3600)])
            await Worker(client, registry).run_once()
            await client.schedules.put("often", greet("Ada"), every=3600)
            return str(handles[0].id)

    return anyio.run(work)


def objects(stdout: str) -> list[dict[str, Any]]:
    """What a program reads: one object a line, in ASCII."""
    assert stdout.isascii()
    read = [json.loads(line) for line in stdout.splitlines()]
    assert all(isinstance(each, dict) for each in read)
    return read


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_it(name: str) -> None:
    has = any("--json" in parameter.opts for parameter in COMMANDS[name].params)
    assert has is (name not in WITHOUT)
    assert name in WITHOUT or name in TRIED, "try it in this file"


@pytest.mark.parametrize(
    ("name", "arguments", "exit_code"),
    [(name, arguments, code) for name, tried in TRIED.items() for arguments, code in tried.items()],
)
def test_nothing_else_is_printed(
    invoke: Invoke, url: str, failed: str, name: str, arguments: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arguments != "--live":
        monkeypatch.setattr(VIEWS, "_all", [Shown()])
    if url.startswith("sqlite") and f"{name} {arguments}" in NOT_ON_SQLITE:
        exit_code = 2
    command = [*name.split(), *arguments.replace("{id}", failed).split(), "--json"]
    with serve_metrics(0) as server:
        result = invoke(*command, exit_code=exit_code, AIOQUEUE_METRICS_PORT=str(server.port))
    read = objects(result.stdout)
    assert bool(read) is (exit_code != 2 and not (name.startswith(SILENT) and exit_code))


def test_migrations(invoke: Invoke, url: str) -> None:
    (checked,) = objects(invoke("migrate", "--check", "--json").stdout)
    assert checked == {"pending": None if url.startswith("sqlite") else []}
    (migrated,) = objects(invoke("migrate", "--json").stdout)
    assert any("0001" in name for name in migrated["migrated"]) is url.startswith("sqlite")
    assert objects(invoke("migrate", "--json").stdout) == [{"migrated": []}]


def test_pending_migrations(invoke: Invoke, empty_postgres_url: str) -> None:
    environment = {"AIOQUEUE_URL": empty_postgres_url}
    (would_run,) = objects(invoke("migrate", "--dry-run", "--json", **environment).stdout)
    checked = invoke("migrate", "--check", "--json", exit_code=1, **environment)
    assert objects(checked.stdout) == [would_run]
    assert "0001_initial" in would_run["pending"]
    assert "not up to date" in checked.stderr
    (script,) = objects(invoke("migrate", "--sql", "--json", **environment).stdout)
    assert "CREATE TABLE" in script["sql"]
    assert objects(invoke("migrate", "--json", **environment).stdout) == [{"migrated": would_run["pending"]}]


def test_enqueueing(invoke: Invoke) -> None:
    (first,) = objects(invoke("enqueue", "jobs.greet", "--key", "k", "--unique", "--json").stdout)
    assert (first["type"], first["created"]) == ("jobs.greet", True)
    (again,) = objects(invoke("enqueue", "jobs.greet", "--key", "k", "--unique", "--json").stdout)
    assert again == {**first, "created": False}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "end"),
    [
        (("jobs.greet", "name=Ada"), 0, {"state": "completed", "output": "Ada"}),
        (("jobs.fail", "reason=no"), 3, {"state": "failed"}),
        (("jobs.nobodys",), 1, {"state": "ready"}),
    ],
)
def test_waiting_for_the_end(
    invoke: Invoke, url: str, arguments: tuple[str, ...], exit_code: int, end: dict[str, object]
) -> None:
    with _worker(url):
        seconds = "30" if exit_code != 1 else "0.2"
        result = invoke("enqueue", *arguments, "--wait", seconds, "--json", exit_code=exit_code)
    first, second = objects(result.stdout)
    assert first["created"] is True
    assert second == {"id": first["id"], **end}
    assert bool(result.stderr) is bool(exit_code)


@contextmanager
def _worker(url: str) -> Iterator[None]:
    over = threading.Event()

    async def work() -> None:
        async with Client(url) as client:
            while not over.is_set():
                await Worker(client, registry).run_once()

    thread = threading.Thread(target=anyio.run, args=[work])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_what_became_of_jobs(invoke: Invoke, failed: str) -> None:
    scheduled = objects(invoke("jobs", "list", "--state", "scheduled", "--json").stdout)[0]["id"]
    changed = objects(invoke("jobs", "delete", scheduled, NOBODY, "--yes", "--json", exit_code=1).stdout)
    assert changed == [
        {"id": scheduled, "became": "done"},
        {"id": NOBODY, "became": "not_found"},
        {"changed": 1, "unchanged": 1},
    ]
    changed = objects(invoke("jobs", "retry", "--type", "jobs.fail", "--yes", "--json").stdout)
    assert changed == [{"id": failed, "became": "done"}, {"changed": 1, "unchanged": 0}]
    changed = objects(invoke("jobs", "retry", failed, "--json", exit_code=1).stdout)
    assert changed == [{"id": failed, "became": "wrong_state"}, {"changed": 0, "unchanged": 1}]
    pruned = objects(invoke("jobs", "prune", "--older-than", "0s", "--yes", "--json").stdout)
    assert [each.get("became") for each in pruned] == ["done", None]
    assert pruned[-1] == {"changed": 1, "unchanged": 0}


def test_times_are_iso_8601_and_integers_exact() -> None:
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    text = to_json({"at": noon, "day": noon.date(), "n": 2**64 + 1, "id": UUID(NOBODY)})
    assert read_json(text) == {"at": "2030-01-31T12:00:00+00:00", "day": "2030-01-31", "n": 2**64 + 1, "id": NOBODY}
