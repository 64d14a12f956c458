"""The documentation's examples run: the Python blocks of a page one after the other, in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Those are followed step by step, their files as files.
FOLLOWED = {ROOT / "README.md", ROOT / "docs" / "quickstart.md"}
WITH_EXAMPLES = [page for page in PAGES if page not in FOLLOWED and BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    program = ""
    for match in BLOCK.finditer(text):
        # Lines of a traceback are those of the page.
        line = text[: match.start(1)].count("\n")
        program += "\n" * (line - program.count("\n")) + match[1]
    script = tmp_path / "app.py"
    script.write_text(program)
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, f"{page.name} with its own line numbers:\n{completed.stderr}"


def test_links_between_the_repository_s_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_is_in_the_reference_or_has_its_module_there() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    for name in ("Registry", "Call", "Client", "JobHandle", "Worker", "Retry", "errors", "abc"):
        assert f"::: aioqueue.{name}\n" in reference, name
