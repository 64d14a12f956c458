"""Tables and progress: drawn on a terminal where rich is installed, plain otherwise; users' texts do nothing to either."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue import Client
from aioqueue.cli._tables import cut, plain_table
from aioqueue.vocabulary._job import Job, NewJob
from tests.cli.terminal import on_terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

ID = UUID("abcd0000-0000-7000-8000-000000000000")
EVIL = "[red]a[/red][link=http://x]\x1b[31m:smile:\nforged"
VISIBLE = r"[red]a[/red][link=http://x]\x1b[31m:smile:\nforged"
ESCAPE = "\x1b["
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])(?:;\d+)*m")


@pytest.fixture
def full_url(url: str) -> str:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=ID, type=EVIL), NewJob(id=UUID(int=1), type="plain")])

    anyio.run(put)
    return url


@pytest.mark.parametrize("output", ["terminal", "pipe"])
@pytest.mark.parametrize(
    "command", [("stats",), ("workers",), ("jobs", "show", str(ID)), ("jobs", "why", str(ID)), ("jobs", "list")]
)
def test_no_name_forges_a_line_or_a_colour(invoke: Invoke, full_url: str, command: tuple[str, ...], output: str) -> None:
    """A type's and a worker's, and an error's."""

    async def work() -> None:
        async with Client(full_url) as client:
            await client.store.open_lease(EVIL, 600, types=[EVIL], slots=1)

    anyio.run(work)
    if output == "pipe":
        text = invoke(*command).stdout
    else:
        text = on_terminal(*command, AIOQUEUE_URL=full_url, TERM="dumb").shown
    assert VISIBLE in text
    assert ESCAPE not in text
    assert not any(line.startswith("forged") for line in text.splitlines())


@pytest.mark.parametrize("command", [("jobs", "list"), ("stats",)])
def test_on_a_terminal_it_is_drawn(full_url: str, command: tuple[str, ...]) -> None:
    ended = on_terminal(*command, AIOQUEUE_URL=full_url)
    assert ended.exit_code == 0
    assert "─" in ended.shown
    assert COLOR.search(ended.shown)
    assert VISIBLE in ended.shown
    assert "31m" not in COLOR.sub("", ended.shown).replace(r"\x1b[31m", "")


@pytest.mark.parametrize("columns", [60, 80, 118, 160])
def test_no_short_text_is_folded_however_narrow_the_terminal(full_url: str, columns: int) -> None:
    async def list_jobs() -> list[Job]:
        async with Client(full_url) as client:
            return list((await client.list_jobs()).jobs)

    shown = on_terminal("jobs", "list", columns=columns, AIOQUEUE_URL=full_url).shown
    assert ("─" in shown) is (columns > 80)
    assert all(each in shown for each in ("id", "type", "state", "attempts", "due (UTC)"))
    for job in anyio.run(list_jobs):
        (line,) = [line for line in shown.splitlines() if str(job.id) in line]
        assert all(each in line for each in ("ready", "0/10", f"{job.run_at:%Y-%m-%d %H:%M:%S}"))


@pytest.mark.parametrize("command", [("jobs", "list"), ("stats",), ("top",), ("workers",)])
def test_a_pipe_gets_whole_texts(invoke: Invoke, url: str, command: tuple[str, ...]) -> None:
    long = "a" * 200

    async def put() -> None:
        async with Client(url) as client:
            await client.enqueue_by_name(long)
            await client.store.open_lease("w1", 600, types=[long], slots=1)

    anyio.run(put)
    assert long in invoke(*command).stdout
    shortened = on_terminal(*command, *(("--once",) if command == ("top",) else ()), AIOQUEUE_URL=url, TERM="dumb").shown
    assert long not in shortened
    assert "aaa…" in shortened


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "dumb", "NO_COLOR": "1"}])
def test_without_colours(full_url: str, variables: dict[str, str]) -> None:
    shown = on_terminal("jobs", "list", AIOQUEUE_URL=full_url, **variables).shown
    assert VISIBLE in shown
    assert not COLOR.search(shown)
    if "TERM" in variables:
        assert ESCAPE not in shown
        assert "─" not in shown


@pytest.mark.parametrize("how", ["pipe", "without rich"])
def test_plain_text(full_url: str, how: str) -> None:
    if how == "pipe":
        shown = on_terminal("jobs", "list", output="pipe", columns=20, AIOQUEUE_URL=full_url).stdout
    else:
        shown = on_terminal("jobs", "list", without_rich=True, columns=20, AIOQUEUE_URL=full_url).shown
    assert ESCAPE not in shown
    assert "─" not in shown
    lines = shown.splitlines()
    assert len(lines) == 3
    assert VISIBLE in shown
    assert lines[0].index("state") == lines[1].index("ready") == lines[2].index("ready")


def test_wide_letters_keep_the_columns_in_place() -> None:
    lines = plain_table(("type", "n"), [("漢字", "1"), ("e\u0301tat", "2"), ("plain", "3")]).splitlines()
    assert lines == ["type   n", "漢字   1", "e\u0301tat   2", "plain  3"]


@pytest.mark.parametrize("how", ["drawn", "without rich", "pipe"])
def test_progress(full_url: str, how: str) -> None:
    output = "pipe" if how == "pipe" else "terminal"
    command = ("jobs", "delete", "--type", "plain", "--yes")
    ended = on_terminal(*command, output=output, without_rich=how == "without rich", AIOQUEUE_URL=full_url)
    assert ended.exit_code == 0
    assert "1 looked at, 1 deleted" in ended.shown
    assert ended.stdout == ("1 deleted\n" if how == "pipe" else "")
    assert (ESCAPE in ended.shown) is (how != "without rich")


@pytest.mark.parametrize("output", ["terminal", "pipe"])
def test_progress_beside_what_programs_read(full_url: str, output: str) -> None:
    """Each goes where it belongs, and on one terminal there is no progress between the objects."""
    ended = on_terminal("jobs", "delete", "--type", "plain", "--yes", "--json", output=output, AIOQUEUE_URL=full_url)
    objects = [json.loads(line) for line in (ended.stdout if output == "pipe" else ended.shown).splitlines()]
    assert objects == [{"id": str(UUID(int=1)), "became": "done"}, {"changed": 1, "unchanged": 0}]
    assert ("1 deleted" in ended.shown) is (output == "pipe")


def test_rich_is_imported_only_to_draw(full_url: str) -> None:
    code = "import sys; from aioqueue.cli import main; main(standalone_mode=False); print('rich' in sys.modules)"
    command = [sys.executable, "-c", code, "jobs", "list", "--url", full_url]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("abcdef", "abcd"),
        ("abcd", "abcd"),
        ("漢漢漢", "漢漢"),
        ("a漢漢", "a漢"),
        ("e\u0301e\u0301efgh", "e\u0301e\u0301ef"),
        ("", ""),
    ],
)
def test_a_line_is_cut_by_the_columns_that_it_takes(line: str, shown: str) -> None:
    assert cut(line, 4) == shown
