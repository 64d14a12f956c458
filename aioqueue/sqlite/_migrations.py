"""The schema's versions: numbered files, each applied once, in one transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING

from aioqueue.errors import StoreIncompatible
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._errors import translated
from aioqueue.sqlite._events_triggers import stop_logging
from aioqueue.sqlite._gates_triggers import create_gate_triggers, drop_gate_triggers
from aioqueue.sqlite._migrations_unique_keys import add_functions
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._migrations import AppliedMigration, check_not_newer, packaged_migrations, pending_migrations

if TYPE_CHECKING:
    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._options import Options
    from aioqueue.store_rules._migrations import Migration

__all__ = ["check_file", "known_migrations", "lost_tables", "migrate", "pending"]

_TABLE = """
CREATE TABLE IF NOT EXISTS migration (
    number      INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL,
    oldest_code INTEGER NOT NULL,
    applied_at  INTEGER NOT NULL
)
"""


def known_migrations() -> tuple[Migration, ...]:
    """Give all migrations that this code knows, in order."""
    return packaged_migrations("aioqueue.sqlite.migrations")


def _statements(sql: str) -> list[str]:
    statements: list[str] = []
    rest = ""
    for line in sql.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest.strip())
            rest = ""
    return statements


def _applied(connection: sqlite3.Connection) -> dict[int, AppliedMigration]:
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migration'").fetchone()
    if exists is None:
        return {}
    with translated("the file has a table `migration` that can't be read; use another file if it isn't aioqueue's"):
        rows = connection.execute("SELECT number, name, oldest_code FROM migration").fetchall()
    return {number: AppliedMigration(name, oldest_code) for number, name, oldest_code in rows}


def pending(connection: sqlite3.Connection) -> list[Migration]:
    """Give the migrations that haven't been applied yet, in order.

    Raises:
        StoreIncompatible: The schema is too new, or not aioqueue's.
    """
    applied, known = _applied(connection), known_migrations()
    check_not_newer(applied, known, "database")
    return pending_migrations(applied, known)


def check_file(connection: sqlite3.Connection, options: Options) -> None:
    """Refuse a file that can't be aioqueue's, or has no tables of aioqueue's if none are to be made, without a change of it.

    Raises:
        StoreIncompatible: It can't be used.
    """
    pending(connection)
    if _applied(connection):
        return
    if taken := {name for _, name in _names(connection)} & {name for _, name in _own_names()}:
        raise StoreIncompatible(
            f"0001_tables can't be applied: {', '.join(sorted(taken))} already exists in {options.path}; "
            "use another file if this one holds something else"
        )
    if not options.create:
        raise StoreIncompatible(
            f"{options.path} has no tables of aioqueue's: nothing was ever enqueued there, or it is another file"
        )


def lost_tables(connection: sqlite3.Connection) -> list[str]:
    """Give the tables and views that all migrations together have made, and that are gone; none if the schema is newer."""
    if set(_applied(connection)) != {each.number for each in known_migrations()}:
        return []
    return sorted(name for kind, name in _own_names() - _names(connection) if kind in {"table", "view"})


def _names(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Kinds and names of what is in a file, but for the table of its versions."""
    rows = connection.execute("SELECT type, name FROM sqlite_master WHERE name <> 'migration'")
    return frozenset((kind, name) for kind, name in rows)


@cache
def _own_names() -> frozenset[tuple[str, str]]:
    """The same of a file with all migrations."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        add_functions(connection)
        for migration in known_migrations():
            _run(connection, migration)
        return _names(connection)


def _run(connection: sqlite3.Connection, migration: Migration) -> None:
    try:
        with translated(f"{migration.name} can't be applied"):
            for statement in _statements(migration.sql):
                connection.execute(statement)
    except StoreIncompatible as error:
        raise StoreIncompatible(f"{error}; use another file if this one holds something else") from error.__cause__


def migrate(connection: Connection, timeout: float) -> list[str]:
    """Apply what is missing. Several processes may do so at once: each looks again once it has the write lock.

    Returns:
        The names of the migrations that this call applied.

    Raises:
        StoreIncompatible: The schema is too new, or not aioqueue's.
        StoreUnavailable: No write lock.
    """
    done: list[str] = []
    add_functions(connection)
    for migration in pending(connection):

        def apply(connection: sqlite3.Connection, migration: Migration = migration) -> bool:
            if migration.number not in {each.number for each in pending(connection)}:
                return False
            connection.execute(_TABLE)
            stop_logging(connection)
            used_gates = drop_gate_triggers(connection)
            _run(connection, migration)
            if used_gates:
                create_gate_triggers(connection)
            connection.execute(
                f"INSERT INTO migration (number, name, oldest_code, applied_at) VALUES (?, ?, ?, {NOW})",
                (migration.number, migration.name, migration.oldest_code),
            )
            return True

        if in_transaction(connection, timeout, apply):
            done.append(migration.name)
    return done
