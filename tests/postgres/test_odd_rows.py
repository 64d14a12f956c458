"""A row that somebody has made strange with SQL fails alone, whatever is done with it and its neighbours."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest

from aioqueue.abc import JobFilter
from aioqueue.errors import RowRejected, StoreError
from aioqueue.postgres._insert_encoded import encode_jobs
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, JobState, NewJob, Settlement, SettlementKind
from tests.postgres.stores import job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

MOST = 2_147_483_647
PENDING = [
    f"attempt = {MOST}",
    "attempt = -2147483648",
    f"claims = {MOST}",
    "claims = -5",
    f"reschedules = {MOST}",
    "max_attempts = -1",
    "run_at = '-infinity'",
    "run_at = '4000-01-01 BC'",
    "created_at = 'infinity'",
    "created_at = '-infinity', started_at = '4000-01-01 BC'",
    "created_at = '290000-01-01'",
    "expires_at = 'infinity'",
    "expires_at = '-infinity', attempt = 5",
    "timeout = 'NaN'",
    "timeout = 'Infinity'",
    "timeout = -1",
    "errors = ARRAY[['1', '2'], ['3', '{}']]::json[]",
    "errors = '[2147483640:2147483641]={1,2}'::json[]",
    "errors = '[-3:-2]={1,2}'::json[]",
    'errors = ARRAY[NULL, \'null\', \'"text"\', \'[1]\', \'{"at": 5, "attempt": "x", "type": null}\']::json[]',
    "tags = ARRAY[['a', NULL], ['c', 'd']]",
    "tags = '[7:8]={a,b}'::text[]",
    "metadata = '[1]', payload = 'null', retry = '5'",
    "payload = '\"\\ud800\"', metadata = '{\"a\": 1e999}'",
    "key = '', trace = ''",
]
RUNNING = ["run_at = 'infinity'", "run_at = '-infinity'", "started_at = NULL", "started_at = 'infinity'"]
NEVER_DUE = ["run_at = 'infinity'", "run_at = '290000-01-01'"]


@pytest.fixture(params=["postgres_url", pytest.param("postgres15_url", marks=pytest.mark.other_store)])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def settlement(claim: ClaimedJob, kind: SettlementKind) -> Settlement:
    error = AttemptError(attempt=1, at=datetime.now(UTC), type="E", message="m")
    delay = 0.0 if kind >= SettlementKind.RETRIED else None
    return Settlement(id=claim.id, claims=claim.claims, lease_id=claim.lease_id, kind=kind, delay=delay, error=error)


async def written(store: PostgresStore, claims: Sequence[ClaimedJob], kind: SettlementKind, *, orphaned: bool = False) -> None:
    """Three outcomes are written."""
    results = await store.settle([settlement(each, kind) for each in claims], orphaned=orphaned)
    assert [(result.lost, result.busy) for result in results] == [(None, False)] * 3


async def seen(store: PostgresStore, ids: Sequence[UUID]) -> None:
    """Everything that reads shows all of them."""
    assert all(found is not None for found in await store.fetch(ids))
    for where in (JobFilter(), JobFilter(types=frozenset({"a"}))):
        assert {found.id for found in (await store.list(where, 10)).jobs} == set(ids)
    assert sum((await store.stats()).types["a"].counts.values()) == len(ids)
    await store.next_due(["a"])


async def test_an_odd_row_is_claimed_and_settled_beside_others(url: str) -> None:
    async with opened(url) as store:
        lease_id = await store.open_lease("w", 600)
        for change in PENDING:
            jobs = [job() for _ in range(3)]
            await store.insert(jobs)
            ids = [each.id for each in jobs]
            execute(url, f"UPDATE aioqueue.job SET {change} WHERE id = '{ids[1]}'")
            await seen(store, ids)
            for kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED):
                claims = await store.claim(lease_id, ["a"], 10)
                assert {each.id for each in claims} == set(ids), change
                assert all(isinstance(tag, str) for each in claims for tag in each.tags), change
                await seen(store, ids)
                await written(store, claims, kind)
                await seen(store, ids)
            await store.release(lease_id, [each.claim for each in await store.claim(lease_id, ["a"], 10)])
            await written(store, await store.claim(lease_id, ["a"], 10), SettlementKind.FAILED)
            await seen(store, ids)
            assert {str(changed) for changed in await store.retry(ids)} == {"done"}, change
            await written(store, await store.claim(lease_id, ["a"], 10), SettlementKind.COMPLETED)
            assert {str(changed) for changed in await store.delete(ids)} == {"done"}, change


@pytest.mark.parametrize("kind", [SettlementKind.RETRIED, SettlementKind.RESCHEDULED, SettlementKind.FAILED])
async def test_an_odd_orphan_is_recovered_beside_others(url: str, kind: SettlementKind) -> None:
    async with opened(url) as store:
        for change in [*PENDING, *RUNNING]:
            jobs = [job() for _ in range(3)]
            await store.insert(jobs)
            ids = [each.id for each in jobs]
            lease_id = await store.open_lease("dead", 600)
            assert len(await store.claim(lease_id, ["a"], 10)) == 3
            execute(url, f"UPDATE aioqueue.job SET {change} WHERE id = '{ids[1]}'")
            execute(url, "UPDATE aioqueue.lease SET expires_at = now() - interval '1 second'")
            await seen(store, ids)
            taken = await store.take_expired(10)
            assert {each.id for each in taken} == set(ids), change
            assert not any(each.expired for each in taken), change
            await written(store, taken, kind, orphaned=True)
            await seen(store, ids)
            if kind is not SettlementKind.FAILED:
                lease_id = await store.open_lease("w", 600)
                await written(store, await store.claim(lease_id, ["a"], 10), SettlementKind.COMPLETED)
            await store.delete(ids)


async def test_odd_rows_are_given_back_beside_others(url: str) -> None:
    async with opened(url) as store:
        lease_id = await store.open_lease("w", 600)
        jobs = [job() for _ in range(5)]
        await store.insert(jobs)
        for change in [*PENDING, *RUNNING]:
            claims = await store.claim(lease_id, ["a"], 10)
            assert len(claims) == 5, change
            if "claims" not in change:
                execute(url, f"UPDATE aioqueue.job SET {change} WHERE id = '{jobs[1].id}'")
            await store.release(lease_id, [each.claim for each in claims])
            execute(url, "UPDATE aioqueue.job SET attempt = 0, reschedules = 0, run_at = now()")
            assert {found.state for found in await store.fetch([each.id for each in jobs]) if found} == {"ready"}, change
        await store.claim(lease_id, ["a"], 10)
        execute(url, f"UPDATE aioqueue.job SET run_at = 'infinity', attempt = {-MOST - 1} WHERE id = '{jobs[1].id}'")
        await store.release(lease_id, [], end=True)
        assert {found.state for found in await store.fetch([each.id for each in jobs]) if found} == {"ready"}


ARCHIVED = [
    "priority = 9",
    "finished_at = 'infinity'",
    "finished_at = '-infinity', run_at = 'infinity'",
    "errors = ARRAY[['1', '2'], ['3', '{}']]::json[], output = '[1]'",
    f"attempt = {MOST}, claims = {MOST}, reschedules = {MOST}",
    "tags = ARRAY[['a', NULL], ['c', 'd']], lease_id = -9223372036854775808",
]


async def test_odd_rows_of_the_archive_are_shown_and_retried_beside_others(url: str) -> None:
    async with opened(url) as store:
        lease_id = await store.open_lease("w", 600)
        for change in ARCHIVED:
            jobs = [job() for _ in range(3)]
            await store.insert(jobs)
            ids = [each.id for each in jobs]
            await written(store, await store.claim(lease_id, ["a"], 10), SettlementKind.FAILED)
            execute(url, f"UPDATE aioqueue.archive SET {change} WHERE id = '{ids[1]}'")
            await seen(store, ids)
            assert {str(changed) for changed in await store.retry(ids)} == {"done"}, change
            await written(store, await store.claim(lease_id, ["a"], 10), SettlementKind.COMPLETED)
            await store.delete(ids)


@pytest.mark.parametrize("change", NEVER_DUE)
async def test_a_row_that_is_never_due_is_shown_and_stops_nobody(url: str, change: str) -> None:
    async with opened(url) as store:
        jobs = [job() for _ in range(2)]
        await store.insert(jobs)
        ids = [each.id for each in jobs]
        execute(url, f"UPDATE aioqueue.job SET {change} WHERE id = '{ids[0]}'")
        await seen(store, ids)
        lease_id = await store.open_lease("w", 600)
        (claim,) = await store.claim(lease_id, ["a"], 10)
        await store.settle([settlement(claim, SettlementKind.COMPLETED)])
        due = await store.next_due(["a"], own=[lease_id])
        assert due.job is None if "infinity" in change else due.job is not None and due.job > 1e9
        assert due.lease is None
        (found,) = (await store.list(JobFilter(states=frozenset({JobState.SCHEDULED})), 10)).jobs
        assert found.id == ids[0]
        assert [str(changed) for changed in await store.run_now([ids[0]])] == ["done"]
        assert [each.id for each in await store.claim(lease_id, ["a"], 10)] == [ids[0]]


@pytest.mark.parametrize("name", ["run_at", "delay", "expires", "timeout"])
@pytest.mark.parametrize("value", ["infinity", "-infinity", "NaN"])
async def test_infinite_times_are_refused(url: str, name: str, value: str) -> None:
    """By the function for SQL, and by the store's own statement."""
    wanted = json.dumps({"type": "a", name: value})
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.InvalidDatetimeFormat)):
        execute(url, f"SELECT aioqueue.enqueue_v1('{wanted}')")
    if name != "run_at":
        async with opened(url) as store:
            with pytest.raises(RowRejected):
                await store.insert([job(), NewJob(id=new_id(), type="a", **{name: float(value)})])
    assert execute(url, "SELECT 1 FROM aioqueue.job") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": [1]}, {"payload": 1}, {"payload": "[1]"}, {"payload": "7"}, {"payload": False},
        {"metadata": []}, {"metadata": "3"}, {"retry": 5}, {"retry": "[]"}, {"tags": "t"}, {"tags": {"t": 1}},
    ],
    ids=str,
)  # fmt: skip
async def test_what_isnt_an_object_is_refused_by_the_function_for_sql(url: str, wrong: dict[str, object]) -> None:
    """It was taken for nothing: the job ran with its defaults."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be objects"):
        execute(url, f"SELECT aioqueue.enqueue_v1('{json.dumps([{'type': 'a'}, {'type': 'a', **wrong}])}')")
    assert execute(url, "SELECT 1 FROM aioqueue.job") == []
    for right in ({}, {"payload": None, "metadata": None, "retry": None, "tags": None}, {"payload": '{"n": 1}', "tags": ["t"]}):
        execute(url, f"SELECT aioqueue.enqueue_v1('{json.dumps({'type': 'a', **right})}')")
    assert len(execute(url, "SELECT 1 FROM aioqueue.job")) == 3


@pytest.mark.parametrize("change", ["'infinity'", "'-infinity'", "'290000-01-01'"])
async def test_a_lease_that_ends_at_an_odd_time_breaks_nothing(url: str, change: str) -> None:
    async with opened(url) as store:
        await store.insert([job()])
        lease_id = await store.open_lease("odd", 600)
        (claim,) = await store.claim(lease_id, ["a"], 1)
        execute(url, f"UPDATE aioqueue.lease SET expires_at = {change}")
        due = await store.next_due(["a"])
        taken = await store.take_expired(10)
        if change == "'-infinity'":
            assert due.lease == 0
            assert [each.id for each in taken] == [claim.id]
        else:
            assert due.lease is None or due.lease > 1e9
            assert taken == []


RAISES = """CREATE FUNCTION public.raises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.key = 'odd' AND NEW.state = 2 THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}'; END IF;
    RETURN NEW; END $$;
