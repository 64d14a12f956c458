"""Unique keys, whoever else is at work: one holder, nothing lost, no error of the driver's, no deadlock, bounded waits."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import DuplicateJob, StoreContended, StoreUnavailable
from aioqueue.postgres._insert_edges import find_chains
from aioqueue.postgres._insert_replace import let_go
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob
    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

RETURN, REPLACE, RAISE = Unique(), Unique(on_conflict="replace"), Unique(on_conflict="raise")
POLICIES = {
    "return": RETURN,
    "replace": REPLACE,
    "raise": RAISE,
    "started": Unique(until="started"),
    "started and replace": Unique(until="started", on_conflict="replace"),
    "window": Unique(window=60),
    "window and replace": Unique(window=60, on_conflict="replace"),
    "window and raise": Unique(window=60, on_conflict="raise"),
}
CALLERS, CONNECTIONS = 100, 20
EMPTY = ";".join(f"DELETE FROM aioqueue.{table}" for table in ("job", "archive", "blocker", "chain_end", "dedup", "lease"))


@pytest.fixture(scope="module")
def url(postgres_databases: Databases) -> Iterator[str]:
    with postgres_databases.fresh() as url:
        yield url


@pytest.fixture
async def store(anyio_backend: str, url: str) -> AsyncIterator[PostgresStore]:
    execute(url, EMPTY)
    async with opened(url, pool_size=CONNECTIONS) as store:
        yield store


@pytest.fixture(params=["return", "started and replace", "window and replace", "window and raise"])
def unique(request: pytest.FixtureRequest) -> Unique:
    return POLICIES[request.param]


def keyed(unique: Unique, number: int = 0, key: str = "k", **options: Any) -> NewJob:
    return NewJob(id=new_id(), type="a", key=key, unique=unique, payload=b'{"n":%d}' % number, **options)


async def stored(store: PostgresStore, *jobs: NewJob, tx: Any = None) -> Sequence[Inserted]:
    """Insert, again and again where somebody's transaction holds a row for longer than a moment."""
    while True:
        try:
            return await (store.insert(jobs) if tx is None else tx.insert(jobs))
        except StoreContended:
            await asyncio.sleep(0)
        except DuplicateJob as duplicate:
            return [Inserted(duplicate.chain_id, created=False, refused=duplicate)]


class RolledBackError(Exception):
    """On purpose."""


def holders(url: str) -> list[tuple[Any, ...]]:
    return execute(
        url,
        "SELECT id, payload::text FROM aioqueue.job WHERE unique_key IS NOT NULL AND (claims = 0 OR NOT until_started)",
    )


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_a_hundred_callers_and_rollbacks(url: str, store: PostgresStore, policy: str) -> None:
    """Of those that commit one has its job stored, and all others hear of it; what it is in the end one of them has said."""
    unique, chance = POLICIES[policy], random.Random(7)
    fails = [chance.random() < 0.3 for _ in range(CALLERS)]

    async def call(number: int) -> Inserted | None:
        try:
            async with store.transaction() as tx:
                (result,) = await stored(store, keyed(unique, number), tx=tx)
                if fails[number]:
                    raise RolledBackError
        except RolledBackError:
            return None
        return result

    async with asyncio.timeout(60):
        results = [each for each in await asyncio.gather(*map(call, range(CALLERS))) if each is not None]
    ((holder, payload),) = holders(url)
    assert len(results) == fails.count(False)
    assert {each.id for each in results} == {holder}
    assert [each.created for each in results].count(True) == 1
    rest = [each for each in results if not each.created]
    assert {(each.replaced, each.refused is not None) for each in rest} == {
        (unique.on_conflict == "replace", unique.on_conflict == "raise")
    }
    assert not fails[int(payload.partition(":")[2].strip("}"))]


async def test_whoever_waited_for_one_that_rolled_back_has_its_own_job(store: PostgresStore, unique: Unique) -> None:
    first, second = keyed(unique), keyed(unique)
    begun = asyncio.Event()

    async def wait() -> Inserted:
        await begun.wait()
        return (await stored(store, second))[0]

    waiting = asyncio.create_task(wait())
    with pytest.raises(RolledBackError):
        async with store.transaction() as tx:
            await tx.insert([first])
            begun.set()
            await asyncio.sleep(0.02)  # so that it waits, mostly; it's right in any case
            raise RolledBackError
    assert await waiting == Inserted(second.id, created=True)


def outcome(claim: ClaimedJob, what: str) -> Settlement:
    settlement = completed(claim)
    kinds = {"completes": 4, "goes on": 5, "fails": 6, "is retried": 8}
    kind = SettlementKind(kinds[what])
    following = job() if what == "goes on" else None
    return Settlement(
        id=settlement.id,
        claims=settlement.claims,
        lease_id=settlement.lease_id,
        kind=kind,
        output=b"1" if what == "completes" else None,
        next=following,
        delay=0.0 if what == "is retried" else None,
    )


