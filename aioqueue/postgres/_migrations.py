"""Migrations: numbered SQL files, each run in one transaction under an advisory lock that ends with it.

What a migration locks behind somebody's long transaction holds up everybody who comes after it, workers too. So it waits for
each lock only briefly, gives way, and is tried again later.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import asyncpg

from aioqueue.errors import StoreContended
from aioqueue.postgres._errors import LOCKED, sqlstate
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
_LOCAL = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '1s'"
# What is there already or was changed meanwhile, although the lock was held: by a tool that doesn't take it. The next try
# sees what has been done.
_OTHERS_WERE_QUICKER = frozenset(
    {"42P06", "42P07", "42710", "42723", "42701", "23505", "40001", "40P01", "42704", "42P01", "42703", "42883"}
)
_MOST_TRIES = 5
_LONGEST_TRYING_SECONDS = 30.0
"""For each migration, where others hold what it locks; less than the time that a store gives them all."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 3.0

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

    Raises:
        StoreContended: For half a minute others have held what a migration locks. Those before it are done.
    """
    return [migration.name for migration in known if await _applied_here(connection, schema, migration)]


async def _applied_here(connection: Connection, schema: Schema, migration: Migration) -> bool:
    """Apply one unless it has been, and try again where that may help; returns whether it was done here."""
    until = time.monotonic() + _LONGEST_TRYING_SECONDS
    pause, quicker = _FIRST_PAUSE_SECONDS, 0
    while True:
        try:
            return await _apply(connection, schema, migration)
        except asyncpg.PostgresError as error:
            if sqlstate(error) == LOCKED:
                if time.monotonic() + pause > until:
                    raise StoreContended(
                        f"migration {migration.name}: for {_LONGEST_TRYING_SECONDS:.0f} s other transactions have held what it "
                        "locks. So that no worker queues behind it, it has given way each time: run it again when they have "
                        "ended (pg_stat_activity shows the old ones: ORDER BY xact_start)"
                    ) from error
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - keeps processes apart
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            quicker += 1
            if quicker == _MOST_TRIES or not (sqlstate(error) in _OTHERS_WERE_QUICKER or "tuple concurrently" in str(error)):
                raise
            await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - keeps processes apart


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
