"""Rates on PostgreSQL when the server's clock was set back, as after a failover to a machine whose clock is behind."""

from __future__ import annotations

import pytest

from aioqueue.vocabulary._gates import GateRules, LimitKind, NewLimit
from tests.postgres.stores import connected, job, opened

pytestmark = pytest.mark.anyio

RULES = {"a": GateRules(type="a", rate=True)}
WAITS = "SELECT extract(epoch FROM wake_at - clock_timestamp())::float8 FROM aioqueue.gate_rate"


async def test_starts_that_seem_to_be_in_the_future_keep_nobody_for_longer_than_one_does(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.put_limits([NewLimit(name="rate:a", kind=LimitKind.STARTS, places=1, per=60.0, burst=1)])
        lease_id = await store.open_lease("w", 600)
        await store.insert([job()])
        assert len(await store.claim(lease_id, ["a"], 1, gates=RULES)) == 1
        await connection.execute("UPDATE aioqueue.gate_rate SET arrival = arrival + interval '1 day'")
        await store.insert([job()])
        assert await store.claim(lease_id, ["a"], 1, gates=RULES) == []
        assert 0 < await connection.fetchval(WAITS) <= 60
