"""The stores that the cases run on, parametrised once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harnesses import PostgresHarness, SQLiteHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioqueue.testing import Harness


@pytest.fixture(params=["sqlite", "postgresql", "postgresql15"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def harness(
    anyio_backend: str, store_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Harness]:
    made: SQLiteHarness | PostgresHarness
    if store_kind == "sqlite":
        made = SQLiteHarness(tmp_path / "jobs.db")
    else:
        made = PostgresHarness(request.getfixturevalue("postgres_url" if store_kind == "postgresql" else "postgres15_url"))
    await made.open()
    try:
        yield made
    finally:
        await made.close()
