"""Whoever switches a rule off says why, on the same line: in the code, in the tests, and in pyproject.toml."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = [".ci", "aioqueue", "benchmarks", "examples", "tests"]
FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# A part of a comment that switches something off, with its codes; what follows is the reason.
MARK = re.compile(
    r"(?:ruff: |flake8: )?(?:noqa|type: ?ignore|pyright: ?(?:ignore|basic)|mypy: \S+|pragma: ?no cover)"
    r"(?:: ?[A-Z]+[0-9]+(?:,? ?[A-Z]+[0-9]+)*|\[[\w, -]+\])?(?P<rest>.*)"
)
FEWEST_WORDS = 2
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def without_reason(comment: str) -> bool:
    """Whether a comment switches something off, and no part of it says why."""
    parts = [part.strip() for part in comment.split("#") if part.strip()]
    marks = [MARK.fullmatch(part) for part in parts]
    reasons = [part if mark is None else mark["rest"] for part, mark in zip(parts, marks, strict=True) if part != "fmt: skip"]
    return any(marks) and not any(len(re.findall(r"\w+", reason)) >= FEWEST_WORDS for reason in reasons)


@pytest.mark.parametrize(
    ("comment", "bad"),
    [
        ("# noqa: BLE001", True),
        ("# noqa: BLE001 - classified: the class is broken", False),
        ("# noqa: A002, B006", True),
        ("# noqa", True),
        ("# ruff: noqa: INP001", True),
        ("# ruff: noqa: INP001 - a script", False),
        ("# type: ignore[arg-type]", True),
        ("# type: ignore[arg-type]  # pyright: ignore[reportArgumentType]", True),
        ("# type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # never called", False),
        ("# fmt: skip", False),  # the formatter's, not a linter's
        ("# fmt: skip  # noqa: E501", True),
        ("# pragma: no cover", True),
        ("# pragma: no cover - only on Windows", False),
        ("# only a comment", False),
    ],
)
def test_what_is_no_reason(comment: str, bad: bool) -> None:
    assert without_reason(comment) is bad


@cache
def comments(file: str) -> list[tuple[int, str]]:
    """The comments of a file, with the numbers of their lines."""
    tokens = tokenize.generate_tokens(io.StringIO((ROOT / file).read_text()).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("file", FILES)
def test_each_ignore_says_why(file: str) -> None:
    assert [(line, comment) for line, comment in comments(file) if without_reason(comment)] == []


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("aioqueue/")])
def test_whatever_is_suppressed_altogether_has_its_reason_beside_it(file: str) -> None:
    """The linter asks for one where everything is caught, but not where everything is suppressed."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if re.search(r"\bsuppress\((Base)?Exception\)", line)]
    assert [line for line in lines if len(re.findall(r"\w+", line.partition("#")[2])) < FEWEST_WORDS] == []


def test_each_rule_that_is_off_for_a_folder_or_for_all_says_why() -> None:
    lint = PYPROJECT[PYPROJECT.index("[tool.ruff.lint]\n") : PYPROJECT.index("[tool.ruff.lint.pydocstyle]")]
    off = lint[lint.index("\nignore = [") :]
    lines = [line for line in off.splitlines() if re.search(r'"[A-Z]+[0-9]*"', line)]
    assert len(lines) > 20
    assert [line for line in lines if len(re.findall(r"\w+", line.partition("#")[2])) < FEWEST_WORDS] == []


def test_types_are_only_ignored_where_they_are_checked() -> None:
    checked = tuple(tomllib.loads(PYPROJECT)["tool"]["mypy"]["files"])
    others = [file for file in FILES if not file.startswith(checked)]
    ignores = [(file, line) for file in others for line, text in comments(file) if re.search("(type|pyright): ?ignore", text)]
    assert ignores == []
