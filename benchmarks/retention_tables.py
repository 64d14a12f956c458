"""What `benchmarks.retention` fills in beside the jobs of `benchmarks.listing`, and what is left of it."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING

import asyncpg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PostgresTables", "SqliteTables", "Tables"]

# A twentieth of the jobs has phases and progress, one logs, one deliveries, some of which wait for a next try.
_BESIDE = """
INSERT INTO {schema}phase (job_id, name, state, claims, started_at, finished_at, result)
    SELECT id, 'download', 4, 1, created_at, finished_at, '{{"bytes": 1000}}' FROM {schema}archive WHERE type = 'bench.type3';
INSERT INTO {schema}progress (job_id, claims, percent, at, phase, phases)
    SELECT id, 1, 100, finished_at, 'download', '{list}' FROM {schema}archive WHERE type = 'bench.type3';
INSERT INTO {schema}job_log (job_id, claims, attempt, lines)
    SELECT id, 1, 1, '[]' FROM {schema}archive WHERE type = 'bench.type5';
INSERT INTO {schema}delivery (
    id, job_id, chain_id, job_type, event, url, host, body, state, tries, created_at, next_at, finished_at)
    SELECT id, id, id, type, 'job.completed', 'https://example.org/', 'example.org', {body},
           CASE WHEN priority <> 2 THEN 1 ELSE 4 END, 1, finished_at, CASE WHEN priority <> 2 THEN {later} END,
           CASE WHEN priority = 2 THEN finished_at END
    FROM {schema}archive WHERE type = 'bench.type10';
UPDATE {schema}archive SET keep = 100000000, purge_at = {later} WHERE type = 'bench.rare';
INSERT INTO {schema}job (id, type, priority, run_at, created_at, state, payload, chain_id, position)
    SELECT id, type, priority, {later}, created_at, 1, payload, chain_id, position
    FROM {schema}archive WHERE chain_id IS NOT NULL ORDER BY chain_id LIMIT 20;
DELETE FROM {schema}archive WHERE id IN (SELECT id FROM {schema}job WHERE position = 1)"""

_LEFT = {
    "old jobs that say themselves how long they're kept": "archive WHERE type = 'bench.rare'",
    "old steps of chains that go on": "archive WHERE type <> 'bench.rare' AND id IN (SELECT chain_id FROM {schema}job)",
    "other old jobs": "archive WHERE type LIKE 'bench.type%' AND id NOT IN ("
    "SELECT chain_id FROM {schema}job WHERE chain_id IS NOT NULL)",
    "younger finished jobs": "archive WHERE type LIKE 'benchmark.%'",
    "phases": "phase",
    "rows of progress": "progress",
    "logs": "job_log",
    "deliveries that wait": "delivery WHERE state = 1",
    "other deliveries": "delivery WHERE state <> 1",
    "unfinished jobs": "job WHERE type LIKE 'bench.%'",
}


class Tables(ABC):
    """The tables of one database."""

    @abstractmethod
    async def fill_beside(self) -> None:
        """Fill in what isn't jobs."""

    @abstractmethod
    async def sizes(self) -> Mapping[str, int]:
        """How many megabytes there are of what."""

    @abstractmethod
    async def left(self) -> Mapping[str, int]:
        """How many rows there are of what."""


class PostgresTables(Tables):
    """Tables on PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def limit_statements(self, timeout: str) -> None:
        """Set `statement_timeout` for whoever connects from now on."""
        connection = await asyncpg.connect(self._url)
        try:
            name = sql.Identifier(await connection.fetchval("SELECT current_database()")).as_string()
            await connection.execute(f"ALTER DATABASE {name} SET statement_timeout = {sql.Literal(timeout).as_string()}")
        finally:
            await connection.close()

    async def fill_beside(self) -> None:
        words = {"schema": "aioqueue.", "list": "{}", "body": "'x'::bytea", "later": "now() + interval '1 year'"}
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("SET synchronous_commit = off; SET statement_timeout = 0")
            await connection.execute(_BESIDE.format(**words))
            await connection.execute("VACUUM (ANALYZE)")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()

    async def sizes(self) -> Mapping[str, int]:
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch(
                "SELECT name, pg_total_relation_size('aioqueue.' || name) / 1048576 FROM unnest($1::text[]) AS given(name)",
                ["archive", "job", "phase", "progress", "job_log", "delivery"],
            )
        finally:
            await connection.close()
        return dict(rows)

    async def left(self) -> Mapping[str, int]:
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("SET statement_timeout = 0")
            counts = {
                name: await connection.fetchval(f"SELECT count(*) FROM aioqueue.{what.format(schema='aioqueue.')}")
                for name, what in _LEFT.items()
            }
        finally:
            await connection.close()
        return counts


class SqliteTables(Tables):
    """Tables in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def fill_beside(self) -> None:
        words = {"schema": "", "list": "[]", "body": "x'78'", "later": "finished_at + 1000000000000000"}
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.executescript(_BESIDE.format(**words))
            connection.execute("PRAGMA wal_checkpoint(truncate)")

    async def sizes(self) -> Mapping[str, int]:
        with closing(sqlite3.connect(self._path)) as connection:
            page, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "freelist_count"))
        files = {"the file": self._path, "the write-ahead log": self._path.with_name(f"{self._path.name}-wal")}
        sizes = {name: path.stat().st_size // 2**20 if path.exists() else 0 for name, path in files.items()}
        return {**sizes, "free pages in the file": page * free // 2**20}

    async def left(self) -> Mapping[str, int]:
        with closing(sqlite3.connect(self._path)) as connection:
            return {
                name: connection.execute(f"SELECT count(*) FROM {what.format(schema='')}").fetchone()[0]
                for name, what in _LEFT.items()
            }
