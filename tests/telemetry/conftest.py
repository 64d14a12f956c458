"""A client on a SQLite file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Client
from tests.worker.faults import Faults
from tests.worker.stubborn import Stubborn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url, poll_interval=0.2) as client:
        yield client


@pytest.fixture
def faults(client: Client, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(client, monkeypatch)


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    made = Stubborn()
    yield made
    made.release.set()
