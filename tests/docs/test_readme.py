"""The README's two commands are where CI looks for them, and are what they should be."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(("name", "end"), [("run", "-m examples.checksums"), ("test", "--dist=loadfile")])
def test_each_command_is_one_line(name: str, end: str) -> None:
    readme = (ROOT / "README.md").read_text()
    match = re.search(rf"<!-- {name}:begin -->\n```sh\n(.*?)\n```\n<!-- {name}:end -->", readme, re.DOTALL)
    assert match is not None
    command = match[1]
    assert "\n" not in command
    assert command.startswith("python3 -m venv .venv && ")
    assert command.endswith(end)


def test_nothing_that_is_shipped_installs_another_authors_package() -> None:
    """On the package index `aioqueue` is somebody else's: what we tell to install is a path, or a wheel of our own name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"./wheels/{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"
    requirements = (ROOT / "examples" / "deployment" / "requirements.txt").read_text().splitlines()
    assert [line for line in requirements if not line.startswith("#")] == [wheel]
    for path in [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "aioqueue").rglob("*.py"),
        ROOT / "pyproject.toml",
    ]:
        for found in re.finditer(r"""pip install[^`\n]*?[\s'"](aioqueue)(?![-\w/.])""", path.read_text()):
            sentence = path.read_text()[max(found.start() - 150, 0) : found.end() + 100]
            assert "another author" in sentence, path
        assert not re.search(r"[\"']aioqueue\[", path.read_text()), path


def test_the_ci_script_is_valid_bash() -> None:
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)


def test_floors_are_read_from_the_project_s_own_bounds() -> None:
    printed = subprocess.run([sys.executable, str(ROOT / ".ci" / "floors.py")], check=True, capture_output=True, text=True)
    lines = printed.stdout.split()
    assert "click==8.1.7" in lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", line) for line in lines)