CREATE TRIGGER raises BEFORE UPDATE ON aioqueue.job FOR EACH ROW EXECUTE FUNCTION public.raises()"""


@pytest.mark.parametrize(("state", "became"), [("22003", "failed"), ("23514", "failed"), ("P0001", "ready")])
async def test_a_row_that_cant_be_claimed_holds_up_nobody(
    url: str, state: str, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the row itself is at fault for fails; what a trigger raises for reasons of its own stays."""
    async with opened(url) as store:
        odd = NewJob(id=new_id(), type="a", priority=1, key="odd")
        jobs = [odd, *[job("b" if number % 2 else "a") for number in range(10)]]
        await store.insert(jobs)
        execute(url, RAISES.format(state=state))
        lease_id = await store.open_lease("w", 600)
        taken = {each.id for each in await store.claim(lease_id, ["a", "b"], 3)}
        assert len(taken) == 3
        while more := await store.claim(lease_id, ["a", "b"], 3) if len(taken) < 10 else []:
            taken |= {each.id for each in more}
        assert taken == {each.id for each in jobs[1:]}
        found = (await store.fetch([odd.id]))[0]
        assert found is not None
        assert found.state == became
        assert [record.message for record in caplog.records if str(odd.id) in record.message]
        if became == "failed":
            assert found.last_error is not None
            assert (found.last_error.type, "not this one" in found.last_error.message) == ("UnreadableRow", True)
            assert await store.claim(lease_id, ["a", "b"], 3) == []


async def test_when_no_row_can_be_claimed_none_is_moved(url: str) -> None:
    """Then it's not a row that is at fault, but the installation."""
    async with opened(url) as store:
        jobs = [NewJob(id=new_id(), type="a", key="odd") for _ in range(5)]
        await store.insert(jobs)
        execute(url, RAISES.format(state="22003"))
        lease_id = await store.open_lease("w", 600)
        for _ in range(2):
            with pytest.raises(StoreError, match="not this one"):
                await store.claim(lease_id, ["a"], 3)
        assert {found.state for found in await store.fetch([each.id for each in jobs]) if found} == {"ready"}
        execute(url, "DROP TRIGGER raises ON aioqueue.job")
        claims = await asyncio.gather(*[store.claim(lease_id, ["a"], 3) for _ in range(2)])
        assert sum(map(len, claims)) == 5


def test_a_time_without_a_zone_is_refused_for_every_driver() -> None:
    """The text for `enqueue_v1` would mean whatever the session's time zone is."""
    with pytest.raises(RowRejected, match="time zone"):
        encode_jobs([NewJob(id=new_id(), type="a", run_at=datetime(2030, 1, 1))])
