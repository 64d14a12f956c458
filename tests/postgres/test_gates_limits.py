"""Limits that change on PostgreSQL while claims look at them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.postgres import _gates_claim
from aioqueue.vocabulary._gates import By, GateRules, LimitKind, NewLimit
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    import asyncpg

pytestmark = pytest.mark.anyio

RULES = {"a": GateRules(type="a", limit=True, limit_by=By("by"))}
WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def limit(places: int) -> NewLimit:
    return NewLimit(name="job:a", kind=LimitKind.PLACES, places=places)


async def waits_for_a_lock(connection: asyncpg.Connection[Any]) -> None:
    while not await connection.fetchval(WAITS):
        await asyncio.sleep(0)


async def test_one_that_is_raised_while_a_claim_holds_jobs_there(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim has looked at it, and hasn't held the job yet: who raises it sees that the job is held."""
    looked, go_on = asyncio.Event(), asyncio.Event()
    park = _gates_claim.park

    async def slowly(*arguments: Any) -> None:
        looked.set()
        await go_on.wait()
        await park(*arguments)

    monkeypatch.setattr(_gates_claim, "park", slowly)
    async with opened(postgres_url) as store, opened(postgres_url) as other, connected(postgres_url) as connection:
        await store.put_limits([limit(0)])
        await store.insert([job(payload=b'{"by": 1}')])
        lease_id = await store.open_lease("w", 600)
        claim = asyncio.create_task(store.claim(lease_id, ["a"], 1, gates=RULES))
        await looked.wait()
        # The claim ends once the change waits, or the change ends without any wait.
        change = asyncio.create_task(other.put_limits([limit(1)]))
        waits = asyncio.create_task(waits_for_a_lock(connection))
        await asyncio.wait({change, waits}, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        go_on.set()
        await change
        taken = await claim or await store.claim(lease_id, ["a"], 1, gates=RULES)
        assert len(taken) == 1
