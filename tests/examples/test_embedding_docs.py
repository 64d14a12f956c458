"""What the page on embedding shows are pieces of the examples that the other tests run."""

from __future__ import annotations

import re

from tests.processes import ROOT

PAGE = (ROOT / "docs" / "how-to" / "embedding.md").read_text()
SOURCES = [path.read_text() for path in sorted((ROOT / "examples" / "shop").glob("*.py"))]


def test_every_block_is_a_piece_of_an_example() -> None:
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        assert any(block in source for source in SOURCES), block


def test_every_command_names_a_module_that_is_there() -> None:
    modules = set(re.findall(r"examples\.shop\.\w+", PAGE))
    assert len(modules) == 4
    for module in modules:
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
