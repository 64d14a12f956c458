"""A server whose table of locks is full, as `max_locks_per_transaction` is low: fewer gates are locked at once, all come."""

from __future__ import annotations

import pytest

from aioqueue.errors import StoreContended
from aioqueue.postgres import _gates_lock
from aioqueue.vocabulary._gates import By, GateRules, LimitKind, NewLimit
from tests.postgres.stores import completed, connected, job, opened

pytestmark = pytest.mark.anyio

RULES = {"a": GateRules(type="a", limit=True, limit_by=By("tenant"))}
# As the server says it. To fill its table would be felt by all other tests.
LITTLE_ROOM = """CREATE FUNCTION public.needs_room(gates text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(gates) > 3 THEN RAISE EXCEPTION 'out of shared memory' USING ERRCODE = 'out_of_memory'; END IF;
END $$;
ALTER FUNCTION aioqueue.lock_gates RENAME TO lock_these;
CREATE FUNCTION aioqueue.lock_gates(gates text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM public.needs_room(gates), aioqueue.lock_these(gates); END $$;
ALTER FUNCTION aioqueue.lock_unlocked_gates RENAME TO lock_these_unlocked;
CREATE FUNCTION aioqueue.lock_unlocked_gates(gates text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN PERFORM public.needs_room(gates); RETURN aioqueue.lock_these_unlocked(gates); END $$;"""


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gates_lock, "_full", _gates_lock._FullTable())


async def test_all_come_a_few_at_a_time(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """By claims, by marks, and by upkeep, over the same connection; it's told once which setting makes room."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute(LITTLE_ROOM)
        await store.put_limits([NewLimit(name="job:a", kind=LimitKind.PLACES, places=1)])
        lease = await store.open_lease("w", 600)
        await store.insert([job(payload=b'{"tenant": %d}' % (number % 10)) for number in range(30)])
        for after in ("a mark", "upkeep", "nobody"):
            running = [each for _ in range(20) for each in await store.claim(lease, ["a"], 20, gates=RULES)]
            assert len(running) == 10, f"those that run before {after}"
            await store.settle([completed(each) for each in running])
            if after == "upkeep":
                await other.execute("DELETE FROM aioqueue.gate_mark")
                assert sum([(await store.tend(100)).resumed for _ in range(10)]) >= 10
        assert await other.fetchval("SELECT count(*) FROM aioqueue.job") == 0
        (told,) = [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
        assert told == (
            "10 gates can't be locked at once: out of shared memory; a higher max_locks_per_transaction makes room for them; "
            "fewer are locked at once meanwhile"
        )


async def test_whoever_needs_all_of_them_is_told_of_the_setting(postgres_url: str) -> None:
    limits = [NewLimit(name=f"shared{number}", kind=LimitKind.PLACES, places=1) for number in range(5)]
    async with opened(postgres_url, timeout=0.5) as store, connected(postgres_url) as other:
        await other.execute(LITTLE_ROOM)
        with pytest.raises(StoreContended, match="max_locks_per_transaction"):
            await store.put_limits(limits)
        await store.put_limits(limits[:3])
