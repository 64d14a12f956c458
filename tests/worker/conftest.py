"""A client on a SQLite file of its own, and events that handlers and tests wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url, poll_interval=0.2) as client:
        yield client
