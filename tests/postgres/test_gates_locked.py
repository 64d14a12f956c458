"""A gate that somebody has locked and keeps, such as a process that is frozen in the middle of a claim: only that waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._gates import GateRules, LimitKind, NewLimit, SequenceMember
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres.test_blockers_races import failed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import asyncpg

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

RULES = {name: GateRules(type=name, shared=f"shared-{name}") for name in ("a", "b")}
TYPES = list(RULES)
LIMITS = "INSERT INTO aioqueue.gate_limit (name, places) VALUES ('shared-a', 1), ('shared-b', 1)"
LOCK = f"SELECT pg_advisory_xact_lock(hashtextextended('shared-a', {Schema().gates_lock}))"
TRIES = "SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def held(store: PostgresStore, connection: asyncpg.Connection[Any], types: Iterable[str] = TYPES) -> int:
    """One job of each type runs, and one is held. Returns the lease."""
    await connection.execute(LIMITS)
    lease = await store.open_lease("w", 600)
    await store.insert([job(name) for name in types for _ in range(2)])
    running = await store.claim(lease, TYPES, 10, gates=RULES)
    assert sorted(each.type for each in running) == TYPES
    await store.settle([completed(each) for each in running])
    return lease


async def test_upkeep_lets_come_at_other_gates(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as frozen:
        await held(store, other)
        await other.execute("DELETE FROM aioqueue.gate_mark")
        async with frozen.transaction():
            await frozen.execute(LOCK)
            tended = await store.tend(100)
            assert tended.resumed == 1
        assert await other.fetchval("SELECT type FROM aioqueue.job WHERE state = 1") == "b"


async def test_claims_let_come_and_take_at_other_gates(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as frozen:
        lease = await held(store, other)
        async with frozen.transaction():
            await frozen.execute(LOCK)
            taken = [each.type for _ in range(3) for each in await store.claim(lease, TYPES, 10, gates=RULES)]
            assert taken == ["b"]
        taken = [each.type for _ in range(3) for each in await store.claim(lease, TYPES, 10, gates=RULES)]
        assert taken == ["a"]


async def test_new_jobs_go_through_other_gates(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as frozen:
        await other.execute(LIMITS)
        lease = await store.open_lease("w", 600)
        await store.insert([job(name) for name in TYPES])
        async with frozen.transaction():
            await frozen.execute(LOCK)
            taken = [each.type for _ in range(3) for each in await store.claim(lease, TYPES, 10, gates=RULES)]
            assert taken == ["b"]


async def test_whoever_changes_a_limit_waits_longer_than_a_lock_is_waited_for(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as frozen:
        async with frozen.transaction():
            await frozen.execute(LOCK)
            change = asyncio.create_task(store.put_limits([NewLimit(name="shared-a", kind=LimitKind.PLACES, places=7)]))
            tries: set[object] = set()
            while len(tries) < 2 and not change.done():
                tries |= {row[0] for row in await other.fetch(TRIES)}
        await change
        assert await other.fetchval("SELECT places FROM aioqueue.gate_limit") == 7


async def test_a_job_that_somebody_keeps_locked_keeps_no_members_behind_it(postgres_url: str) -> None:
    """Of a type without rules, by claims that have room for one."""
    async with opened(postgres_url) as store, connected(postgres_url) as frozen:
        lease = await store.open_lease("w", 600)
        await store.insert([plain := job("a")])
        await store.insert([job("a", sequence=SequenceMember(name=f"s{number}")) for number in range(3)])
        async with frozen.transaction():
            await frozen.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", plain.id)
            for _ in range(3):
                assert len(await store.claim(lease, ["a"], 1, gates={})) == 1


async def test_a_mark_that_is_committed_late_is_seen_by_the_claim_after_a_look(postgres_url: str) -> None:
    """Its transaction began before others that are long over. Whoever waits looks at all marks, not a second later."""
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as late:
        await other.execute(LIMITS)
        lease = await store.open_lease("w", 600)
        await store.insert([job(name) for name in TYPES for _ in range(2)])
        running = {each.type: each for each in await store.claim(lease, TYPES, 10, gates=RULES)}
        async with late.transaction():
            await late.execute("DELETE FROM aioqueue.job WHERE id = $1", running["a"].id)
            await store.settle([completed(running["b"])])
            assert [each.type for each in await store.claim(lease, TYPES, 10, gates=RULES)] == ["b"]
        taken = [*await store.claim(lease, TYPES, 10, gates=RULES)]
        assert (await store.next_due(TYPES, own=[lease], gates=RULES)).job == 0 or taken
        taken += await store.claim(lease, TYPES, 10, gates=RULES)
        assert [each.type for each in taken] == ["a"]


async def test_members_are_locked_in_one_order_whatever_the_order_in_the_archive(postgres_url: str) -> None:
    """Whoever removes failed members, and whoever lets their sequences go on, lock them in the order of their chains."""
    async with opened(postgres_url) as store, connected(postgres_url) as other, connected(postgres_url) as pruning:
        lease = await store.open_lease("w", 600)
        members = [job(sequence=SequenceMember(name=name, block=True)) for name in ("s", "t")]
        await store.insert(members)
        running = {each.id: each for each in await store.claim(lease, ["a"], 10, gates={})}
        for each in reversed(members):  # the archive has the later chain first
            await store.settle([failed(running[each.id])])
        async with other.transaction():
            lock = "SELECT FROM aioqueue.gate_member WHERE chain_id = $1 FOR UPDATE NOWAIT"
            await other.execute(lock, members[0].id)
            removal = asyncio.create_task(pruning.execute("DELETE FROM aioqueue.archive"))
            while not removal.done() and not await other.fetch(TRIES):
                pass
            await other.execute(lock, members[1].id)
        await removal
        assert await other.fetchval("SELECT count(*) FROM aioqueue.gate_member") == 0
