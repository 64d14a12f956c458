"""The stores that the cases run on, parametrised once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.postgres_databases import Emptied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aioqueue.testing import Harness

H = TypeVar("H", SQLiteHarness, PostgresHarness)


@pytest.fixture(params=["sqlite", "postgresql", "postgresql15"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
