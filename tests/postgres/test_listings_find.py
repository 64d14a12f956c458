"""Finding a job by its key, whatever has become of its chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(anyio_backend: str, postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        yield store


async def work(store: PostgresStore, job_type: str, *, next_type: str | None = None, limit: int = 1) -> list[UUID]:
    """Complete due jobs of a type, or continue their chains; returns the ids of the next steps."""
    lease_id = await store.open_lease("w", 600)
    claims = await store.claim(lease_id, [job_type], limit)
    settlements: list[Settlement] = []
    for claim in claims:
        values: dict[str, Any] = {"kind": SettlementKind.COMPLETED, "output": b"1"}
        if next_type is not None:
            values = {"kind": SettlementKind.CONTINUED, "next": NewJob(id=new_id(), type=next_type)}
        settlements.append(Settlement(id=claim.id, claims=claim.claims, lease_id=lease_id, **values))
    results = await store.settle(settlements)
    assert all(result.lost is None for result in results)
    return [each.next.id for each in settlements if each.next is not None]


async def found(store: PostgresStore, types: list[str], key: str = "k") -> UUID | None:
    job = await store.find(types, key)
    return None if job is None else job.id


async def test_the_holder_of_the_key_comes_first(store: PostgresStore) -> None:
    held, label = job(key="k", unique=Unique()), job(key="k")
    await store.insert([held])
    await store.insert([label])
    assert await found(store, ["a"]) == held.id
    assert await found(store, ["b", "a"]) == held.id
    assert await found(store, ["b"]) is None
    assert await found(store, ["a"], "l") is None
    assert await found(store, []) is None


async def test_a_chain_keeps_its_key(store: PostgresStore) -> None:
    first = job(key="k", unique=Unique())
    await store.insert([first])
    (second,) = await work(store, "a", next_type="b")
    newer = job("b", key="k")
    await store.insert([newer])
    assert await found(store, ["a"]) == second
    assert await found(store, ["b"]) == newer.id
    await work(store, "b", limit=2)
    assert await found(store, ["a"]) == second
    assert await found(store, ["b"]) == newer.id


async def test_the_newest_unfinished_one_and_then_the_newest_finished_one(store: PostgresStore) -> None:
    chain, single = job(key="k"), job(key="k")
    await store.insert([chain])
    (second,) = await work(store, "a", next_type="b")
    await store.insert([single])
    assert await found(store, ["a"]) == single.id
    await work(store, "a")
    assert await found(store, ["a"]) == second
    newest, other = job(key="k"), job("other", key="k")
    await store.insert([newest, other])
    (last,) = await work(store, "a", next_type="b")
    assert await found(store, ["a"]) == last
    await work(store, "b", limit=2)
    assert await found(store, ["a"]) == last
    assert await found(store, ["other"]) == other.id


@pytest.mark.parametrize("live", [True, False])
async def test_without_its_first_step_a_chain_is_found_by_the_one_that_is_left(
    store: PostgresStore, postgres_url: str, *, live: bool
) -> None:
    older = job("b", key="k")
    await store.insert([older])
    await work(store, "b")
    first = job(key="k")
    await store.insert([first])
    (second,) = await work(store, "a", next_type="b")
    if not live:
        await work(store, "b")
    async with connected(postgres_url) as connection:
        await connection.execute("DELETE FROM aioqueue.archive WHERE id = $1", first.id)
    assert await found(store, ["a"]) is None
    assert await found(store, ["b"]) == second
