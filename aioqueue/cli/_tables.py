"""The one place that draws tables and progress: with rich on a terminal, where it's installed, and as plain text otherwise.

What is written to a pipe or a file is for other programs: aligned columns of whole texts, without colours, lines or a
terminal's width; and a terminal that is too narrow for a table gets it plain, too. Texts of users are never markup, and their
control characters are made visible.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

import click

from aioqueue.cli._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from rich.console import Console
    from rich.table import Table

__all__ = [
    "colored",
    "colored_state",
    "cut",
    "draws",
    "is_terminal",
    "plain_table",
    "rich_console",
    "rich_table",
    "shortened",
    "show_progress",
    "show_table",
    "shows_progress",
]

_WIDEST_CELL_CHARACTERS = 60
_WIDEST_UNFOLDED_COLUMNS = 20
"""As wide as a time; a column whose texts are all as short isn't folded."""
_NARROWEST_FOLDED_COLUMNS = 12
_COLORS = {"failed": "red", "running": "cyan", "completed": "green", "ready": "yellow"}
"""Of columns that are headed so, and of what the column `state` holds."""


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns of text to standard output.

    Arguments:
        header: Their names; the first column is what a row is known by, and stays whole.
        rows: What they hold.
    """
    if draws(sys.stdout):
        console, table = rich_console(sys.stdout), rich_table(header, rows)
        if _least_width(table) <= console.width:
            console.print(table)
            return
    click.echo(plain_table(header, rows, shorten=is_terminal(sys.stdout)))


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, shorten: bool = True) -> str:
    """Columns of text, as wide as they have to be.

    Arguments:
        header: Their names.
        rows: What they hold; control characters are made visible.
        shorten: Whether what is very long is shortened: for people, who want the others to keep their place.
    """
    shown = shortened if shorten else str
    cells = [header, *([shown(one_line(cell)) for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    lines: list[str] = []
    for row in cells:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def colored(text: str, color: str) -> str:
    """Text of our own for `click.echo`, which takes the colour away where there is no terminal."""
    plain = os.environ.get("TERM") in ("dumb", "unknown") or os.environ.get("NO_COLOR")
    return text if plain else click.style(text, fg=color)


def colored_state(state: str) -> str:
    """A state's name in its colour."""
    return colored(state, _COLORS[state]) if state in _COLORS else state


@contextmanager
def show_progress(*, total: int | None = None, beside_output: bool = False) -> Generator[Callable[[str, int], None]]:
    """Show on standard error how far something is, while the context lasts; nothing where that isn't a terminal.

    Arguments:
        total: How many there are to be done, if that is known: then a bar shows how many of them are.
        beside_output: Whether something is printed meanwhile: on one terminal with that there is no progress.

    Yields:
        What is called with each new text, such as `1,000 deleted`, and how many are done.
    """
    if not shows_progress(beside_output=beside_output):
        yield lambda _text, _number: None
    elif not draws(sys.stderr):
        with _rewritten_line(total) as show:
            yield show
    else:
        # rich is an extra, and takes long to import: only what draws does so.
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        bar = () if total is None else (BarColumn(), TaskProgressColumn())
        columns = SpinnerColumn(), *bar, TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        # Redirected, standard output would end up on standard error, whoever reads it.
        with Progress(*columns, console=rich_console(sys.stderr), redirect_stdout=False, redirect_stderr=False) as progress:
            task = progress.add_task("", total=total)
            yield lambda text, number: progress.update(task, description=one_line(text), completed=number)


def shows_progress(*, beside_output: bool) -> bool:
    """Whether `show_progress` would show anything."""
    return is_terminal(sys.stderr) and not (beside_output and is_terminal(sys.stdout))


@contextmanager
def _rewritten_line(total: int | None) -> Generator[Callable[[str, int], None]]:
    shown = False

    def show(text: str, number: int) -> None:
        nonlocal shown
        shown = True
        part = f"{min(100 * number // total, 100)}%  " if total else ""
        click.echo(f"\r{part}{one_line(text)}", err=True, nl=False)

    try:
        yield show
    finally:
        if shown:
            click.echo(err=True)


def rich_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """What rich draws of a table, where `draws` says that it's there: a column in which no row has anything is left out.

    Only long texts are folded, and the first column isn't.
    """
    # As in `show_progress`: an extra.
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    columns = [number for number in range(len(header)) if number == 0 or any(row[number] for row in rows)]
    cells = {number: [shortened(one_line(row[number])) for row in rows] for number in columns}
    for number in columns:
        width = max(map(_width, (header[number], *cells[number])))
        whole = number == 0 or width <= _WIDEST_UNFOLDED_COLUMNS
        table.add_column(
            Text(header[number]),
            no_wrap=whole,
            min_width=width if whole else _NARROWEST_FOLDED_COLUMNS,
            overflow="fold",
            style=_COLORS.get(header[number], ""),
        )
    for row in zip(*cells.values(), strict=True):
        named = zip((header[number] for number in columns), row, strict=True)
        table.add_row(*(Text(text, style=_COLORS.get(text, "") if name == "state" else "") for name, text in named))
    return table


def _least_width(table: Table) -> int:
    """How wide a terminal has to be: the least width of each column, and three more between two."""
    return sum((column.min_width or 0) + 3 for column in table.columns) - 3


def rich_console(stream: TextIO) -> Console:
    """What rich draws on, where `draws` says that it's there: it takes nothing for markup."""
    from rich.console import Console  # as in `show_progress`: an extra

    return Console(
        file=stream, force_terminal=True, no_color=bool(os.environ.get("NO_COLOR")), markup=False, highlight=False, emoji=False
    )


def draws(stream: TextIO) -> bool:
    """Whether there is a terminal that can be drawn on, and rich to do it."""
    return is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "unknown") and find_spec("rich") is not None


def is_terminal(stream: TextIO | None) -> bool:
    """Whether it's there, open, and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it's closed
        return False


def shortened(cell: str) -> str:
    """Shorten a cell, so that the others keep their place, whatever somebody has called something."""
    return cell if len(cell) <= _WIDEST_CELL_CHARACTERS else f"{cell[: _WIDEST_CELL_CHARACTERS - 1]}…"


def _width(text: str) -> int:
    """How many columns a terminal takes for it."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def cut(line: str, columns: int) -> str:
    """As much of a line's beginning as a terminal shows in so many columns."""
    if _width(line) <= columns:
        return line
    taken = 0
    for number, each in enumerate(line):
        taken += _width(each)
        if taken > columns:
            return line[:number]
    return line
