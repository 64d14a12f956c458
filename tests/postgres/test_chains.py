"""Chains on PostgreSQL, beyond the conformance cases: who wants a chain's key meanwhile, marks, notes, unclear inserts."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import Changed
from aioqueue.errors import StoreContended
from aioqueue.postgres import _operate, _operate_delete
from aioqueue.postgres._insert_rows import insert_on, insert_statements
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._job import Inserted, NewJob, Settlement, SettlementKind, StoredState
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

STATEMENTS = insert_statements(Schema())


def continued(claim: ClaimedJob, following: NewJob | None = None) -> Settlement:
    return Settlement(
        id=claim.id,
        claims=claim.claims,
        lease_id=claim.lease_id,
        kind=SettlementKind.CONTINUED,
        next=job() if following is None else following,
    )


async def chain_of(store: PostgresStore, steps: int, *, first: NewJob | None = None, end: bool = False) -> list[UUID]:
    """A chain of so many steps, the last of them pending, or completed; gives their ids."""
    lease_id = await store.open_lease("w", 600)
    following = job() if first is None else first
    await store.insert([following])
    ids = [following.id]
    while True:
        if len(ids) == steps and not end:
            return ids
        (claim,) = await store.claim(lease_id, ["a"], 1)
        assert claim.id == ids[-1]
        if len(ids) == steps:
            assert [each.lost for each in await store.settle([completed(claim)])] == [None]
            return ids
        following = job()
        assert [each.lost for each in await store.settle([continued(claim, following)])] == [None]
        ids.append(following.id)


async def test_a_key_isnt_free_for_a_moment(postgres_url: str) -> None:
    """Four others want it all the time, each in its own way."""
    async with opened(postgres_url) as store, connected(postgres_url) as first, connected(postgres_url) as second:
        lease_id = await store.open_lease("w", 600)
        chain = job(key="k", unique=Unique())
        await store.insert([chain])
        over = asyncio.Event()
        seen: list[UUID] = []

        async def by_inserting(other: PostgresStore, *, many: bool) -> None:
            while not over.is_set():
                wanted = [job(key="k", unique=Unique()), *([job("b")] if many else [])]
                result = (await other.insert(wanted))[0]
                assert not result.created
                seen.append(result.id)

        async def by_sql(connection: Any, statement: str, *arguments: Any) -> None:
            while not over.is_set():
                for row in await connection.fetch(statement, *arguments):
                    assert not row[1]
                    seen.append(row[0])

        plain = """insert into aioqueue.job (id, type, unique_key)
            select gen_random_uuid(), 'thief', unique_key from aioqueue.job where unique_key is not null limit 1
            on conflict do nothing returning id, true"""
        function = """select * from aioqueue.enqueue_v1('{"type": "a", "key": "k", "unique": true}')"""
        async with opened(postgres_url) as thief, opened(postgres_url) as other, asyncio.TaskGroup() as group:
            group.create_task(by_inserting(thief, many=False))
            group.create_task(by_inserting(other, many=True))
            group.create_task(by_sql(first, plain))
            group.create_task(by_sql(second, function))
            for number in range(300):
                (claim,) = await store.claim(lease_id, ["a"], 10)
                assert (claim.chain_id, claim.position, claim.key) == (chain.id, number, "k")
                assert [each.lost for each in await store.settle([continued(claim)])] == [None]
            over.set()
        assert set(seen) == {chain.id}
        assert len(seen) > 300


async def test_a_chain_that_is_marked_slow_stays_it(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id = await store.open_lease("w", 600)
        await store.insert([job()])
        execute(postgres_url, "UPDATE aioqueue.job SET marked = true")
        for _ in range(3):
            (claim,) = await store.claim(lease_id, ["a"], 1)
            assert [each.lost for each in await store.settle([continued(claim)])] == [None]
        assert execute(postgres_url, "SELECT position, marked FROM aioqueue.job") == [(3, True)]


async def test_the_last_position_stays_the_last(postgres_url: str) -> None:
    """A number that somebody has written."""
    async with opened(postgres_url) as store:
        lease_id = await store.open_lease("w", 600)
        await store.insert([job()])
        execute(postgres_url, "UPDATE aioqueue.job SET position = 2147483647")
        (claim,) = await store.claim(lease_id, ["a"], 1)
        assert [each.lost for each in await store.settle([continued(claim)])] == [None]
        assert execute(postgres_url, "SELECT position FROM aioqueue.job") == [(2147483647,)]


@pytest.mark.parametrize("slow", [False, True])
async def test_an_orphan_can_be_continued(postgres_url: str, slow: bool) -> None:
    """No worker does it, but it's as for owners: the next step is there, and the lease is gone."""
    async with opened(postgres_url) as store:
        ids = await chain_of(store, 2)
        lease_id = await store.open_lease("w", 600)
        (claim,) = await store.claim(lease_id, ["a"], 1)
        execute(postgres_url, f"UPDATE aioqueue.job SET marked = {slow}")
        execute(postgres_url, f"UPDATE aioqueue.lease SET expires_at = now() WHERE id = {lease_id}")
        for _ in range(2):
            assert [each.lost for each in await store.settle([continued(claim, job("b"))], orphaned=True)] == [None]
        assert execute(postgres_url, f"SELECT id FROM aioqueue.lease WHERE id = {lease_id}") == []
        assert execute(postgres_url, "SELECT chain_id, position, type, marked FROM aioqueue.job") == [(ids[0], 2, "b", slow)]


