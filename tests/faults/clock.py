"""A wall clock that is wrong, for one process: the machine's own can't be set by a test.

Python's clock and SQLite's (`julianday('now')`, which is the process's too) are ahead by what a file says, and are set
anew whenever it's written. Clocks that only count, `time.monotonic` and the time since the start, are as they were.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNIX_EPOCH = 2440587.5
"""Its Julian day."""


def install(path: Path) -> None:
    """From now on this process's clock is ahead by the seconds in the file, or behind."""
    true_time, true_time_ns, connect = time.time, time.time_ns, sqlite3.connect

    def ahead() -> float:
        return float(path.read_text() or "0")

    def julian_day(*arguments: Any) -> float:
        assert arguments == ("now",), arguments
        return (true_time() + ahead()) / 86400.0 + UNIX_EPOCH

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.create_function("julianday", -1, julian_day)
        return connection

    replaced: dict[str, Callable[[], float]] = {
        "time": lambda: true_time() + ahead(),
        "time_ns": lambda: true_time_ns() + int(ahead() * 1_000_000_000),
    }
    for name, function in replaced.items():
        setattr(time, name, function)
    sqlite3.connect = connected


def set_clock(path: Path, ahead: float) -> Path:
    """Set the clock that reads the file; returns the file. It's replaced at once, since it may be read at any time."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(str(ahead))
    return new.replace(path)
