"""Shells complete commands, options and values, by the script that the command prints; nothing is opened for that."""

from __future__ import annotations

import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete

from aioqueue.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cli.conftest import Invoke

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 60.0
COMPLETED = [
    ("aioqueue jo", "jobs"),
    ("aioqueue jobs run", "run-now"),
    ("aioqueue jobs list --stat", "--state"),
    ("aioqueue jobs list --state can", "cancelled"),
    ("aioqueue jobs list --state hel", "held"),
    ("aioqueue schedules put --catch-up la", "latest"),
    ("aioqueue completion fi", "fish"),
]


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} isn't installed")
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the program on the path, as an installation puts it there, and a database that nobody has made."""
    program = tmp_path / "bin" / "aioqueue"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom aioqueue.cli import main\nmain()\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "AIOQUEUE_URL": f"sqlite:///{tmp_path / 'jobs.db'}",
    }


@pytest.mark.parametrize(("typed", "completed"), COMPLETED)
def test_what_is_completed(typed: str, completed: str) -> None:
    *words, incomplete = typed.split()[1:]
    complete = ShellComplete(main, {}, "aioqueue", "_AIOQUEUE_COMPLETE")
    assert [item.value for item in complete.get_completions(words, incomplete)] == [completed]


# A command, an option, a value; each of the others takes two processes more.
@pytest.mark.parametrize(
    ("typed", "completed"),
    [pytest.param(*each, marks=() if number in {0, 2, 4} else pytest.mark.soak) for number, each in enumerate(COMPLETED)],
)
def test_bash(environment: dict[str, str], tmp_path: Path, typed: str, completed: str) -> None:
    words = typed.split()
    script = f"""
        eval "$(aioqueue completion bash)"
        COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}
        function_of_it=$(complete -p aioqueue | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function_of_it aioqueue
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    command = [shell("bash"), "--norc", "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout.split() == [completed]
    assert ended.stderr == ""
    assert not list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize(("typed", "completed"), COMPLETED)
def test_fish(environment: dict[str, str], tmp_path: Path, typed: str, completed: str) -> None:
    script = f"aioqueue completion fish | source; complete --do-complete '{typed}'"
    command = [shell("fish"), "--no-config", "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert completed in ended.stdout.split()


@pytest.mark.parametrize(
    ("command", "setup"),
    [
        (("bash", "--norc", "--noprofile", "-i"), 'eval "$(aioqueue completion bash)"'),
        (("zsh", "-f", "-i"), 'autoload -Uz compinit; compinit -u; eval "$(aioqueue completion zsh)"'),
    ],
    ids=["bash", "zsh"],
)
def test_the_tabulator(environment: dict[str, str], tmp_path: Path, command: tuple[str, ...], setup: str) -> None:
    """As somebody types it."""
    terminal = Terminal([shell(command[0]), *command[1:]], {**environment, "PS1": "> "}, tmp_path)
    try:
        terminal.type(f"{setup}; echo re''ady\n")
        terminal.wait_for("ready")
        terminal.type("aioqueue jobs list --state can\t")
        terminal.wait_for("cancelled")
    finally:
        terminal.end()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder, start_new_session=True
        )
        os.close(theirs)
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            if select.select([self._ours], [], [], 1.0)[0]:
                self._shown += os.read(self._ours, 65536).decode(errors="replace")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def test_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with variables that can't be used."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be opened")

    monkeypatch.setattr("aioqueue.client.Client.__init__", refuse)
    for variable in ("AIOQUEUE_URL", "AIOQUEUE_LOG_LEVEL", "AIOQUEUE_LEASE", "AIOQUEUE_METRICS_PORT"):
        monkeypatch.setenv(variable, "nonsense://")
    complete = ShellComplete(main, {}, "aioqueue", "_AIOQUEUE_COMPLETE")
    names = [item.value for item in complete.get_completions([], "")]
    assert {"worker", "jobs", "stats", "completion"} < set(names)
    for name in names:
        assert "--help" in [item.value for item in complete.get_completions([name], "--h")]
    assert [item.value for item in complete.get_completions(["jobs", "list", "--state"], "fa")] == ["failed"]
    assert [item.value for item in complete.get_completions(["jobs", "delete", "abcd"], "--y")] == ["--yes"]


def test_other_shells_are_refused(invoke: Invoke) -> None:
    assert "csh" in invoke("completion", "csh", exit_code=2).stderr
