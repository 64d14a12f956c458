"""The schema's versions: numbered files, each applied once, in one transaction."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from aioqueue.errors import StoreIncompatible
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._rows_times import NOW

__all__ = ["CODE", "Migration", "check", "migrate", "packaged"]

CODE = 1
"""This code's version; each migration names the oldest that may run with it."""

_TABLE = """
CREATE TABLE IF NOT EXISTS migration (
    number      INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL,
    oldest_code INTEGER NOT NULL,
    applied_at  INTEGER NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file.

    Attributes:
        number: From 1, without gaps.
        name: The file's name without its ending.
        oldest_code: The oldest code that may run once this was applied.
        statements: Its statements.
    """

    number: int
    name: str
    oldest_code: int
    statements: tuple[str, ...]


@cache
def packaged() -> tuple[Migration, ...]:
    """The migrations of this code, in order."""
    found: list[Migration] = []
    for file in files("aioqueue.sqlite").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            oldest = re.search(r"^-- oldest code: (\d+)$", text, re.MULTILINE)
            assert oldest is not None, f"{file.name} names no oldest code"
            name = file.name.removesuffix(".sql")
            found.append(Migration(int(name[:4]), name, int(oldest[1]), tuple(_split(text))))
    return tuple(sorted(found, key=lambda each: each.number))


def _split(text: str) -> list[str]:
    statements: list[str] = []
    rest = ""
    for line in text.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest.strip())
            rest = ""
    return statements


def _applied(connection: sqlite3.Connection) -> dict[int, int]:
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migration'").fetchone()
    if exists is None:
        return {}
    try:
        return dict(connection.execute("SELECT number, oldest_code FROM migration").fetchall())
    except sqlite3.OperationalError as error:
        raise StoreIncompatible(
            f"the file has a table `migration` that isn't aioqueue's ({error}): use another file"
        ) from error


def check(connection: sqlite3.Connection) -> list[Migration]:
    """Compare the schema with this code.

    Returns:
        What is still to be applied.

    Raises:
        StoreIncompatible: A newer aioqueue has changed the schema in a way that this one doesn't understand.
    """
    applied = _applied(connection)
    oldest = max(applied.values(), default=0)
    if oldest > CODE:
        raise StoreIncompatible(
            f"the database was migrated by a newer aioqueue (schema {max(applied)}), which needs code version {oldest} "
            f"at least; this is {CODE}: upgrade aioqueue here"
        )
    return [each for each in packaged() if each.number not in applied]


def migrate(connection: sqlite3.Connection, timeout: float) -> list[str]:
    """Apply what is missing. Several processes may do so at once: each looks again once it has the write lock.

    Returns:
        The names of the migrations that this call applied.

    Raises:
        StoreIncompatible: The schema is too new, or not aioqueue's.
        StoreUnavailable: No write lock.
    """
    done: list[str] = []
    for migration in check(connection):

        def apply(connection: sqlite3.Connection, migration: Migration = migration) -> bool:
            if migration.number not in {each.number for each in check(connection)}:
                return False
            connection.execute(_TABLE)
            try:
                for statement in migration.statements:
                    connection.execute(statement)
            except sqlite3.OperationalError as error:
                if "already exists" in str(error):
                    raise StoreIncompatible(
                        f"the file holds something that isn't aioqueue's ({error}): use a file of its own"
                    ) from error
                raise
            connection.execute(
                f"INSERT INTO migration (number, name, oldest_code, applied_at) VALUES (?, ?, ?, {NOW})",
                (migration.number, migration.name, migration.oldest_code),
            )
            return True

        if in_transaction(connection, timeout, apply):
            done.append(migration.name)
    return done
