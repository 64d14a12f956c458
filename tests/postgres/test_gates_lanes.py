"""Claims at gates of many types: none of them keeps the others from being looked at."""

from __future__ import annotations

import pytest

from aioqueue.postgres import _gates_claim
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
