"""A docstring says something: what the thing is, who calls it, what it may assume; none is a word, or points into the air."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "aioqueue"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
FEWEST_WORDS = 3
POINTER = re.compile(r"See `[\w.]+`\.")
RIDDLE = re.compile(r"\b[Ss]ee (above|below|the module|there)\b|\bas above\b|^It went ", re.IGNORECASE)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts that stand alone: docstrings of modules, classes and functions, and those below a constant or an attribute."""
    for node in ast.walk(tree):
        for child in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
                yield child.lineno, child.value.value


def says_nothing(text: str) -> bool:
    """Whether a docstring is too short to say something, or a riddle. That a method is the protocol's may be all it says."""
    if POINTER.fullmatch(text):
        return False
    return len(re.findall(r"[\w.`]+", text)) < FEWEST_WORDS or RIDDLE.search(text) is not None


@pytest.mark.parametrize(
    "text", ["See above.", "It went well.", "Seconds.", "A connection.", "As above, for leases.", "See the module. More."]
)
def test_what_says_nothing(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize("file", FILES)
def test_each_docstring_says_something(file: str) -> None:
    found = docstrings(ast.parse((PACKAGE / file).read_text()))
    assert [(line, text) for line, text in found if says_nothing(text)] == []
