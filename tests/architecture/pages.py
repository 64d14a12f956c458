"""Reads what docs/internals.md and CONTRIBUTING.md say of the folders."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "aioqueue"
INTERNALS = (ROOT / "docs" / "internals.md").read_text()


def section(page: str, title: str) -> str:
    """The text of a page's section, up to the next heading of that level."""
    return page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def block(text: str) -> list[str]:
    """The lines of the first block of text in a section."""
    return text.split("```text\n", 1)[1].split("```", 1)[0].splitlines()


def cells(text: str) -> list[list[str]]:
    """The rows of a section's tables, without their heads."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows][1:]


def files(folder: Path) -> set[str]:
    """The modules of a folder."""
    return {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}


def rooms() -> set[str]:
    """The rooms that each store has, as docs/internals.md lists them."""
    return {row[0].strip("`") for row in cells(section(INTERNALS, "The rooms of a store"))}
