"""Migrations: numbered SQL files, each run in one transaction under an advisory lock that ends with it."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

from aioqueue.errors import StoreIncompatible
from aioqueue.postgres._errors import sqlstate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_source import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Migration", "check_version", "known_migrations", "migrate", "migration_sql", "pending_migrations"]

# A search_path of the role's may name functions and types that only look like PostgreSQL's own.
_LOCAL = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '10s'"
# What is there already or was changed meanwhile, although the lock was held: by a tool that doesn't take it. The next try
# sees what has been done.
_OTHERS_WERE_QUICKER = frozenset({"42P06", "42P07", "42710", "42723", "42701", "23505", "40001", "40P01"})
_MOST_TRIES = 5
_NAME = re.compile(r"(\d{4})_\w+\.sql")
_OLDEST = re.compile(r"-- oldest code: (\d+)")

_TABLE = """CREATE TABLE IF NOT EXISTS @schema@.migration (
    number integer NOT NULL PRIMARY KEY,
    name text NOT NULL,
    oldest_code integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""
_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
_HAS_TABLE = """SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'migration')"""
_APPLIED = "SELECT number, name, oldest_code FROM @schema@.migration ORDER BY number"
_RECORD = "INSERT INTO @schema@.migration (number, name, oldest_code) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        number: From 1, without gaps.
        name: The file's name without its ending.
        oldest_code: The oldest code that may run with it, by the newest migration that that code knows.
        template: SQL, for `Schema.render`.
    """

    number: int
    name: str
    oldest_code: int
    template: str


@cache
def known_migrations() -> tuple[Migration, ...]:
    """All migrations that this code knows, in order."""
    found: list[Migration] = []
    for file in resources.files("aioqueue.postgres.migrations").iterdir():
        if (match := _NAME.fullmatch(file.name)) is not None:
            template = file.read_text(encoding="utf-8")
            oldest = _OLDEST.match(template)
            assert oldest is not None, f"{file.name} doesn't say which code may run with it"
            found.append(Migration(int(match[1]), file.name.removesuffix(".sql"), int(oldest[1]), template))
    return tuple(sorted(found, key=lambda migration: migration.number))


async def _applied(connection: Connection, schema: Schema) -> dict[int, tuple[str, int]]:
    if not (await connection.fetch(_HAS_TABLE, schema.name))[0][0]:
        return {}
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(schema.render(_APPLIED))}


async def pending_migrations(connection: Connection, schema: Schema, known: Sequence[Migration]) -> list[Migration]:
    """Give the migrations that haven't been applied yet, in order."""
    applied = await _applied(connection, schema)
    return [migration for migration in known if migration.number not in applied]


async def check_version(connection: Connection, schema: Schema, known: Sequence[Migration]) -> None:
    """Check that the schema fits this code.

    Raises:
        StoreIncompatible: It is missing, too old, or too new.
    """
    applied = await _applied(connection, schema)
    if not applied:
        raise StoreIncompatible(f"there is no schema {schema.quoted} in this database yet: run `aioqueue migrate`")
    missing = [migration.name for migration in known if migration.number not in applied]
    if missing:
        raise StoreIncompatible(
            f"the schema {schema.quoted} is too old for this code, it lacks {', '.join(missing)}: run `aioqueue migrate`"
        )
    code = known[-1].number
    too_new = [name for name, oldest in applied.values() if oldest > code]
    if too_new:
        raise StoreIncompatible(
            f"the schema {schema.quoted} is too new for this code (which knows migrations up to {code}): "
            f"{', '.join(too_new)} needs newer code"
        )


async def migrate(connection: Connection, schema: Schema, known: Sequence[Migration]) -> list[str]:
    """Apply what is missing; several processes may do so at once.

    Returns:
        The names of the migrations that this call applied.
    """
    done: list[str] = []
    for migration in known:
        for again in range(_MOST_TRIES - 1, -1, -1):
            try:
                if await _apply(connection, schema, migration):
                    done.append(migration.name)
                break
            except asyncpg.PostgresError as error:
                quicker = sqlstate(error) in _OTHERS_WERE_QUICKER or "tuple concurrently" in str(error)
                if not again or not quicker:
                    raise
                await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - keeps processes apart
    return done


async def _apply(connection: Connection, schema: Schema, migration: Migration) -> bool:
    """Apply one unless it has been; returns whether it was done here."""
    # Not as the database's default says: a snapshot from before the wait for the lock doesn't see what others did.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(f"SELECT pg_catalog.pg_advisory_xact_lock({schema.lock})")
        # Only now: waiting for the other processes is no reason to give up.
        await connection.execute(_LOCAL)
        if not (await connection.fetch(_HAS_SCHEMA, schema.name))[0][0]:
            # IF NOT EXISTS would ask for the right to create even where the schema is there.
            await connection.execute(f"CREATE SCHEMA {schema.quoted}")
        if not (await connection.fetch(_HAS_TABLE, schema.name))[0][0]:
            await connection.execute(schema.render(_TABLE))
        if migration.number in await _applied(connection, schema):
            return False
        await connection.execute(schema.render(migration.template))
        await connection.execute(schema.render(_RECORD), migration.number, migration.name, migration.oldest_code)
        return True


def migration_sql(schema: Schema, known: Sequence[Migration]) -> str:
    """Give everything that `migrate` would run on an empty database, for review or for psql."""
    parts: list[str] = []
    for migration in known:
        head = "" if migration.number > 1 else f"CREATE SCHEMA IF NOT EXISTS {schema.quoted};\n{schema.render(_TABLE)};\n"
        parts.append(
            f"-- {migration.name}\nBEGIN ISOLATION LEVEL READ COMMITTED;\n"
            f"SELECT pg_catalog.pg_advisory_xact_lock({schema.lock});\n{_LOCAL};\n{head}{schema.render(migration.template)}\n"
            f"{schema.render('INSERT INTO @schema@.migration (number, name, oldest_code)')} "
            f"VALUES ({migration.number}, '{migration.name}', {migration.oldest_code});\nCOMMIT;\n"
        )
    return "\n".join(parts)
