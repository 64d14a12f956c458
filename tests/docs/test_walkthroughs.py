"""Pages that a newcomer follows from the top: their files are written, and their commands run, in an empty folder.

A Python block that begins with a comment such as `# jobs.py` is a file. In a `console` block each line that begins with
`$ ` is a command, and the lines after it are what it prints, standard error included: `…` stands for anything in a line,
and alone in a line for any lines. `^C` interrupts a command that goes on by itself, once the lines above it have come.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]
FILE = re.compile(r"^```python\n# (\w+\.py)\n", re.MULTILINE)
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 60.0


class Command:
    """One command of a transcript, with what it's to print before and after it's interrupted."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.before: list[str] = []
        self.after: list[str] | None = None

    def add(self, line: str) -> None:
        if line == "^C":
            self.after = []
        else:
            (self.before if self.after is None else self.after).append(line)

    @property
    def expected(self) -> list[str]:
        return [*self.before, *(self.after or ())]


def fits(printed: str, expected: list[str]) -> bool:
    """Whether it is what the page shows."""
    lines = (r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*?") + r"\n" for line in expected)
    return re.fullmatch("".join(lines), printed) is not None


def commands(transcript: str) -> list[Command]:
    found: list[Command] = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].add(line)
    return found


class Folder:
    """Where the reader is, with the environment active in which aioqueue is installed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        scripts = path / ".bin"
        scripts.mkdir()
        for name, module in (("aioqueue", "aioqueue"), ("python", "")):
            script = scripts / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {f"-m {module} " if module else ""}"$@"\n')
            script.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
        }

    def run(self, command: Command) -> None:
        output = self.path / ".output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", command.line if "||" in command.line else f"exec {command.line}"],
                cwd=self.path,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                if command.after is not None:
                    deadline = time.monotonic() + PATIENCE
                    while not fits(output.read_text(), command.before):
                        assert process.poll() is None, output.read_text()
                        assert time.monotonic() < deadline, output.read_text()
                        time.sleep(0.05)
                    process.send_signal(signal.SIGINT)
                process.wait(PATIENCE)
            finally:
                process.kill()
                process.wait()
        printed = output.read_text()
        shown = "\n".join(command.expected)
        assert fits(printed, command.expected), f"$ {command.line}\nprinted:\n{printed}\nthe page:\n{shown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_following_the_page_meets_no_surprise(page: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    blocks = BLOCK.findall(page.read_text())
    assert any(kind == "console" for kind, _ in blocks)
    for kind, text in blocks:
        if kind == "console":
            for command in commands(text):
                folder.run(command)
        elif named := re.match(r"# (\w+\.py)\n", text):
            (tmp_path / named[1]).write_text(text)
