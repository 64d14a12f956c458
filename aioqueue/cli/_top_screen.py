"""The terminal of `aioqueue top`: what is drawn there, the keys that are pressed, and all of it as before at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from aioqueue.cli._tables import cut, draws, plain_table, rich_console, rich_table
from aioqueue.cli._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioqueue.cli._top_frame import Table

    Show = Callable[[str, str, str, Sequence[Table]], None]

__all__ = ["fit", "pressed", "screen"]

_LINES_AROUND_ROWS = 4
"""Of a table: one that parts it from the one above, two for its head, and one more at the end."""
_LINES_ABOVE = 4

_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_TO_THE_TOP, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT = b"qQ\x03"


@contextmanager
def screen(stream: TextIO) -> Generator[Show]:
    """A screen of its own, which is gone when the context is left, whatever ends it.

    Yields:
        What shows a frame: its title, what is wrong (empty for nothing), the line below, and its tables.
    """
    if draws(stream):
        with _drawn(stream) as show:
            yield show
    elif os.environ.get("TERM") in ("dumb", "unknown"):
        yield lambda title, trouble, line, tables: _print(stream, [*_lines(title, trouble, line, tables), ""])
    else:
        with _redrawn(stream) as show:
            yield show


def _print(stream: TextIO, lines: Sequence[str]) -> None:
    stream.write("".join(f"{line}\n" for line in lines))
    stream.flush()


@contextmanager
def _drawn(stream: TextIO) -> Generator[Show]:
    # An extra, and `aioqueue top` works without it.
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    console = rich_console(stream)
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(title: str, trouble: str, line: str, tables: Sequence[Table]) -> None:
        parts: list[RenderableType] = [Text(one_line(title), style="bold")]
        if trouble:
            parts.append(Text(one_line(trouble), style="red"))
        parts.append(Text(one_line(line)))
        for header, rows in fit(tables, console.height):
            parts += ["", rich_table(header, rows)]
        live.update(Group(*parts), refresh=True)

    with live:
        yield show


@contextmanager
def _redrawn(stream: TextIO) -> Generator[Show]:
    def show(title: str, trouble: str, line: str, tables: Sequence[Table]) -> None:
        columns, height = shutil.get_terminal_size()
        shown = [cut(each, columns) for each in _lines(title, trouble, line, fit(tables, height))[: height - 1]]
        stream.write(_TO_THE_TOP + "".join(f"{each}{_REST_OF_LINE}\n" for each in shown) + _REST_OF_SCREEN)
        stream.flush()

    stream.write(_OTHER_SCREEN)
    try:
        yield show
    finally:
        stream.write(_FIRST_SCREEN)
        stream.flush()


def fit(tables: Sequence[Table], lines: int) -> list[Table]:
    """Shorten the longest tables, so that each has its place on the screen, and say how many rows are left out.

    Arguments:
        tables: With all their rows.
        lines: The screen's height.
    """
    left = lines - _LINES_ABOVE - _LINES_AROUND_ROWS * len(tables)
    most: dict[int, int] = {}
    for number in sorted(range(len(tables)), key=lambda number: len(tables[number][1])):
        share = max(left // (len(tables) - len(most)), 1)
        most[number] = min(len(tables[number][1]), share)
        left -= most[number]
    fitted: list[Table] = []
    for number, (header, rows) in enumerate(tables):
        more = len(rows) - most[number]
        shown = rows[: most[number]]
        fitted.append((header, [*shown, (f"and {more} more", *[""] * (len(header) - 1))] if more else shown))
    return fitted


def _lines(title: str, trouble: str, line: str, tables: Sequence[Table]) -> list[str]:
    lines = [one_line(each) for each in (title, trouble, line) if each]
    for header, rows in tables:
        lines += ["", *plain_table(header, rows).splitlines()]
    return lines


@contextmanager
def pressed(ended: asyncio.Event) -> Generator[None]:
    """Set the event when `q` is pressed. Where standard input is no terminal, nobody presses anything."""
    keyboard = _keyboard()
    if keyboard is None:
        yield
        return
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(keyboard)

    def read() -> None:
        keys = os.read(keyboard, 1024)
        if not keys:
            loop.remove_reader(keyboard)
        elif any(key in _QUIT for key in keys):
            ended.set()

    try:
        tty.setcbreak(keyboard)  # without Enter, and what is pressed isn't shown; Ctrl-C is a signal as before
        loop.add_reader(keyboard, read)
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _keyboard() -> int | None:
    try:
        return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    except ValueError:  # it's closed
        return None
