"""What ends of chains are sent as, on PostgreSQL beyond the conformance cases: rows that refuse, takers side by side, hosts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import AttemptError, Settlement, SettlementKind
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
URL = "https://hooks.example/in"
REFUSES = """CREATE FUNCTION public.refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}'; END $$;
CREATE TRIGGER refuses BEFORE {what} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.refuses()"""


async def ended(store: PostgresStore, number: int, *, types: tuple[str, ...] = ("a",), **options: Any) -> list[ClaimedJob]:
    """Jobs that have completed."""
    jobs = [job(types[index % len(types)], **{"webhook": URL, **options}) for index in range(number)]
    await store.insert(jobs)
    lease_id = await store.open_lease("w", 600)
    claims = list(await store.claim(lease_id, types, number))
    assert all(result.lost is None and not result.busy for result in await store.settle([completed(each) for each in claims]))
    return claims


async def test_without_its_delivery_a_chain_hasn_t_ended(postgres_url: str) -> None:
    """Both are one transaction: where the one is refused, so is the other, and its neighbours end."""
    odd, plain = job(webhook="https://refused.example/"), job(webhook=URL)
    behind = job("b", webhook=URL, blockers=(NewBlocker(plain.id),))
    refused_behind = job("b", webhook="https://refused.example/", blockers=(NewBlocker(plain.id),))
    async with opened(postgres_url) as store:
        await store.insert([odd, plain, behind, refused_behind])
        lease_id = await store.open_lease("w", 600)
        claims = {each.id: each for each in await store.claim(lease_id, ["a"], 2)}
        condition = "NEW.host = 'refused.example'"
        execute(postgres_url, REFUSES.format(state="P0001", what="INSERT ON aioqueue.delivery", condition=condition))
        failure = AttemptError(attempt=1, at=claims[odd.id].created_at, type="ValueError", message="no")
        failed = Settlement(id=plain.id, claims=1, lease_id=lease_id, kind=SettlementKind.FAILED, error=failure)
        results = await store.settle([completed(claims[odd.id]), failed])
        assert [(result.lost, result.busy) for result in results] == [(None, True), (None, False)]

        async def states() -> list[str]:
            found = await store.fetch([odd.id, plain.id, behind.id, refused_behind.id])
            return [each.state for each in found if each]

        # Those behind it are told later: one at a time, since one of them refuses.
        assert await states() == ["running", "failed", "blocked", "blocked"]
        await store.tend(10)
        assert await states() == ["running", "failed", "failed", "blocked"]
        page = await store.list_deliveries()
        assert {each.job_id: each.event for each in page.deliveries} == {plain.id: "job.failed", behind.id: "job.failed"}
        execute(postgres_url, "DROP TRIGGER refuses ON aioqueue.delivery")
        assert [result.busy for result in await store.settle([completed(claims[odd.id])])] == [False]
        assert (await store.list_deliveries(chain_id=odd.id)).deliveries[0].event == "job.completed"


async def test_a_row_that_can_t_be_claimed_is_told_of(postgres_url: str) -> None:
    odd, other = job(webhook=URL, key="odd", tags=("x",)), job()
    async with opened(postgres_url) as store:
        await store.insert([odd, other])
        condition = "NEW.key = 'odd' AND NEW.state = 2"
        execute(postgres_url, REFUSES.format(state="22003", what="UPDATE ON aioqueue.job", condition=condition))
        lease_id = await store.open_lease("w", 600)
        assert [each.id for each in await store.claim(lease_id, ["a"], 2)] == [other.id]
        (delivery,) = (await store.list_deliveries()).deliveries
        data = orjson.loads(delivery.body)["data"]
        assert (delivery.job_id, delivery.event, data["tags"]) == (odd.id, "job.failed", ["x"])
        assert data["error"]["type"] == "UnreadableRow"


async def test_no_two_take_the_same_delivery(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as second:
        await ended(store, 60)
        taken = await asyncio.gather(
            *[each.take_deliveries(10, 60) for each in (store, second) for _ in range(2)],
            *[each.take_deliveries(10, 60, without=["other.example"]) for each in (store, second)],
        )
        ids = [each.id for some in taken for each in some]
        assert len(ids) == len(set(ids)) == 60
        first = taken[0][0]
        execute(postgres_url, "UPDATE aioqueue.delivery SET next_at = now()")
        assert {each.tries for each in await store.take_deliveries(60, 60)} == {2}
        late = DeliveryTry(id=first.id, tries=1, state=DeliveryState.DELIVERED, status=200)
        await second.write_tries([late])
        assert {each.state for each in (await store.list_deliveries()).deliveries} == {DeliveryState.PENDING}


async def test_who_replays_and_who_writes_tries_wait_for_each_other_in_one_order(postgres_url: str) -> None:
    """Both are about the same deliveries, given the other way round, and meet where somebody holds the one in the middle."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    columns = "job_id, chain_id, job_type, event, url, body, created_at"
    async with opened(postgres_url) as store, connected(postgres_url) as holder, connected(postgres_url) as looker:
        await ended(store, 3)
        taken = sorted(await store.take_deliveries(3, 60), key=lambda each: each.id)
        await looker.execute(  # so that the planner goes from one to the next in the order in which they're given
            f"INSERT INTO aioqueue.delivery (id, host, next_at, {columns}) "
            f"SELECT gen_random_uuid(), 'slow.example', now() + interval '1 hour', {columns} "
            "FROM aioqueue.delivery, generate_series(1, 5000); ANALYZE aioqueue.delivery"
        )

        async def until_waiting(number: int) -> None:
            async with asyncio.timeout(60):
                while await looker.fetchval(waiting) < number:
                    await asyncio.sleep(0.01)

        ids = [each.id for each in taken]
        tries = [DeliveryTry(id=each.id, tries=1, state=DeliveryState.PENDING, delay=5.0) for each in reversed(taken)]
        async with holder.transaction():
            await holder.execute("SELECT FROM aioqueue.delivery WHERE id = $1 FOR UPDATE", ids[1])
            replaying = asyncio.create_task(store.replay_deliveries(ids))
            await until_waiting(1)
            writing = asyncio.create_task(store.write_tries(tries))
            await until_waiting(2)
        assert list(await replaying) == [True] * 3
        await writing
        assert {each.id for each in await store.take_deliveries(10, 60)} == set(ids)


