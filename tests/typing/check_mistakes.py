"""Fails unless mypy and pyright both find an error in each marked line of mistakes.py, and in no other.

python tests/typing/check_mistakes.py
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MISTAKES = Path(__file__).with_name("mistakes.py")
PROJECT = MISTAKES.parents[2]
MARK = "# error"


def marked() -> set[int]:
    """The lines that must be errors."""
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.rstrip().endswith(MARK)}


def found_by_mypy() -> set[int]:
    """The lines with errors, as mypy sees them."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--hide-error-context",
        "--show-absolute-path",
        str(MISTAKES),
    ]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(f"mypy has failed:\n{ended.stdout}{ended.stderr}")
    pattern = re.compile(rf"^{re.escape(str(MISTAKES))}:(\d+)(?::\d+)?: error", re.MULTILINE)
    return {int(number) for number in pattern.findall(ended.stdout)}


def found_by_pyright() -> set[int]:
    """The lines with errors, as pyright sees them, in its basic mode: strictness isn't what's tried here."""
    # A copy in a project of its own, since ours excludes this file on purpose.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MISTAKES, folder)
        settings = {"include": [MISTAKES.name], "extraPaths": [str(PROJECT)], "typeCheckingMode": "standard"}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", folder]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        diagnostics = json.loads(ended.stdout)["generalDiagnostics"]
    except (json.JSONDecodeError, KeyError):
        sys.exit(f"pyright has failed:\n{ended.stdout}{ended.stderr}")
    return {each["range"]["start"]["line"] + 1 for each in diagnostics if each["severity"] == "error"}


def main() -> int:
    """Compare."""
    wanted, failed = marked(), False
    for name, found in (("mypy", found_by_mypy()), ("pyright", found_by_pyright())):
        for line in sorted(wanted ^ found):
            failed = True
            verdict = "misses the error" if line in wanted else "finds an unmarked error"
            print(f"{MISTAKES.name}:{line}: {name} {verdict}")  # noqa: T201 - what this command found
    if not failed:
        print(f"{len(wanted)} mistakes, each found by mypy and pyright")  # noqa: T201 - what this command found
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
