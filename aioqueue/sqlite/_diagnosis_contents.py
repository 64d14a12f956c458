"""Checks of a diagnosis: what is in the file. Each has a connection of its own, which makes no file and changes no setting."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from aioqueue.errors import StoreIncompatible
from aioqueue.sqlite._diagnosis_file import megabytes
from aioqueue.sqlite._errors import translated
from aioqueue.sqlite._migrations import check_file, known_migrations, lost_tables, pending
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from aioqueue.sqlite._options import Options

__all__ = ["integrity", "journal_mode", "schema", "wal"]

_LEAST_LONG_WAL_BYTES = 64 * 2**20
_STEPS_BETWEEN_LOOKS = 10_000
_LOCK_SECONDS = 2.0


@contextmanager
def _looking(path: Path) -> Generator[sqlite3.Connection]:
    with translated(f"{path} can't be read"):
        uri = f"file:{quote(str(path))}?mode=rw"  # with mode=ro nobody would tidy up the write-ahead log afterwards
        connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def schema(options: Options) -> list[Finding]:
    """Whether the schema fits this code."""
    try:
        with _looking(options.path) as connection:
            check_file(connection, replace(options, create=True))
            missing, lost = [each.name for each in pending(connection)], lost_tables(connection)
    except StoreIncompatible as error:
        return [Finding("schema", Verdict.PROBLEM, str(error), "Use the version that fits, or another file.")]
    if lost:
        return [Finding("schema", Verdict.PROBLEM, f"the tables {', '.join(lost)} are gone", "Use a backup, or another file.")]
    if missing:
        seen = f"it lacks {', '.join(missing)}, which whoever opens it next applies"
        return [Finding("schema", Verdict.WARNING, seen, "Run `aioqueue migrate`, when no older version needs it as it is.")]
    return [Finding("schema", Verdict.OK, f"up to date: {known_migrations()[-1].name}")]


def journal_mode(path: Path) -> list[Finding]:
    """Whether it's in WAL mode. If it isn't, the queue isn't looked at: every client that opens the file changes that."""
    with _looking(path) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        return [Finding("journal_mode", Verdict.OK, "WAL mode")]
    seen = f"the journal mode is {mode}; whoever opens it next goes over to WAL"
    return [Finding("journal_mode", Verdict.WARNING, seen, "Let it be so, such as with `aioqueue stats`; then ask again.")]


def wal(path: Path, limit: int) -> list[Finding]:
    """Whether the write-ahead log is carried over into the file."""
    with _looking(path) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # it fails if this is no database
        log = path.with_name(f"{path.name}-wal")
        size = log.stat().st_size if log.exists() else 0
    if size > max(4 * limit, _LEAST_LONG_WAL_BYTES):
        seen = f"the write-ahead log has grown to {megabytes(size)}: some reader keeps it from being carried over into the file"
        advice = "Look for a program that keeps a read transaction open, such as a database browser, and end it."
        return [Finding("wal", Verdict.WARNING, seen, advice)]
    return [Finding("wal", Verdict.OK, f"the write-ahead log has {megabytes(size)}")]


def integrity(path: Path, longest: float) -> list[Finding]:
    """Whether SQLite finds the file sound, as far as it can be read in time."""
    deadline = time.monotonic() + longest
    ended = False

    def too_late() -> bool:
        nonlocal ended
        ended = time.monotonic() > deadline
        return ended

    try:
        with _looking(path) as connection:
            connection.set_progress_handler(too_late, _STEPS_BETWEEN_LOOKS)
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except StoreIncompatible as error:
        return [Finding("integrity", Verdict.PROBLEM, str(error), "Use another file, or a backup.")]
    except Exception:
        if not ended:
            raise
        seen = (
            f"it can't be told: PRAGMA quick_check hadn't read the whole file after {longest:g} s; it found nothing until then"
        )
        return [Finding("integrity", Verdict.UNKNOWN, seen, f"Run: sqlite3 {path} 'PRAGMA quick_check'.")]
    if found == ["ok"]:
        return [Finding("integrity", Verdict.OK, "PRAGMA quick_check finds no damage")]
    advice = "Stop what uses it, keep a copy, and restore a backup, or try `sqlite3 FILE .recover`."
    return [Finding("integrity", Verdict.PROBLEM, f"the file is damaged: {'; '.join(found)}", advice)]
