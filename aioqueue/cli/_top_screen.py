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

from aioqueue.cli._tables import draws, plain_table, rich_console, rich_table
from aioqueue.cli._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioqueue.cli._top_frame import Table

    Show = Callable[[str, str, str, Sequence[Table]], None]

__all__ = ["pressed", "screen"]

_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_TO_THE_TOP, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT = b"qQ\x03"


@contextmanager
def screen(stream: TextIO) -> Generator[Show]:
    """A screen of its own, which is gone when the context is left, whatever ends it.

    Yields:
        What shows a frame: its title, what is wrong (empty for nothing), the line below, and its tables. What doesn't fit is
        cut off at the bottom.
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
        for header, rows in tables:
            parts += ["", rich_table(header, rows[: console.height])]
        live.update(Group(*parts), refresh=True)

    with live:
        yield show


@contextmanager
def _redrawn(stream: TextIO) -> Generator[Show]:
    def show(title: str, trouble: str, line: str, tables: Sequence[Table]) -> None:
        columns, height = shutil.get_terminal_size()
        shown = [each[:columns] for each in _lines(title, trouble, line, tables)[: height - 1]]
        stream.write(_TO_THE_TOP + "".join(f"{each}{_REST_OF_LINE}\n" for each in shown) + _REST_OF_SCREEN)
        stream.flush()

    stream.write(_OTHER_SCREEN)
    try:
        yield show
    finally:
        stream.write(_FIRST_SCREEN)
        stream.flush()


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
