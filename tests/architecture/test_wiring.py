"""A worker is wired forwards: its parts get their partners from their constructors, and none is told of one afterwards."""

from __future__ import annotations

import ast
from pathlib import Path

WORKER = Path(__file__).parent.parent.parent / "aioqueue" / "worker"


def set_from_outside(source: str) -> list[str]:
    """Where an attribute of a part is set by whoever puts the parts together."""
    targets = [
        target
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    ]
    return [ast.unparse(target) for target in targets if ast.unparse(target.value) != "self"]


def test_whoever_puts_the_parts_together_sets_nothing_in_them() -> None:
    assert set_from_outside((WORKER / "_run.py").read_text()) == []


def test_wiring_backwards_is_found() -> None:
    assert set_from_outside("writer = Writer()\nself.slots = Slots(writer)\nwriter.slots = self.slots") == ["writer.slots"]
