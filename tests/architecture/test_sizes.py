"""No file and no function is longer than can be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LONGEST_FILE_LINES = 400
LONGEST_FUNCTION_LINES = 60
FOLDERS = ["aioqueue", "benchmarks", "examples", "tests"]

FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_file_is_too_long() -> None:
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in FILES}
    assert {file: length for file, length in lengths.items() if length > LONGEST_FILE_LINES} == {}


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("aioqueue/")])
def test_no_function_is_too_long(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    assert [(name, length) for name, length in lengths if length > LONGEST_FUNCTION_LINES] == []
