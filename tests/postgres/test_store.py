"""What the PostgreSQL store does beyond the conformance cases: locks, broken connections, cancellation, late commits."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.abc import Changed, JobFilter
from aioqueue.errors import ClientClosed, RowRejected, StoreError, StoreUnavailable
from aioqueue.postgres import make_store
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import claimed, completed, connected, job, opened, port_of, proxied
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


# -- inserting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"payload": b"{broken"},
        {"payload": b"\xff"},
        {"key": "a\0b"},
        {"key": "\ud800", "unique": Unique()},
        {"tags": ("\0",)},
        {"priority": 7},
        {"priority": 100_000},
        {"unique": Unique()},
        {"delay": float("nan")},
    ],
)
async def test_bad_rows_are_rejected(postgres_url: str, options: dict[str, Any]) -> None:
    async with opened(postgres_url) as store:
        with pytest.raises(RowRejected):
            await store.insert([job(), job(**options)])
        async with store.transaction() as transaction:
            await transaction.insert([job("kept")])
        assert [found.type for found in (await store.list(JobFilter(), 10)).jobs] == ["kept"]


async def test_what_is_stored_is_kept_to_the_letter(postgres_url: str) -> None:
    payload = b'{"a": 1.0, "a" :"\\u0000", "big":123456789012345678901234567890}'
    async with opened(postgres_url) as store:
        new = job(payload=payload, tags=("a,b", 'quo"te', "back\\slash", "{}", "null", " "), key="x" * 10_000, unique=Unique())
        await store.insert([new])
        (found,) = await store.fetch([new.id])
        assert found is not None
        assert (found.payload, found.tags, found.key) == (payload, new.tags, new.key)


async def test_many_more_than_one_statement_takes(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        jobs = [job(key=f"{number % 4_000}", unique=Unique() if number % 2 == 0 else None) for number in range(5_000)]
        results = await store.insert(jobs)
        assert sum(result.created for result in results) == 4_500
        by_key = {new.key: result.id for new, result in zip(jobs, results, strict=True) if new.unique and result.created}
        assert all(result.id == by_key[new.key] for new, result in zip(jobs, results, strict=True) if new.unique)


async def test_concurrent_batches_with_the_same_keys(postgres_url: str) -> None:
    """None deadlocks, and each key gets one job."""
    async with opened(postgres_url) as store:

        async def batch(seed: int) -> set[Any]:
            keys = [str(number) for number in range(50)]
            random.Random(seed).shuffle(keys)
            results = await store.insert([job(key=key, unique=Unique()) for key in keys])
            return {result.id for result in results}

        first, *others = await asyncio.gather(*[batch(seed) for seed in range(8)])
        assert len(first) == 50
        assert all(other == first for other in others)


async def fails_within(store: PostgresStore) -> None:
    async with store.transaction() as transaction:
        await transaction.insert([job()])
        with pytest.raises(asyncpg.DivisionByZeroError):
            await transaction.execute("SELECT 1 / 0")


async def test_a_caught_error_doesnt_pass_for_a_commit(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        with pytest.raises(StoreError, match="rolled back"):
            await fails_within(store)
        assert (await store.list(JobFilter(), 10)).jobs == ()


async def test_a_users_settings_dont_stay_on_the_connection(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=1) as store:
        async with store.transaction() as transaction:
            await transaction.execute("SET statement_timeout = 1234")
        async with store.transaction() as transaction:
            assert (await transaction.fetch("SHOW statement_timeout"))[0][0] == "0"
            assert (await transaction.fetch("SHOW jit"))[0][0] == "off"


# -- claiming ---------------------------------------------------------------------------------------------------------


async def test_many_types_come_in_order_whatever_is_fetched_of_each(postgres_url: str) -> None:
    """Most of what's due is in one lane, so that a few heads of each lane aren't enough."""
    async with opened(postgres_url) as store:
        types = [f"t{number}" for number in range(30)]
        jobs = [job("t7", priority=1) for _ in range(90)]
        jobs += [job(types[number % 30], priority=1 + number % 4) for number in range(1_000)]
        await store.insert(jobs)
        lease_id = await store.open_lease("w", 600)
        taken: list[ClaimedJob] = []
        while len(taken) < len(jobs):
            some = await store.claim(lease_id, types, 60)
            assert len(some) == min(60, len(jobs) - len(taken))
            taken += some
        assert [each.priority for each in taken] == sorted(each.priority for each in jobs)
        for name in types:  # types take turns
            own = sorted((each for each in jobs if each.type == name), key=lambda each: (each.priority, each.id))
            assert [each.id for each in taken if each.type == name] == [each.id for each in own]


async def test_what_is_committed_late_isnt_overlooked(postgres_url: str) -> None:
    """It is due before what was claimed meanwhile."""
    async with opened(postgres_url) as store, opened(postgres_url) as producer:
        lease_id = await store.open_lease("w", 600)
        late = job()
        async with producer.transaction() as transaction:
            await transaction.insert([late])
            await producer.insert([job() for _ in range(20)])
            while len(await store.claim(lease_id, ["a"], 5)) == 5:
                pass
        assert (await store.next_due(["a"])).job == 0
        assert [each.id for each in await store.claim(lease_id, ["a"], 5)] == [late.id]


async def test_a_row_out_of_this_world_doesnt_stop_the_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([job() for _ in range(3)])
        execute(
            postgres_url,
            "UPDATE aioqueue.job SET run_at = '-infinity', created_at = '4000-01-01 BC', expires_at = 'infinity' "
            "WHERE id = (SELECT id FROM aioqueue.job ORDER BY id LIMIT 1)",
        )
        assert len((await store.list(JobFilter(), 10)).jobs) == 3
        assert (await store.stats()).types["a"].oldest_ready is not None
        lease_id = await store.open_lease("w", 600)
        assert len(await store.claim(lease_id, ["a"], 10)) == 3


# -- broken connections -----------------------------------------------------------------------------------------------

BACKENDS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def recovered(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat until the database can be used again: nothing but `StoreUnavailable` may come in between."""
    with anyio.fail_after(120):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0)


