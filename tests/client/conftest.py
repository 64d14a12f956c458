from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.client import Client
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url) as client:
        yield client


@pytest.fixture
async def fake() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def fake_client(fake: FakeStore) -> AsyncIterator[Client]:
    async with Client(fake, poll_interval=600) as client:
        yield client


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def each_client(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Client]:
    """A client of each store, with a fresh database."""
    source: object = url if request.param == "sqlite" else FakeStore()
    if request.param == "postgres":
        source = request.getfixturevalue("postgres_url")
    client = Client(source)
    if request.param != "memory":
        await client.migrate()
    async with client:
        yield client
