"""The tests' databases on PostgreSQL, copied from one that has been migrated, and the fixtures that give them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.postgres_reuse import Template
from tests.postgres_server import DEBIAN_15, Server, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres_reuse import State


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
        self._patience = 15.0
        self._template: Template | None = None
        self._free: list[tuple[str, State]] = []
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def address(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def template(self) -> Template:
        """The database that has been migrated, made at the first use."""
        if self._template is None:
            name = f"{self._prefix}_template"
            self._create(name, "template0")
            migrate(self.address(name))
            self._left_over(name)  # a database that somebody is connected to can't be copied
            self._template = Template(name, self.address(name))
            self._left_over(name)
        return self._template

    @contextlib.contextmanager
    def fresh(self, *, migrated: bool = True) -> Iterator[str]:
        """A database that nobody has used, dropped at the end: by then everything must have left it.

        Raises:
            AssertionError: Somebody is still connected to it.
        """
        name = self._copy(self.template().name if migrated else "template0")
        try:
            yield self.address(name)
        finally:
            left = self._left_over(name)
            self.drop(name)
        assert not left, f"connections were left over: {left}"

    @contextlib.contextmanager
    def reused(self) -> Iterator[str]:
        """A migrated database with nothing in it, which others may have used: by the end everything must have left it.

        It's used again if nothing but rows has changed, and dropped otherwise.

        Raises:
            AssertionError: Somebody is still connected to it.
        """
        template = self.template()
        name, state = self._free.pop() if self._free else (self._copy(template.name), template.state)
        try:
            yield self.address(name)
        finally:
            left = self._left_over(name)
            emptied = None if left else template.emptied(self.address(name), state)
            if emptied is None:
                self.drop(name)
            else:
                self._free.append((name, emptied))
        assert not left, f"connections were left over: {left}"

    def _copy(self, source: str) -> str:
        name = f"{self._prefix}_{next(self._numbers)}"
        self._create(name, source)
        return name

    def _create(self, name: str, source: str) -> None:
        # Copying the files takes a quarter of the time that copying through the log does, as nothing waits for the disk.
        statement = sql.SQL("create database {} template {} encoding 'UTF8' strategy file_copy")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(source)))

    def drop(self, name: str) -> None:
        self._execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.SQL | sql.Composed, *arguments: object) -> list[tuple[Any, ...]]:
        """Run a statement on the connection that's kept for it, and opened again if it has been lost."""
        while True:
            kept = self._connection is not None and not self._connection.closed
            if self._connection is None or not kept:
                self._connection = psycopg.connect(self.url, autocommit=True, application_name="tests")
            try:
                cursor = self._connection.execute(statement, arguments)
            except psycopg.OperationalError:
                if not kept or not self._connection.closed:
                    raise
            else:
                return cursor.fetchall() if cursor.description else []

    def _left_over(self, name: str) -> list[tuple[object, ...]]:
        """Who is connected to the database. A backend needs a moment to notice that its client has gone."""
        deadline = time.monotonic() + self._patience
        query = sql.SQL("select pid, application_name, state, query from pg_stat_activity where datname = %s")
        pause = 0.001
        while (rows := self._execute(query, name)) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return rows

    def close(self) -> None:
        """Drop the template, and see that nothing of the tests is left on the server.

        Raises:
            AssertionError: A connection, lock or open transaction is.
        """
        for name in [*(name for name, _ in self._free), *([self._template.name] if self._template else [])]:
            self.drop(name)
        rows = self._execute(
            sql.SQL(
                "select pid, datname, application_name, state, query from pg_stat_activity "
                "where datname like %s and pid <> pg_backend_pid()"
            ),
            f"{self._prefix}%",
        )
        prepared = self._execute(
            sql.SQL("select gid, database from pg_prepared_xacts where database like %s"), f"{self._prefix}%"
        )
        if self._connection is not None:
            self._connection.close()
        assert not rows, f"connections were left over: {rows}"
        assert not prepared, f"prepared transactions were left over: {prepared}"


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
    """A database of the test's own with aioqueue's schema and nothing in it. It may have been another test's before."""
    with postgres_databases.reused() as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    with postgres_databases.fresh(migrated=False) as url:
        yield url


@pytest.fixture
def postgres15_url(postgres15_databases: Databases) -> Iterator[str]:
    """As `postgres_url`, on Debian's PostgreSQL 15."""
    with postgres15_databases.reused() as url:
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