async def test_a_receiver_with_many_hides_none_of_the_others(postgres_url: str) -> None:
    """What is taken, and when the next one is due, is found along the indexes, whatever is left out."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await ended(store, 1)
        columns = "job_id, chain_id, job_type, event, url, body, created_at"
        await other.execute(
            f"INSERT INTO aioqueue.delivery (id, host, next_at, {columns}) "
            f"SELECT gen_random_uuid(), 'slow.example', now() - interval '1 hour', {columns} "
            "FROM aioqueue.delivery, generate_series(1, 20000)"
        )
        taken = await explain(other, STATEMENTS["deliveries_take_without"], [16, 60.0, ["slow.example"]])
        assert taken.buffers < 200, taken.text
        near = await explain(other, STATEMENTS["deliveries_take_near"], [15, 60.0, ["slow.example"]])
        assert near.buffers < 600, near.text
        assert (await explain(other, STATEMENTS["deliveries_take"], [16, 60.0])).buffers < 600
        assert (await explain(other, STATEMENTS["deliveries_next"], [])).buffers < 20
        (found,) = await store.take_deliveries(16, 60, without=["slow.example"])
        assert found.url == URL
        assert found.body.startswith(b'{"type":"job.completed"')


async def test_many_receivers_that_are_tried_later_cost_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one has no room, it isn't looked from one to the next for each that is taken."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await ended(store, 20)
        columns = "job_id, chain_id, job_type, event, url, body, created_at"
        await other.execute(
            f"INSERT INTO aioqueue.delivery (id, host, next_at, {columns}) "
            f"SELECT gen_random_uuid(), number || '.example', now() + interval '1 hour', {columns} "
            f"FROM (SELECT {columns} FROM aioqueue.delivery LIMIT 1) AS one, generate_series(1, 3000) AS number"
        )
        walked: list[str] = []
        fetch = store._opened.deliveries._pool.fetch

        async def seen(statement: str, *arguments: object) -> Any:
            walked.extend(["walked"] if "RECURSIVE" in statement else [])
            return await fetch(statement, *arguments)

        monkeypatch.setattr(store._opened.deliveries._pool, "fetch", seen)
        taken = [await store.take_deliveries(16, 60, without=["slow.example"]) for _ in range(3)]
        assert [len(some) for some in taken] == [16, 4, 0]
        assert not walked
