"""The table of settings in docs/configuration.md, made of their definitions: `python -m tests.docs.settings_page` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aioqueue.definitions._setting_kinds import Setting
from aioqueue.definitions._setting_table import SETTINGS

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- Made of aioqueue/definitions/_setting_table.py by `python -m tests.docs.settings_page`. -->\n"
END = "<!-- The end of the settings. -->\n"
HEAD = "| setting | option | variable | argument of | default | what |\n|---|---|---|---|---|---|\n"


def row(setting: Setting[Any]) -> str:
    option = f"`{setting.flag}`".replace("/", "`, `") if setting.option else "–"
    owners = ", ".join(f"`{owner}`" for owner in setting.of) or "–"
    what = f"{setting.what} {setting.more}".strip()
    cells = (f"`{setting.name}`", option, f"`{setting.variable}`", owners, setting.shown_default, what)
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    return HEAD + "".join(map(row, SETTINGS))


def parts(page: str) -> tuple[str, str, str]:
    """The page up to the table, the table, and the rest."""
    before, found, rest = page.partition(BEGIN)
    written, ended, after = rest.partition(END)
    assert found, f"{PAGE} has no line {BEGIN}"
    assert ended, f"{PAGE} has no line {END}"
    return before + found, written.strip("\n") + "\n", ended + after


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(f"{before}\n{table()}\n{after}")