async def test_every_backend_is_terminated_at_once(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        session = store.lease_session()
        await asyncio.to_thread(session.renew, lease_id, 600, [])
        execute(postgres_url, BACKENDS)

        async def renew() -> Any:
            return await asyncio.to_thread(session.renew, lease_id, 600, [claim.claim])

        assert (await recovered(renew)).lost == {}
        assert [result.lost for result in await recovered(lambda: store.settle([completed(claim)]))] == [None]
        new = job()
        await recovered(lambda: store.insert([new], repeated=True))
        assert [each.id for each in await recovered(lambda: store.claim(lease_id, ["a"], 10))] == [new.id]
        await asyncio.to_thread(session.close)
        await asyncio.to_thread(session.close)


async def test_a_server_that_can_only_be_read_is_left(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False) as store:
        database = postgres_url.rpartition("/")[2]
        await store.insert([job()])
        execute(postgres_url, f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        execute(postgres_url, BACKENDS)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.insert([job()])
        execute(
            postgres_url,
            f'BEGIN READ WRITE; ALTER DATABASE "{database}" SET default_transaction_read_only = off; COMMIT',
        )
        assert (await recovered(lambda: store.insert([job()])))[0].created


async def test_a_silent_server_is_given_up(postgres_url: str) -> None:
    """Every call ends within its deadline, also those that follow it on the same connections."""
    async with (
        Proxy(port_of(postgres_url)) as proxy,
        opened(proxied(postgres_url, proxy), timeout=1.0, notify=False) as store,
    ):
        lease_id, (claim,) = await claimed(store)
        session = store.lease_session()
        await asyncio.to_thread(session.renew, lease_id, 600, [])
        proxy.pause()
        with anyio.fail_after(60):
            for _ in range(2):
                ended = await asyncio.gather(
                    store.claim(lease_id, ["a"], 1),
                    store.settle([completed(claim)]),
                    store.insert([job()]),
                    asyncio.to_thread(session.renew, lease_id, 600, []),
                    return_exceptions=True,
                )
                assert [type(each) for each in ended] == [StoreUnavailable] * 4
        await asyncio.to_thread(session.close)
        await store.close()


@pytest.mark.parametrize("what", ["insert", "execute", "fetch"])
async def test_a_transaction_on_a_silent_server_is_given_up(postgres_url: str, what: str) -> None:
    """Whatever its next statement is; what follows finds the server again."""
    async with (
        Proxy(port_of(postgres_url)) as proxy,
        opened(proxied(postgres_url, proxy), timeout=1.0, notify=False, pool_size=1) as store,
    ):
        with anyio.fail_after(60), pytest.raises(StoreUnavailable, match="no answer"):
            async with store.transaction() as transaction:
                await transaction.insert([job()])
                proxy.pause()
                calls = {
                    "insert": lambda: transaction.insert([job()]),
                    "execute": lambda: transaction.execute("SELECT 1"),
                    "fetch": lambda: transaction.fetch("SELECT 1"),
                }
                await calls[what]()
        proxy.resume()
        new = job()
        await recovered(lambda: store.insert([new], repeated=True))
        assert [each.id for each in (await store.list(JobFilter(), 10)).jobs] == [new.id]


async def test_nobody_is_there() -> None:
    with pytest.raises(StoreUnavailable):
        await make_store("postgresql://127.0.0.1:9/nothing", timeout=5).open()


async def test_a_wrong_database_isnt_worth_trying_again(postgres_url: str) -> None:
    with pytest.raises(StoreError) as caught:
        await make_store(f"{postgres_url}_that_isnt_there").open()
    assert not isinstance(caught.value, StoreUnavailable)


async def test_users_transactions_dont_keep_workers_from_their_connections(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=1, timeout=30) as store:
        lease_id, (claim,) = await claimed(store)
        async with store.transaction() as transaction:
            await transaction.insert([job()])
            assert [result.lost for result in await store.settle([completed(claim)])] == [None]
            assert await store.claim(lease_id, ["a"], 1) == []


async def test_too_many_users_are_told(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=1, timeout=0.5, notify=False) as store, store.transaction():
        with pytest.raises(StoreUnavailable, match="none of 1 connections"):
            async with store.transaction():
                raise AssertionError


async def test_open_transactions_take_nothing_that_anything_else_needs(postgres_url: str) -> None:
    """Every connection for users' transactions is held; the worker's and the client's own verbs go on."""
    async with opened(postgres_url, pool_size=1, timeout=5, notify=False) as store, store.transaction():
        lease_id, (one, other) = await claimed(store, jobs=2)
        await store.release(lease_id, [one.claim])
        await store.settle([completed(other)])
        await store.take_expired(10)
        await store.next_due(["a"])
        assert len(await store.fetch([one.id])) == 1
        await store.stats()
        assert await store.retry([one.id]) == [Changed.WRONG_STATE]


# -- life -------------------------------------------------------------------------------------------------------------


async def test_a_closed_store_says_so_and_can_be_opened_again(postgres_url: str) -> None:
    store = make_store(postgres_url)
    with pytest.raises(ClientClosed):
        await store.insert([job()])
    for _ in range(2):
        await store.open()
        await store.insert([job()])
        await store.close()
        await store.close()
        with pytest.raises(ClientClosed):
            await store.stats()


async def test_a_fork_is_refused_and_hurts_nobody(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (store.insert([job()]), store.claim(lease_id, ["a"], 1), store.settle([completed(claim)])):
                try:
                    call.send(None)
                except ClientClosed as error:
                    refused += "fork" in str(error)
                except BaseException:
                    break
            os._exit(0 if refused == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [result.lost for result in await store.settle([completed(claim)])] == [None]


async def test_without_prepared_statements(postgres_url: str) -> None:
    async with opened(postgres_url, prepared_statements=False) as store:
        _, claims = await claimed(store, jobs=3)
        assert [result.lost for result in await store.settle([completed(claim) for claim in claims])] == [None] * 3
        (new,) = await store.insert([job(key="k", unique=Unique())])
        assert (await store.fetch([new.id]))[0] is not None
        assert len((await store.list(JobFilter(), 10)).jobs) == 4
        execute(postgres_url, "SELECT 1 WHERE EXISTS (SELECT FROM pg_prepared_statements)")


# -- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [50, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_a_cancelled_call_leaves_nothing_behind(postgres_url: str, rounds: int) -> None:
    """Whatever it's cancelled in: no transaction, no lock, no connection, and its write has happened whole or not at all."""
    generator = random.Random(1)
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        lease_id = await store.open_lease("w", 600)

        async def transaction(pair: str) -> None:
            async with store.transaction() as tx:
                await tx.insert([job(pair)])
                await tx.insert([job(pair)])

        async def unique(pair: str) -> None:
            await store.insert([job(pair, key=f"{pair}{number}", unique=Unique()) for number in range(2)])

        async def plain(pair: str) -> None:
            await store.insert([job(pair), job(pair)])

        async def work(_: str) -> None:
            claims = await store.claim(lease_id, ["work"], 5)
            await store.settle([completed(claim) for claim in claims])

        for number in range(rounds):
            await store.insert([job("work")])
            calls = [asyncio.create_task(call(f"p{number}{call.__name__}")) for call in (transaction, unique, plain, work)]
            await asyncio.sleep(generator.uniform(0, 0.008))
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        pairs = await other.fetch("SELECT type, count(*) FROM aioqueue.job WHERE type LIKE 'p%' GROUP BY type")
        assert {row[1] for row in pairs} <= {2}
        busy = "SELECT state, query FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        with anyio.fail_after(60):
            while await other.fetch(busy):
                await asyncio.sleep(0.01)
        # All of the pool can still be had.
        await asyncio.gather(*[store.stats() for _ in range(8)])
        await store.claim(lease_id, ["work"], 1)
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        # For users, operations, the worker, claims and settlements, notifications, and the test's own.
        assert await other.fetchval(sessions) <= 4 + 3 + 2 + 2 + 1 + 1
