"""The stores that the cases run on, parametrised once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.harnesses import PostgresHarness, SQLiteHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioqueue.testing import Harness

H = TypeVar("H", SQLiteHarness, PostgresHarness)


@pytest.fixture(params=["sqlite", "postgresql", "postgresql15"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def harness(
    anyio_backend: str,
    store_kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Harness]:
    if store_kind == "sqlite":
        async with opened(SQLiteHarness(tmp_path / "jobs.db")) as harness:
            yield harness
        return
    url = request.getfixturevalue("postgres_url" if store_kind == "postgresql" else "postgres15_url")
    async with opened(PostgresHarness(url)) as harness:
        yield harness


@asynccontextmanager
async def opened(harness: H) -> AsyncIterator[H]:
    await harness.open()
    try:
        yield harness
    finally:
        await harness.close()
