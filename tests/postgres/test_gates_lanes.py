"""Claims at gates of many types: none of them keeps the others from being looked at."""

from __future__ import annotations

import pytest

from aioqueue.postgres import _claim, _gates_claim
from aioqueue.vocabulary._gates import By, GateRules
from tests.postgres.stores import connected, job, opened

pytestmark = pytest.mark.anyio

TYPES = 50


async def test_of_each_type_somebody_is_looked_at(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for as many gates as there are types, and older jobs of all but the last one, at gates of their own."""
    names = [f"type{number:02}" for number in range(TYPES)]
    rules = {name: GateRules(type=name, limit=True, limit_by=By("key")) for name in names}
    monkeypatch.setattr(_gates_claim, "MOST_GATES", TYPES)
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute(
            "INSERT INTO aioqueue.gate_limit (name, places) SELECT 'job:' || name, 1 FROM unnest($1::text[]) AS name", names
        )
        lease = await store.open_lease("w", 600)
        for name in names:
            await store.insert([job(name, payload=b'{"key":%d}' % number) for number in range(3)])
        taken = await store.claim(lease, names, 2 * TYPES, gates=rules)
        assert {each.type for each in taken} == set(names)


async def test_a_full_limit_of_all_of_a_type_is_gone_through_no_further(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places are free again once their settlement has committed: who was held by then has to be let come again."""
    monkeypatch.setattr(_claim, "_PARKING_SECONDS_LATER", 10.0)
    monkeypatch.setattr(_claim, "_PARKING_SECONDS", 10.0)
    rules = {"a": GateRules(type="a", limit=True)}
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 5)")
        lease = await store.open_lease("w", 600)
        await store.insert([job("a") for _ in range(600)])

        async def claimed(most: int) -> tuple[int, int]:
            taken = await store.claim(lease, ["a"], most, gates=rules)
            return len(taken), await other.fetchval("SELECT count(*) FROM aioqueue.job WHERE state = 0")

        assert await claimed(10) == (5, 5)
        assert await claimed(10) == (0, 15)
        assert await claimed(10) == (0, 595), "nothing has become free since: the rest is out of the way of later claims"


async def test_a_full_limit_of_one_value_keeps_nobody_else(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_claim, "_PARKING_SECONDS_LATER", 10.0)
    rules = {"a": GateRules(type="a", limit=True, limit_by=By("key"))}
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 1)")
        lease = await store.open_lease("w", 600)
        await store.insert([*(job("a", payload=b'{"key":1}') for _ in range(30)), job("a", payload=b'{"key":2}')])
        assert len(await store.claim(lease, ["a"], 2, gates=rules)) == 2


async def test_what_has_no_value_keeps_nobody_who_has_one(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All without one wait at one gate, which has no value in its name; it's no gate of those that have one."""
    monkeypatch.setattr(_claim, "_PARKING_SECONDS_LATER", 10.0)
    rules = {"a": GateRules(type="a", limit=True, limit_by=By("key"))}
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 1)")
        lease = await store.open_lease("w", 600)
        await store.insert([*(job("a") for _ in range(30)), job("a", payload=b'{"key":2}')])
        assert len(await store.claim(lease, ["a"], 2, gates=rules)) == 2
