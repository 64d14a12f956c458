"""The tests' databases on PostgreSQL: one each, copied from one that has been migrated, and the fixtures that give them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.postgres_server import DEBIAN_15, Server, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Databases:
    """Databases for the tests on one server.

    Arguments:
        url: The server's address, as a user who may create databases.
        name: Tells apart what several test processes make on one server.
    """

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self._prefix = f"aioqueue_{name}_{os.getpid()}"
        self._numbers = itertools.count(1)
        self._template: str | None = None

    def address(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def template(self) -> str:
        """The database that has been migrated, made at the first use."""
        if self._template is None:
            name = f"{self._prefix}_template"
            self._create(name, "template0")
            migrate(self.address(name))
            self._left_over(name)  # a database that somebody is connected to can't be copied
            self._template = name
        return self._template

    @contextlib.contextmanager
    def fresh(self, *, migrated: bool = True) -> Iterator[str]:
        """A database, dropped at the end: by then everything must have left it.

        Raises:
            AssertionError: Somebody is still connected to it.
        """
        source = self.template() if migrated else "template0"
        name = f"{self._prefix}_{next(self._numbers)}"
        self._create(name, source)
        try:
            yield self.address(name)
        finally:
            left = self._left_over(name)
            self.drop(name)
        assert not left, f"connections were left over: {left}"

    def _create(self, name: str, source: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            statement = sql.SQL("create database {} template {} encoding 'UTF8'")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(source)))

    def emptied(self, url: str) -> list[tuple[object, ...]]:
        """Empty aioqueue's tables, and drop what a test has made beside them, once everything has left the database.

        Returns:
            Who is still connected to it: then it isn't emptied.
        """
        left = self._left_over(urlsplit(url).path.removeprefix("/"))
        if not left:
            with psycopg.connect(url, autocommit=True) as connection:
                tables = connection.execute(
                    "select schemaname, tablename from pg_tables "
                    "where schemaname not in ('pg_catalog', 'information_schema') and tablename <> 'migration'"
                ).fetchall()
                for schema, table in tables:
                    how = sql.SQL("delete from {}" if schema == "aioqueue" else "drop table {}")
                    connection.execute(how.format(sql.Identifier(schema, table)))
        return left

    def drop(self, name: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _left_over(self, name: str, *, within: float = 15.0) -> list[tuple[object, ...]]:
        """Who is connected to the database. A backend needs a moment to notice that its client has gone."""
        deadline = time.monotonic() + within
        query = "select pid, application_name, state, query from pg_stat_activity where datname = %s"
        with psycopg.connect(self.url, autocommit=True) as connection:
            while (rows := connection.execute(query, [name]).fetchall()) and time.monotonic() < deadline:
                time.sleep(0.02)
        return rows

    def close(self) -> None:
        """Drop the template, and see that nothing of the tests is left on the server.

        Raises:
            AssertionError: A connection, lock or open transaction is.
        """
        if self._template is not None:
            self.drop(self._template)
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute(
                "select pid, datname, application_name, state, query from pg_stat_activity "
                "where datname like %s and pid <> pg_backend_pid()",
                [f"{self._prefix}%"],
            ).fetchall()
            prepared = connection.execute(
                "select gid, database from pg_prepared_xacts where database like %s", [f"{self._prefix}%"]
            ).fetchall()
        assert not rows, f"connections were left over: {rows}"
        assert not prepared, f"prepared transactions were left over: {prepared}"


class Emptied:
    """One database for all cases of a module, emptied between them: a database of its own for each takes most of the time.

    Arguments:
        databases: The server's.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._stack = contextlib.ExitStack()
        self._url: str | None = None

    @contextlib.contextmanager
    def url(self) -> Iterator[str]:
        """An empty database with aioqueue's schema, which everything has left at the end."""
        if self._url is None:
            self._url = self._stack.enter_context(self._databases.fresh())
        yield self._url
        left = self._databases.emptied(self._url)
        if left:
            self.close()
        assert not left, f"connections were left over: {left}"

    def close(self) -> None:
        """Drop the database."""
        self._url = None
        self._stack.close()


def migrate(url: str) -> None:
    """Bring a database up to date, in a thread of its own: the caller's may belong to an event loop."""
    from aioqueue.postgres import make_store  # lazy: most tests need no store

    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(make_store(url).migrate())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


# -- fixtures ---------------------------------------------------------------------------------------------------------


def _worker_name() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    """Databases on PostgreSQL 18, or on the server that `AIOQUEUE_TEST_POSTGRES` names."""
    other = os.environ.get("AIOQUEUE_TEST_POSTGRES")
    if other:
        databases = Databases(other, _worker_name())
        yield databases
        databases.close()
        return
    try:
        server = Server()
    except ServerUnavailable as error:
        pytest.fail(f"no PostgreSQL: {error}; AIOQUEUE_TEST_POSTGRES may name a server")
    try:
        databases = Databases(server.url(), _worker_name())
        yield databases
        databases.close()
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres15_databases() -> Iterator[Databases]:
    """Databases on Debian's PostgreSQL 15; skipped where it isn't installed."""
    if not (DEBIAN_15 / "postgres").exists():
        pytest.skip("Debian's postgresql-15 isn't installed")
    server = Server(DEBIAN_15)
    try:
        databases = Databases(server.url(), _worker_name())
        yield databases
        databases.close()
    finally:
        server.close()


@pytest.fixture
def postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """A database of the test's own with aioqueue's schema."""
    with postgres_databases.fresh() as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    with postgres_databases.fresh(migrated=False) as url:
        yield url


@pytest.fixture
def postgres15_url(postgres15_databases: Databases) -> Iterator[str]:
    """As `postgres_url`, on Debian's PostgreSQL 15."""
    with postgres15_databases.fresh() as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    """A whole server of the test's own, to stop, restart and reconfigure."""
    try:
        server = Server()
    except ServerUnavailable as error:
        pytest.skip(f"no PostgreSQL of our own: {error}")
    try:
        yield server
    finally:
        server.close()