async def test_what_other_processes_are_told(postgres_url: str) -> None:
    """In one commit: the next step with its delay; of those that have ended, by the chain's id, where somebody waits."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        chain_id, last = await chain_of(store, 2)
        execute(postgres_url, "INSERT INTO aioqueue.subscriber VALUES (gen_random_uuid(), now() + interval '1 hour')")
        lease_id = await store.open_lease("w", 600)
        first = job()
        await store.insert([first])
        ending, going = await store.claim(lease_id, ["a"], 2)
        assert (ending.id, going.id) == (last, first.id)
        notes: list[dict[str, Any]] = []
        await other.add_listener(Schema().channel, lambda *given: notes.append(json.loads(given[3])))
        await store.settle([completed(ending), continued(going, job("later", delay=60.0))])
        async with asyncio.timeout(30):
            while len(notes) < 2:
                await other.fetch("SELECT 1")
        due, finished = sorted(notes, key=lambda note: "f" in note)
        assert due["t"] == ["later"]
        assert 59 < due["d"] <= 60
        assert finished["f"] == [str(chain_id)]


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
async def test_an_insert_that_is_repeated_after_its_chain_went_on(
    postgres_url: str, unique: bool, end: bool, foreign: bool
) -> None:
    """As after a commit whose answer was lost: the chain is recognised, its first step purged or not."""
    first = job(key="k", unique=Unique()) if unique else job()
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await chain_of(store, 3, first=first, end=end)
        for purge in (False, True):
            if purge:
                execute(postgres_url, "DELETE FROM aioqueue.archive WHERE state = 5")
            async with other.transaction():
                assert await store.insert([first], tx=other if foreign else None, repeated=True) == [Inserted(first.id, False)]
            assert execute(postgres_url, "SELECT count(*) FROM aioqueue.job") == [(int(not end),)]


@pytest.mark.parametrize("end", [False, True])
async def test_a_repeated_insert_that_waits_while_its_chain_goes_on(postgres_url: str, end: bool) -> None:
    """The first try commits late, its job is continued and purged at once: the id is free again when the second one goes on."""
    first, following = job(), job()
    async with connected(postgres_url) as late, connected(postgres_url) as ours, connected(postgres_url) as other:
        await late.execute("BEGIN")
        await insert_on(late, STATEMENTS, [first], repeated=False, note=None)
        await ours.execute("BEGIN")
        waiting = asyncio.create_task(insert_on(ours, STATEMENTS, [first], repeated=True, note=None))
        async with asyncio.timeout(60):
            while not await other.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()"
            ):
                await asyncio.sleep(0.01)
        await late.execute("DELETE FROM aioqueue.job")
        await insert_on(late, STATEMENTS, [following], repeated=False, note=None)
        await late.execute(f"UPDATE aioqueue.job SET chain_id = '{first.id}', position = 1")
        if end:
            await late.execute(
                "WITH gone AS (DELETE FROM aioqueue.job RETURNING *) INSERT INTO aioqueue.archive (id, type, priority, run_at, "
                "state, attempt, claims, reschedules, chain_id, position, created_at, finished_at, tags, metadata, payload, "
                "errors) SELECT id, type, priority, run_at, 4, 1, 1, 0, chain_id, position, created_at, now(), tags, metadata, "
                "payload, errors FROM gone"
            )
        await late.execute("COMMIT")
        assert await waiting == [Inserted(first.id, False)]
        await ours.execute("COMMIT")
    assert execute(postgres_url, "SELECT id, chain_id FROM aioqueue.jobs") == [(following.id, first.id)]


async def test_a_conflict_says_the_chains_id_however_it_is_met(postgres_url: str) -> None:
    first = job(key="k", unique=Unique())
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await chain_of(store, 3, first=first)

        def wanted(**options: Any) -> NewJob:
            return job(key="k", unique=Unique(), **options)

        renamed = NewJob(id=job().id, type="new name", aliases=("a",), key="k", unique=Unique())
        answers = [
            *await store.insert([wanted()]),
            *(await store.insert([job(), wanted(), job("b", key="l", unique=Unique())]))[1:2],
            *await store.insert([wanted()], repeated=True),
            *await store.insert([renamed]),
        ]
        async with other.transaction():
            answers += await store.insert([wanted()], tx=other)
            answers += await store.insert([renamed], tx=other)
        async with store.transaction() as tx:
            answers += await tx.insert([wanted()])
        assert answers == [Inserted(first.id, False)] * 7


async def test_the_view_shows_where_a_job_is_in_its_chain(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        ids = await chain_of(store, 3)
        rows = execute(postgres_url, "SELECT chain_id, position, id, state FROM aioqueue.jobs ORDER BY position")
        states = ["continued", "continued", "ready"]
        assert rows == [(ids[0], number, ids[number], state) for number, state in enumerate(states)]


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.soak)])
async def test_everybody_at_once_at_the_same_chains(postgres_url: str, seconds: int) -> None:
    """Chains go on, end and begin anew while others retry, bring forward and delete them: nothing is doubled, no deadlock."""
    keys = [f"k{number}" for number in range(4)]
    known: dict[UUID, str] = {}
    until = time.monotonic() + seconds

    def wanted(chance: random.Random) -> NewJob:
        return job(key=chance.choice(keys), unique=Unique())

    async def work(store: PostgresStore, chance: random.Random) -> int:
        lease_id, went_on = await store.open_lease("w", 600), 0
        while time.monotonic() < until:
            await store.insert([wanted(chance)])
            batch: list[Settlement] = []
            for claim in await store.claim(lease_id, ["a"], 3):
                known[claim.id] = claim.key or ""
                if chance.random() < 0.2:
                    kind = chance.choice([SettlementKind.COMPLETED, SettlementKind.FAILED])
                    batch.append(Settlement(id=claim.id, claims=claim.claims, lease_id=lease_id, kind=kind))
                else:
                    batch.append(continued(claim, job(delay=chance.choice([None, 60.0]))))
            went_on += sum(
                result.lost is None and each.kind is SettlementKind.CONTINUED
                for each, result in zip(batch, await store.settle(batch), strict=True)
            )
        return went_on

    async def operate(store: PostgresStore, chance: random.Random) -> int:
        done = 0
        while time.monotonic() < until:
            ids = chance.sample(list(known), min(len(known), 4))
            verb = chance.choice([store.retry, store.run_now, store.run_now, store.delete])
            try:
                done += sum(each is Changed.DONE for each in await verb(ids))
            except StoreContended:
                continue
            await asyncio.sleep(0)
        return done

    async with opened(postgres_url) as first, opened(postgres_url) as second, asyncio.TaskGroup() as group:
        workers = [group.create_task(work(store, random.Random(seed))) for seed, store in enumerate((first, second))]
        operators = [group.create_task(operate(store, random.Random(seed))) for seed, store in enumerate((first, second))]
    assert all(task.result() for task in [*workers, *operators])
    twice = """SELECT chain_id, position FROM aioqueue.jobs GROUP BY chain_id, position HAVING count(*) > 1
        UNION ALL SELECT chain_id, NULL FROM aioqueue.jobs WHERE state <> 'continued' GROUP BY chain_id HAVING count(*) > 1
        UNION ALL SELECT job.id, NULL FROM aioqueue.job JOIN aioqueue.archive USING (id)"""
    assert execute(postgres_url, twice) == []
    assert execute(postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


@pytest.mark.parametrize("by_chain", [False, True])
@pytest.mark.parametrize("end", [False, True])
async def test_a_delete_that_is_interrupted_is_finished_by_another(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, by_chain: bool, end: bool
) -> None:
    """Waiters have been told by then, and the unique key is free."""

    async def gone(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(_operate_delete, "DELETED_STEPS", 2)
    told: list[Notification] = []
    async with opened(postgres_url) as store:
        ids = await chain_of(store, 6, first=job(key="k", unique=Unique()), end=end)
        with monkeypatch.context() as patched, store.subscribe(told.append, finished=True):
            patched.setattr(_operate.Operator, "remove_rest", gone)
            with pytest.raises(asyncio.CancelledError):
                await store.delete([ids[3]])
        assert frozenset({ids[0]}) in [each.finished for each in told]
        left = execute(postgres_url, "SELECT id, state FROM aioqueue.archive")
        assert {row[1] for row in left} == {5}
        assert len(left) >= 2
        assert [each.created for each in await store.insert([job(key="k", unique=Unique())])] == [True]
        assert await store.delete([ids[0] if by_chain else left[-1][0]]) == [Changed.DONE]
        assert execute(postgres_url, "SELECT id FROM aioqueue.archive") == []
        assert await store.delete(ids) == [Changed.NOT_FOUND] * 6


async def test_the_prune_of_a_last_step_tells_the_chains_id(postgres_url: str) -> None:
    """Whoever waits for its result hears that it's gone; of continued steps nobody is told."""
    told: list[Notification] = []
    async with opened(postgres_url) as store:
        ids = await chain_of(store, 3, end=True)
        with store.subscribe(told.append, finished=True):
            assert set((await store.prune(StoredState.CONTINUED, 0.0, None, 100)).ids) == set(ids[:2])
            assert not any(each.finished for each in told)
            assert (await store.prune(StoredState.COMPLETED, 0.0, None, 100)).ids == (ids[2],)
        assert [each.finished for each in told if each.finished] == [frozenset({ids[0]})]
