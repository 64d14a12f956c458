"""The check that SQLite leaves nothing behind, which ends the tests, finds what was left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import make_store
from tests.sqlite_leftovers import left_over

if TYPE_CHECKING:
    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

_LEAKS = {
    "a thread": "store = make_store(URL); asyncio.run(store.open())",
    "a connection": "kept = connect(read_options(URL, {}))",
    "an open file": "kept = open(PATH, 'a')",
}
_TEST = """
import asyncio
from aioqueue.sqlite import make_store
from aioqueue.sqlite._connections import connect
from aioqueue.sqlite._options import read_options
from tests import sqlite_leftovers
sqlite_leftovers._SECONDS = 0.1
PATH = {path!r}
URL = "sqlite:///" + PATH
def test_that_leaves_something(request):
    {leak}
    request.config.kept = locals()
"""


async def test_it_sees_what_an_open_store_has(store: SQLiteStore, path: Path) -> None:
    found = left_over(path.parent)
    assert any(each.startswith("a connection to") for each in found)
    if sys.platform == "linux":
        assert any(each.endswith("jobs.db") and each.startswith("an open file") for each in found)
        assert any(each.endswith("jobs.db-wal") for each in found)
    assert any(each.startswith("a thread 'aioqueue writer") for each in left_over())


async def test_it_sees_nothing_of_a_closed_store(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    await store.stats()
    await store.close()
    assert left_over(path.parent) == []


@pytest.mark.parametrize("what", [*_LEAKS, "nothing"])
def test_it_fails_the_run_that_leaves_something(tmp_path: Path, what: str) -> None:
    if what == "an open file" and sys.platform != "linux":
        pytest.skip("a process doesn't list its files here")
    file = tmp_path / "test_leak.py"
    file.write_text(_TEST.format(path=str(tmp_path / "jobs.db"), leak=_LEAKS.get(what, "pass")))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.sqlite_leftovers",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
    ]
    ended = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(file)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert (ended.returncode != 0) is (what != "nothing"), ended.stdout
    if what != "nothing":
        assert "left over: [" in ended.stdout
        assert what in ended.stdout
