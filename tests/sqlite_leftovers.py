"""Nothing of SQLite's is left when the tests are over: no connection, no thread of the package's, no open file of a database.

A plugin of pytest, loaded for all tests, since those of clients, workers and faults use files too.
"""

from __future__ import annotations

import gc
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioqueue.sqlite import _connections

_DATABASE_FILE = re.compile(r"\.(db|sqlite3?)(-wal|-shm|-journal)?( \(deleted\))?$")
_SECONDS = 10.0
"""How long threads that were told to end may take for it."""


def left_over(within: Path | None = None) -> list[str]:
    """Say what is open at the moment.

    Arguments:
        within: Only connections and files below this folder, and no threads, which belong to no folder.
    """
    found = [f"a connection to {path}" for path in map(_path_of, list(_connections._OPEN)) if path is not None]
    found += [f"an open file {path}" for path in _open_files() if _DATABASE_FILE.search(path)]
    if within is not None:
        return sorted(each for each in found if str(within) in each)
    return sorted([*found, *(f"a thread {thread.name!r}" for thread in _threads())])


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioqueue")]


def _path_of(connection: sqlite3.Connection) -> str | None:
    try:
        rows = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError:
        return None  # it's closed
    return str(rows[0][2])


def _open_files() -> list[str]:
    found: list[str] = []
    folder = Path("/proc/self/fd")
    for number in os.listdir(folder) if folder.exists() else ():
        try:
            found.append(os.readlink(folder / number))
        except OSError:  # it was the one that lists them
            continue
    return found


def left_over_in_the_end() -> list[str]:
    """Say what is still open once all that was told to close has had its time."""
    gc.collect()
    deadline = time.monotonic() + _SECONDS
    for thread in _threads():
        thread.join(max(0.0, deadline - time.monotonic()))
    gc.collect()
    return left_over()


@pytest.fixture(scope="session", autouse=True)
def _sqlite_is_left_clean() -> Iterator[None]:
    yield
    found = left_over_in_the_end()
    assert not found, f"left over: {found}"
