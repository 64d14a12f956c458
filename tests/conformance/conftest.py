"""The stores that the cases run on, parametrised once."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.harnesses import PostgresHarness, SQLiteHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aioqueue.testing import Harness
    from tests.postgres_databases import Databases

H = TypeVar("H", SQLiteHarness, PostgresHarness)


@pytest.fixture(params=["sqlite", "postgresql", "postgresql15"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Emptied:
    """One database for all cases of a module, emptied between them: a database of its own for each takes most of the time.

    Arguments:
        databases: The server's.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._stack = ExitStack()
        self._url: str | None = None

    @contextmanager
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


@pytest.fixture(scope="module")
def emptied(request: pytest.FixtureRequest) -> Iterator[dict[str, Emptied]]:
    """The module's databases, by the name of their server's fixture."""
    made: dict[str, Emptied] = {}
    yield made
    for each in made.values():
        each.close()


@pytest.fixture
async def harness(
    anyio_backend: str,
    store_kind: str,
    tmp_path: Path,
    emptied: dict[str, Emptied],
    request: pytest.FixtureRequest,
) -> AsyncIterator[Harness]:
    if store_kind == "sqlite":
        async with opened(SQLiteHarness(tmp_path / "jobs.db")) as harness:
            yield harness
        return
    databases = "postgres_databases" if store_kind == "postgresql" else "postgres15_databases"
    if databases not in emptied:
        emptied[databases] = Emptied(request.getfixturevalue(databases))
    with emptied[databases].url() as url:
        async with opened(PostgresHarness(url)) as harness:
            yield harness


@asynccontextmanager
async def opened(harness: H) -> AsyncIterator[H]:
    await harness.open()
    try:
        yield harness
    finally:
        await harness.close()
