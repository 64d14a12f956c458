"""What tests of completing transactions share: a client on each store, and a table of the user's."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from aioqueue import Client, Worker
from aioqueue.telemetry._counters import LEDGER
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    import pytest

    from aioqueue import Call, JobHandle, Registry

__all__ = ["Notes", "made_client", "outcomes", "run"]


def made_client(request: pytest.FixtureRequest) -> Client:
    """A client on a fresh store of the fixture's parameter, which runs the user's statements too."""
    if request.param == "memory":
        connection = sqlite3.connect(":memory:", isolation_level=None)
        request.addfinalizer(connection.close)
        return Client(MemoryStore(sql=connection))
    return Client(request.getfixturevalue("url" if request.param == "sqlite" else "postgres_url"), poll_interval=0.2)


class Notes:
    """A table of the user's."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def make(self) -> None:
        async with self._client.transaction() as tx:
            await tx.execute("create table note (text text)")

    async def write(self, tx: Any, text: str) -> None:
        assert await tx.execute(f"insert into note values ('{text}')") == 1

    async def all(self) -> list[str]:
        async with self._client.transaction() as tx:
            return sorted(row[0] for row in await tx.fetch("select text from note"))


async def run(client: Client, registry: Registry, call: Call[Any], **settings: Any) -> JobHandle[Any]:
    """Enqueue a call, and run what is due."""
    handle = await client.enqueue(call)
    await Worker(client, registry, **settings).run_once()
    return handle


def outcomes(name: str) -> dict[str, int]:
    """How the attempts of a job type have ended in this process, and how often."""
    return {outcome.value: count for outcome, count in LEDGER.total().of(name).outcomes.items() if count}