async def test_against_a_holder_to_which_something_happens(url: str, store: PostgresStore, unique: Unique) -> None:
    """At most one has the key, whoever was answered is answered with what was there, and all of it runs to its end."""
    for what in ("is claimed", "completes", "fails", "goes on", "is retried"):
        execute(url, EMPTY)
        lease_id = await store.open_lease("w", 600)
        (first,) = await store.insert([keyed(unique)])
        if what == "is claimed":
            happens = asyncio.create_task(store.claim(lease_id, ["a"], 1))
        else:
            (claim,) = await store.claim(lease_id, ["a"], 1)
            happens = asyncio.create_task(store.settle([outcome(claim, what)]))
        callers = [asyncio.create_task(stored(store, keyed(unique, 1))) for _ in range(6)]
        async with asyncio.timeout(60):
            results = [(await each)[0] for each in callers]
            await happens
        assert len(holders(url)) <= 1
        assert {result.id for result in results} <= {
            row[0]
            for row in execute(
                url, "SELECT coalesce(chain_id, id) FROM aioqueue.job UNION SELECT coalesce(chain_id, id) FROM aioqueue.archive"
            )
        }
        answers = {result.id for result in results}
        created = [result.id for result in results if result.created]
        assert len(created) == len(set(created)) <= 1
        assert answers <= {first.id, *created}
        await _run_out(url, store, lease_id)


async def _run_out(url: str, store: PostgresStore, lease_id: int) -> None:
    await store.release(lease_id, [], end=True)
    for _ in range(20):
        while (await store.tend(1_000)).more:
            pass
        for claim in await store.claim(await store.open_lease("w", 600), ["a"], 100):
            assert (await store.settle([completed(claim)]))[0].lost is None
        if execute(url, "SELECT count(*) FROM aioqueue.job") == [(0,)]:
            return
    raise AssertionError("something waits for ever")


@pytest.mark.parametrize("apart", [False, True])
async def test_batches_that_hold_keys_twice(url: str, store: PostgresStore, unique: Unique, apart: bool) -> None:
    """Ten keys, twice each, in any order, by ten callers at once: each key is one job's, and nobody deadlocks."""

    async def call(number: int) -> Sequence[Inserted]:
        jobs = [keyed(unique, number * 100 + place, key=f"k{place % 10}") for place in range(20)]
        random.Random(number).shuffle(jobs)
        while True:
            try:
                return await store.insert(jobs, apart=apart)
            except DuplicateJob:
                return []
            except StoreContended:
                await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        results = [each for answers in await asyncio.gather(*map(call, range(10))) for each in answers]
    found = {row[0] for row in holders(url)}
    # A batch that raises has none of its jobs.
    assert len(found) == (0 if unique.on_conflict == "raise" and not apart else 10)
    assert {each.id for each in results if each.refused is None} == found
    assert sorted(each.id for each in results if each.created) == sorted(found)
    async with connected(url) as connection:
        assert await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_in_a_snapshot_of_before(store: PostgresStore, url: str, unique: Unique) -> None:
    """What was committed since can't be seen: it's an error of ours, the holder stays as it is, and the next try is right."""
    async with connected(url) as connection:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.fetch("SELECT count(*) FROM aioqueue.job")
        (holder,) = await store.insert([keyed(unique)])
        with pytest.raises(StoreUnavailable):
            await store.insert([keyed(unique, 1)], tx=connection)
        await transaction.rollback()
        assert holders(url) == [(holder.id, '{"n":0}')]
        async with connection.transaction(isolation="repeatable_read"):
            (result,) = await stored(store, keyed(unique, 2))
        assert result.id == holder.id


async def test_a_holder_that_somebody_has_locked(store: PostgresStore, url: str) -> None:
    """It's waited for briefly: in a user's transaction too, which goes on as it was, and is as patient as before."""
    (holder,) = await store.insert([keyed(REPLACE)])
    async with connected(url) as locking, locking.transaction():
        await locking.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", holder.id)
        with pytest.raises(StoreContended):
            await store.insert([keyed(REPLACE, 1)])
        async with store.transaction() as tx, asyncio.timeout(30):
            await tx.execute("SET LOCAL lock_timeout = '7s'")
            with pytest.raises(StoreContended):
                await tx.insert([keyed(REPLACE, 1)])
            assert (await tx.fetch("SHOW lock_timeout"))[0][0] == "7s"
            await tx.insert([job("b")])
    assert holders(url) == [(holder.id, '{"n":0}')]
    assert (await store.insert([keyed(REPLACE, 1)]))[0].replaced


