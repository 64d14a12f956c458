"""What removes or ends jobs asks before, what changes all that fit does too, and nothing waits where nobody can answer."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue import Client
from aioqueue.vocabulary._job import NewJob
from tests.cli.terminal import on_terminal
from tests.processes import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

IDS = [UUID(f"abcd{digit}000-0000-7000-8000-000000000000") for digit in "01"]
ASKING = [
    ("delete", "abcd0"),
    ("delete", str(IDS[0])),
    ("delete", *map(str, IDS)),
    ("delete", "--type", "a"),
    ("complete", "abcd0", "1"),
    ("fail", "abcd0", "--reason", "no"),
    ("prune", "--older-than", "0s"),
    ("retry", "--type", "a"),
    ("run-now", "--type", "a"),
]


@pytest.fixture(autouse=True)
def _two_jobs(url: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=each, type="a", delay=3600) for each in IDS])

    anyio.run(put)


def _left(invoke: Invoke) -> int:
    return len(invoke("jobs", "list", "--json").stdout.splitlines())


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_where_nobody_can_answer_it_is_refused(invoke: Invoke, command: tuple[str, ...]) -> None:
    refused = invoke("jobs", *command, exit_code=2)
    assert "--yes" in refused.stderr
    assert refused.stdout == ""
    assert _left(invoke) == 2
    invoke("jobs", *command, "--yes")


@pytest.mark.parametrize("command", [("retry", str(IDS[0])), ("run-now", "abcd0", "abcd1")], ids=" ".join)
def test_ids_that_are_only_brought_forward_need_no_question(invoke: Invoke, command: tuple[str, ...]) -> None:
    assert "--yes" not in invoke("jobs", *command, exit_code=1 if command[0] == "retry" else 0).output


@pytest.mark.parametrize(
    ("ids", "answer"),
    [
        (("abcd0",), "y"),
        (("abcd0",), ""),
        (tuple(map(str, IDS)), "n"),
        *(pytest.param(tuple(map(str, IDS)), answer, marks=pytest.mark.soak) for answer in ("y", "")),
        pytest.param(("abcd0",), "n", marks=pytest.mark.soak),
    ],
    ids=lambda each: each if isinstance(each, str) else str(len(each)),
)
def test_deleting_shows_what_and_asks(invoke: Invoke, url: str, ids: tuple[str, ...], answer: str) -> None:
    ended = on_terminal("jobs", "delete", *ids, answer=f"{answer}\n", AIOQUEUE_URL=url)
    assert f"{IDS[0]}  a  scheduled" in ended.shown
    assert f"{len(ids)} job{'s' if len(ids) > 1 else ''} in sqlite:///" in ended.shown
    assert ended.exit_code == (0 if answer == "y" else 1)
    assert _left(invoke) == (2 - len(ids) if answer == "y" else 2)


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.parametrize("command", [("complete", "abcd0", "1"), ("fail", "abcd0", "--reason", "no")], ids=" ".join)
def test_ending_shows_which_and_asks(invoke: Invoke, url: str, command: tuple[str, ...], answer: str) -> None:
    ended = on_terminal("jobs", *command, answer=f"{answer}\n", AIOQUEUE_URL=url)
    assert f"{IDS[0]}  a  scheduled" in ended.shown
    assert "1 job in sqlite:///" in ended.shown
    assert ended.exit_code == (0 if answer == "y" else 1)
    assert len(invoke("jobs", "list", "--state", "scheduled", "--json").stdout.splitlines()) == (1 if answer == "y" else 2)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_all_that_fit_are_counted_before(invoke: Invoke, url: str, answer: str) -> None:
    ended = on_terminal("jobs", "delete", "--type", "a", answer=f"{answer}\n", output="pipe", AIOQUEUE_URL=url)
    assert "2 jobs in sqlite:///" in ended.shown
    # Before click 8.2 a space of the question comes with it.
    assert ended.stdout.removeprefix(" ") == ("2 deleted\n" if answer == "y" else "")
    assert _left(invoke) == (0 if answer == "y" else 2)


@pytest.mark.timeout(60)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="when somebody is asked is seen in /proc")
@pytest.mark.parametrize("command", [ASKING[number] for number in (0, 3, 4)], ids=" ".join)
def test_an_interrupt_at_the_question_ends_the_command(invoke: Invoke, url: str, command: tuple[str, ...]) -> None:
    ended = on_terminal("jobs", *command, interrupt_at="[y/N]", AIOQUEUE_URL=url)
    assert ended.exit_code == 1
    assert ended.shown.endswith("Aborted!\n")
    assert _left(invoke) == 2


def test_a_closed_input_answers_nothing(url: str) -> None:
    prune = shlex.join([sys.executable, "-m", "aioqueue", "jobs", "prune", "--older-than", "1d", "--url", url])
    command = ["/bin/sh", "-c", f"{prune} <&-"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "nobody can be asked" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
