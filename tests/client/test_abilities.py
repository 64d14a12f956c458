"""What only some stores can do: the client does it, or says which ability is missing. And `Client.migrate`."""

from __future__ import annotations

import asyncio

import pytest

from aioqueue import Client, ClientClosed, NotSupported, StoreIncompatible
from tests.client.fake_store import FakeStore
from tests.client.jobs import add

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, url: str) -> str:
    """A database of each kind that nobody has migrated."""
    return url if request.param == "sqlite" else str(request.getfixturevalue("empty_postgres_url"))


async def test_migrating_before_the_client_is_opened(empty_url: str) -> None:
    client = Client(empty_url)
    names = list(await client.migrate())
    assert names[0].startswith("0001_")
    assert names == sorted(set(names))
    assert list(await client.migrate()) == []
    with pytest.raises(ClientClosed):
        await client.stats()
    async with client:
        await client.enqueue(add(1, 2))
        assert list(await client.migrate()) == []
        assert list(await asyncio.to_thread(lambda: asyncio.run(again(client)))) == []
    assert list(await client.migrate()) == []


async def again(client: Client) -> list[str]:
    return list(await client.migrate())


async def test_several_processes_migrate_at_once(empty_url: str) -> None:
    ran = await asyncio.gather(*[Client(empty_url).migrate() for _ in range(3)])
    assert sum(map(len, ran)) == len({name for names in ran for name in names}) > 0


async def test_postgres_says_what_to_do_without(empty_postgres_url: str) -> None:
    client = Client(empty_postgres_url)
    with pytest.raises(StoreIncompatible, match="aioqueue migrate"):
        await client.open()
    await client.migrate()
    async with client:
        await client.stats()


async def test_a_store_without_migrations_says_so() -> None:
    with pytest.raises(NotSupported, match="migrations") as caught:
        await Client(FakeStore()).migrate()
    assert caught.value.ability == "migrate"


async def test_a_store_without_statements_says_so(url: str) -> None:
    call = add(1, 2)
    with pytest.raises(NotSupported, match="tx=") as caught:
        Client(url).statement(call)
    assert caught.value.ability == "statement"
    async with Client(url) as client:
        await client.enqueue(call)  # it hasn't been enqueued by that