async def test_a_holder_that_is_deleted_before_another_job_waits_for_it(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has asked for that very chain: so it's tried again, and isn't told as a blocker that isn't there."""
    (holder,) = await store.insert([keyed(RETURN)])
    new = keyed(RETURN)
    parent = job(blockers=(NewBlocker(new.id),))

    async def late(*args: Any, **options: Any) -> Any:
        execute(url, f"DELETE FROM aioqueue.job WHERE id = '{holder.id}'")
        return await find_chains(*args, **options)

    monkeypatch.setattr("aioqueue.postgres._insert_blockers.find_chains", late)
    with pytest.raises(StoreContended):
        await store.insert([new, parent])
    assert [each.created for each in await store.insert([new, parent])] == [True, True]


async def test_an_id_that_somebody_else_has_chosen_while_its_job_takes_a_key_over(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's job stays as it is, and the holder has its key."""
    await store.insert([keyed(RETURN)])
    (claim,) = await store.claim(await store.open_lease("w", 600), ["a"], 1)
    chosen = keyed(REPLACE, chosen_id=True)

    async def late(*args: Any) -> None:
        await let_go(*args)
        await other.insert([NewJob(id=chosen.id, type="a", chosen_id=True)])

    async with opened(url) as other:
        monkeypatch.setattr("aioqueue.postgres._insert_unique.let_go", late)
        with pytest.raises(StoreContended):
            await store.insert([chosen])
        monkeypatch.undo()
    assert [each[0] for each in holders(url)] == [claim.id]
    assert execute(url, "SELECT count(*) FROM aioqueue.blocker") == [(0,)]
    (again,) = await store.insert([chosen])
    assert (again.id, again.created) == (chosen.id, False)


async def test_what_an_open_transaction_replaces_isnt_claimed(store: PostgresStore, url: str) -> None:
    """A worker passes it over, and finds it changed afterwards, or unchanged if it was rolled back."""
    (holder,) = await store.insert([keyed(REPLACE)])
    lease_id = await store.open_lease("w", 600)
    with pytest.raises(RolledBackError):
        async with store.transaction() as tx:
            await tx.insert([keyed(REPLACE, 1)])
            assert await store.claim(lease_id, ["a"], 1) == []
            raise RolledBackError
    (claim,) = await store.claim(lease_id, ["a"], 1)
    assert (claim.id, claim.payload) == (holder.id, b'{"n":0}')


async def test_in_transactions_of_each_library(url: str, store: PostgresStore, library: Any) -> None:
    """All at once: a key that is kept, one that is replaced, one that is taken over, a chosen id, and one that isn't needed."""
    waiting, running = keyed(RETURN, key="waiting"), keyed(RETURN, key="running", priority=1)
    await store.insert([waiting, running])
    lease_id = await store.open_lease("w", 600)
    (claim,) = await store.claim(lease_id, ["a"], 1)
    child = job(implied=True)
    jobs = [
        keyed(Unique(window=60), key="kept"),
        keyed(REPLACE, 1, key="waiting", max_delay=5.0, delay=60),
        keyed(REPLACE, 1, key="running"),
        NewJob(id=running.id, type="a", chosen_id=True),
        child,
        keyed(RETURN, key="waiting", blockers=(NewBlocker(child.id),)),
    ]
    async with library(url) as other:
        results = await store.insert(jobs, tx=other.tx)
        with pytest.raises(DuplicateJob):
            await store.insert([job(), keyed(RAISE, key="kept")], tx=other.tx)
        await other.commit()
    ids = [jobs[0].id, waiting.id, jobs[2].id, running.id, child.id, waiting.id]
    assert [(each.id, each.created, each.replaced) for each in results] == [
        (job_id, number in {0, 2}, number == 1) for number, job_id in enumerate(ids)
    ]
    assert execute(url, "SELECT count(*) FROM aioqueue.job") == [(4,)]
    await store.settle([completed(claim)])
    (found,) = await store.fetch([jobs[2].id])
    assert found is not None
    assert found.state is JobState.READY


async def load(url: str, seconds: float) -> None:
    """Three processes, each with a worker, thirty keys, and jobs that finish."""
    command = [sys.executable, "-m", "tests.postgres.unique_load", url, str(seconds)]
    processes = [
        await asyncio.create_subprocess_exec(
            *command, str(seed), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        for seed in range(3)
    ]
    async with asyncio.timeout(seconds + 90):
        told = [(await each.communicate())[0].decode() for each in processes]
    assert [each.returncode for each in processes] == [0, 0, 0], "\n".join(told)
    async with connected(url) as connection:
        assert await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_three_processes_and_thirty_keys(postgres_url: str) -> None:
    await load(postgres_url, 1.0)


@pytest.mark.soak
async def test_three_processes_and_thirty_keys_for_longer(postgres_url: str) -> None:
    await load(postgres_url, 60.0)
