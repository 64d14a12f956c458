"""Migrations: numbered SQL files, each run in one transaction under an advisory lock that ends with it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import asyncpg

from aioqueue.postgres._errors import sqlstate
from aioqueue.store_rules._migrations import (
    AppliedMigration,
    check_complete,
    check_not_newer,
    packaged_migrations,
    pending_migrations,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._migrations import Migration

__all__ = ["check_version", "known_migrations", "migrate", "migration_sql", "pending"]

# A search_path of the role's may name functions and types that only look like PostgreSQL's own.
_LOCAL = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '10s'"
# What is there already or was changed meanwhile, although the lock was held: by a tool that doesn't take it. The next try
# sees what has been done.
_OTHERS_WERE_QUICKER = frozenset({"42P06", "42P07", "42710", "42723", "42701", "23505", "40001", "40P01"})
_MOST_TRIES = 5

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


def known_migrations() -> tuple[Migration, ...]:
    """All migrations that this code knows, in order."""
    return packaged_migrations("aioqueue.postgres.migrations")


async def _applied(connection: Connection, schema: Schema) -> dict[int, AppliedMigration]:
    if not (await connection.fetch(_HAS_TABLE, schema.name))[0][0]:
        return {}
    return {row[0]: AppliedMigration(row[1], row[2]) for row in await connection.fetch(schema.render(_APPLIED))}


async def pending(connection: Connection, schema: Schema, known: Sequence[Migration]) -> list[Migration]:
    """Give the migrations that haven't been applied yet, in order."""
    return pending_migrations(await _applied(connection, schema), known)


async def check_version(connection: Connection, schema: Schema, known: Sequence[Migration]) -> None:
    """Check that the schema fits this code.

    Raises:
        StoreIncompatible: It is missing, too old, or too new.
    """
    applied = await _applied(connection, schema)
    check_complete(applied, known, f"schema {schema.quoted}")
    check_not_newer(applied, known, f"schema {schema.quoted}")


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
        await connection.execute(schema.render(migration.sql))
        await connection.execute(schema.render(_RECORD), migration.number, migration.name, migration.oldest_code)
        return True


def migration_sql(schema: Schema, known: Sequence[Migration]) -> str:
    """Give everything that `migrate` would run on an empty database, for review or for psql."""
    parts: list[str] = []
    for migration in known:
        head = "" if migration.number > 1 else f"CREATE SCHEMA IF NOT EXISTS {schema.quoted};\n{schema.render(_TABLE)};\n"
        parts.append(
            f"-- {migration.name}\nBEGIN ISOLATION LEVEL READ COMMITTED;\n"
            f"SELECT pg_catalog.pg_advisory_xact_lock({schema.lock});\n{_LOCAL};\n{head}{schema.render(migration.sql)}\n"
            f"{schema.render('INSERT INTO @schema@.migration (number, name, oldest_code)')} "
            f"VALUES ({migration.number}, '{migration.name}', {migration.oldest_code});\nCOMMIT;\n"
        )
    return "\n".join(parts)
