"""`aioqueue doctor`, on the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import anyio

from aioqueue import Client, NewJob
from aioqueue.vocabulary._identifiers import new_id
from tests.cli.jobs import greet
from tests.cli.terminal import on_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Invoke


def enqueue(url: str, *names: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=new_id(), type=name) for name in names])

    anyio.run(put)


def test_a_line_for_each_check_and_what_to_do(invoke: Invoke) -> None:
    invoke("migrate")
    lines = invoke("doctor").stdout.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["ok", "file"], ["ok", "filesystem"]]
    (number,) = [number for number, line in enumerate(lines) if "no worker is alive" in line]
    assert lines[number].startswith("warning  workers ")
    assert lines[number + 1].strip().startswith("-> Start a worker")
    assert lines[number + 1].index("->") == lines[number].index("no worker")
    assert re.fullmatch(r"\d+ ok, 1 warning", lines[-1])


def test_a_problem_ends_with_1_and_nothing_is_made(invoke: Invoke, tmp_path: Path) -> None:
    shown = json.loads(invoke("doctor", "--json", exit_code=1).stdout)
    assert shown["healthy"] is False
    assert {each["check"]: each["verdict"] for each in shown["findings"]}["file"] == "problem"
    assert list(tmp_path.iterdir()) == []


def test_types_that_the_registry_doesnt_know(invoke: Invoke, url: str) -> None:
    enqueue(url, greet.name, "forged\ntype")
    shown = json.loads(invoke("doctor", "tests.cli.jobs:registry", "--json").stdout)
    assert shown["healthy"] is True
    (registry,) = [each for each in shown["findings"] if each["check"] == "registry"]
    assert registry["verdict"] == "warning"
    assert "forged\ntype" in registry["seen"]
    assert greet.name not in registry["seen"]
    assert "forged\\ntype" in invoke("doctor", "tests.cli.jobs:registry").stdout
    assert not any(each["check"] == "registry" for each in json.loads(invoke("doctor", "--json").stdout)["findings"])


def test_what_is_wrong_with_the_command_line_ends_with_2(invoke: Invoke) -> None:
    invoke("doctor", "isnt_there:registry", exit_code=2)
    invoke("doctor", "--url", "mysql://db", exit_code=2)


def test_colours(invoke: Invoke, url: str) -> None:
    invoke("migrate")
    assert "\x1b[33mwarning" in on_terminal("doctor", AIOQUEUE_URL=url).shown
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal("doctor", AIOQUEUE_URL=url, **plain).shown
    assert "\x1b" not in on_terminal("doctor", output="pipe", AIOQUEUE_URL=url).stdout
