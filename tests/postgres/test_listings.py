"""Listings with every filter and order, over rows of all kinds, with bounds so small that each of them counts."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioqueue.abc import JobFilter, ListOrder
from aioqueue.postgres import _listing_archived, _listing_live, _listing_parts
from aioqueue.testing.memory._listing import fits
from aioqueue.vocabulary._job import JobState
from tests.postgres.libraries import psycopg_connection
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    import asyncpg

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import Job
    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

ORDERS = tuple(ListOrder)
_ID = "(lpad(to_hex(1700000000000 + {n}), 12, '0') || '7000800000' || lpad(to_hex(({n}) * 7919 % 1000003), 10, '0'))::uuid"
_WHEN = "to_timestamp((1700000000000 + n) / 1000.0)"
_ERRORS = """CASE n % 7 WHEN 0 THEN ARRAY[json '{"type":"Old","message":"\\u0000"}', json '{"attempt":1,"type": "ValueError"}']
    WHEN 1 THEN ARRAY[json '{"message":"\\"type\\":\\"ValueError\\"","type":"Odd\\u0001"}'] WHEN 2 THEN ARRAY[json '[]']
    ELSE '{}' END"""
_COMMON = f"""CASE WHEN n % 50 = 0 THEN 'rare' ELSE 'type' || n % 3 END, 1 + n % 4, {_WHEN},
    CASE n % 5 WHEN 0 THEN 'common' WHEN 1 THEN 'key' || n END, CASE WHEN n % 4 = 0 THEN ARRAY['tag', NULL] ELSE '{{}}' END,
    {_ERRORS}"""
# Several jobs have one time each; of some it's one that Python doesn't know.
_TIME = """CASE n % 23 WHEN 5 THEN 'infinity' WHEN 6 THEN '-infinity' WHEN 7 THEN '200000-01-01 00:00:00.000001+00'
    WHEN 8 THEN '0044-03-15 12:00:00+00 BC' ELSE now() + {offset} * interval '1 s' END"""
FILL = f"""
INSERT INTO aioqueue.archive (id, type, priority, created_at, key, tags, errors, run_at, state, attempt, claims, reschedules,
    chain_id, position, finished_at, outcome, metadata, payload)
SELECT {_ID.format(n="n")}, {_COMMON}, now(), CASE n % 11 WHEN 0 THEN 6 WHEN 1 THEN 7 WHEN 2 THEN 5 WHEN 3 THEN 9 ELSE 4 END,
    1, 1, 0, CASE WHEN n % 11 = 4 THEN {_ID.format(n="n - 2")} END, CASE WHEN n % 11 = 4 THEN 1 ELSE 0 END,
    {_TIME.format(offset="(n % 60)")}, CASE n % 6 WHEN 0 THEN 'good' WHEN 1 THEN repeat('long', 60) || n % 2 END, '{{}}', '{{}}'
FROM generate_series(1, 300) AS n;
INSERT INTO aioqueue.job (id, type, priority, created_at, key, tags, errors, run_at, state, claims, lease_id,
    open_blockers, gate)
SELECT {_ID.format(n="n")}, {_COMMON}, {_TIME.format(offset="(n % 40 * 10000 - 200000)")},
    CASE n % 9 WHEN 0 THEN 2 WHEN 1 THEN 0 ELSE 1 END, n % 3, CASE WHEN n % 9 = 0 THEN 1 + n % 2 END,
    CASE WHEN n % 9 = 1 THEN n % 2 ELSE 0 END, CASE WHEN n % 18 = 10 THEN 'pause:key' || n % 3 END
FROM generate_series(301, 500) AS n;
INSERT INTO aioqueue.lease (worker, expires_at) VALUES ('one', now()), ('two', now());
"""
BEGIN = """INSERT INTO aioqueue.job (id, type, run_at)
VALUES (gen_random_uuid(), 'type1', now() + (random() - 0.5) * interval '1 day')"""
END = """WITH gone AS (DELETE FROM aioqueue.job WHERE id = $1 RETURNING *)
INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, position, created_at,
    finished_at, tags, metadata, payload, errors)
SELECT id, type, priority, run_at, 4, attempt, claims, reschedules, position, created_at, now(), tags, metadata, payload, errors
FROM gone"""


async def _fill(url: str) -> None:
    async with connected(url) as connection:
        await connection.execute(FILL)


@pytest.fixture(scope="module")
def filled_url(postgres_databases: Databases) -> Iterator[str]:
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url))
        yield url


@pytest.fixture
async def store(anyio_backend: str, filled_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(filled_url) as store:
        yield store


@pytest.fixture(params=["tiny", "small"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of a page. What it looks at at most is so little that it's never enough, or that it's enough for some."""
    walk, few, look, least, limit = {"tiny": (6, 3, 2, 1, 7), "small": (60, 30, 12, 4, 1_000)}[request.param]
    for module in (_listing_live, _listing_archived, _listing_parts):
        for name, size in (("WALK", walk), ("FEW", few), ("LOOK", look)):
            monkeypatch.setattr(module, name, size, raising=False)
    monkeypatch.setattr(_listing_parts, "_LEAST_OF_A_RANGE", least)
    monkeypatch.setattr(_listing_parts, "_LEAST_FILTERED", least)
    return limit


def _id_of(number: int) -> UUID:
    return UUID(f"{1700000000000 + number:012x}7000800000{number * 7919 % 1000003:010x}")


def _created(number: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=1700000000000 + number)


FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "ends": {"ends": True},
    **{state.value: {"states": [state]} for state in JobState},
    "some states": {"states": ["failed", "ready", "completed"]},
    "unfinished": {"states": ["blocked", "scheduled", "ready", "running"]},
    "held and others": {"states": ["held", "failed", "scheduled"]},
    "held, running": {"states": ["held", "running"]},
    "held and blocked": {"states": ["held", "blocked"]},
    "held of types": {"types": ["type0", "type1"], "states": ["held"]},
    "held with a key": {"key": "common", "states": ["held"]},
    "type": {"types": ["type1"]},
    "rare type": {"types": ["rare"]},
    "types": {"types": ["type0", "type1", "type2", "rare", "nothing"]},
    "types and states": {"types": ["type0", "type2"], "states": ["failed", "scheduled", "continued", "blocked"]},
    "types that run": {"types": ["type0", "rare"], "states": ["running"]},
    "ends of a type": {"types": ["type2"], "ends": True, "states": ["continued", "completed"]},
    "key": {"key": "common"},
    "key and state": {"key": "common", "states": ["failed", "ready"]},
    "its own key": {"key": "key131"},
    "tag": {"tag": "tag"},
    "tag and type": {"tag": "tag", "types": ["type1"]},
    "chain": {"chain_id": _id_of(24)},
    "chain of one": {"chain_id": _id_of(400)},
    "worker": {"worker": "two"},
    "worker and state": {"worker": "one", "states": ["running", "ready"], "types": ["type0"]},
    "worker elsewhere": {"worker": "one", "states": ["ready"]},
    "outcome": {"outcome": "good"},
    "long outcome": {"outcome": "long" * 60 + "1"},
    "outcome and type": {"outcome": "good", "types": ["type0"], "states": ["failed", "completed"]},
    "error": {"error_type": "ValueError"},
    "odd error": {"error_type": "Odd\x01"},
    "older error": {"error_type": "Old"},
    "error and state": {"error_type": "ValueError", "states": ["failed"]},
    "created": {"created_after": _created(250), "created_before": _created(350)},
    "finished": {"finished_after": datetime.now(UTC) - timedelta(hours=1)},
    "finished before": {"finished_before": datetime(2020, 1, 1, tzinfo=UTC)},
    "finished between": {
        "finished_after": datetime(2020, 1, 1, tzinfo=UTC),
        "finished_before": datetime.now(UTC) + timedelta(hours=1),
        "states": ["failed", "completed"],
    },
    "ids": {"first_id": _id_of(280), "last_id": _id_of(320)},
    "ids from": {"first_id": _id_of(480), "states": ["ready", "running"]},
    "ids to": {"last_id": _id_of(20), "types": ["type0"]},
}


async def _in_order(connection: asyncpg.Connection[Any], order: ListOrder) -> list[UUID]:
    """All jobs, as the database sorts them."""
    both = "SELECT id FROM aioqueue.job UNION ALL SELECT id FROM aioqueue.archive"
    queries = {
        ListOrder.NEWEST: f"SELECT id FROM ({both}) AS jobs ORDER BY id DESC",
        ListOrder.OLDEST: f"SELECT id FROM ({both}) AS jobs ORDER BY id",
        ListOrder.DUE: "SELECT id FROM aioqueue.job ORDER BY run_at, id",
        ListOrder.FINISHED: "SELECT id FROM aioqueue.archive ORDER BY finished_at DESC, id DESC",
    }
    return [row[0] for row in await connection.fetch(queries[order])]


async def _turned(store: PostgresStore, where: JobFilter, order: ListOrder, limit: int) -> list[UUID]:
    seen: list[UUID] = []
    cursor: str | None = None
    for _ in range(2_000):
        page = await store.list(where, limit, cursor, order=order)
        assert len(page.jobs) <= limit
        seen += [each.id for each in page.jobs]
        if (cursor := page.cursor) is None:
            return seen
    raise AssertionError("no end")


def _expected(jobs: dict[UUID, Job], ids: Sequence[UUID], where: JobFilter, unknown: set[UUID]) -> list[UUID]:
    left = [each for each in ids if fits(jobs[each], where) and not (where.states and each in unknown)]
    return [each for each in left if not where.ends or jobs[each].state is not JobState.CONTINUED]


@pytest.mark.parametrize("order", ORDERS)
async def test_pages_show_what_fits_once_and_in_order(
    store: PostgresStore, filled_url: str, order: ListOrder, limit: int
) -> None:
    async with connected(filled_url) as connection:
        ids = await _in_order(connection, order)
        unknown = {row[0] for row in await connection.fetch("SELECT id FROM aioqueue.archive WHERE state = 9")}
    jobs = {each.id: each for each in await store.fetch(ids) if each is not None}
    for name, values in FILTERS.items():
        where = JobFilter(**values)
        expected = _expected(jobs, ids, where, unknown)
        assert await _turned(store, where, order, limit) == expected, name


async def test_pages_of_ids(store: PostgresStore, filled_url: str, limit: int) -> None:
    async with connected(filled_url) as connection:
        ids = await _in_order(connection, ListOrder.NEWEST)
    for where in (JobFilter(), JobFilter(types=["type1"], states=["ready", "completed"])):
        seen: list[UUID] = []
        cursor: str | None = None
        while True:
            page = await store.list_ids(where, limit, cursor)
            assert all(type(each) is UUID for each in page.ids)
            seen += page.ids
            if (cursor := page.cursor) is None:
                break
        expected = [each.id for each in await store.fetch(ids) if each is not None and fits(each, where)]
        assert seen == expected


async def test_every_listing_can_be_executed_by_psycopg(store: PostgresStore, filled_url: str) -> None:
    async with psycopg_connection(filled_url) as library:
        verbs = store.within(library.tx)
        for values in FILTERS.values():
            for order in ORDERS:
                page = await store.list(JobFilter(**values), 3, order=order)
                assert await verbs.list(JobFilter(**values), 3, order=order) == page
                if page.cursor is not None:
                    following = await store.list(JobFilter(**values), 3, page.cursor, order=order)
                    assert await verbs.list(JobFilter(**values), 3, page.cursor, order=order) == following


async def test_what_stays_is_shown_once_while_others_come_and_go(postgres_url: str, limit: int) -> None:
    """Others are inserted, ended and deleted between the pages; what stays may end meanwhile, in the orders by id."""
    rng = random.Random(7)
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await connection.execute(FILL)
        for order in ORDERS:
            table = {ListOrder.DUE: "job", ListOrder.FINISHED: "archive"}.get(order)
            stays = set(await _in_order(connection, order))
            stays = {each for each in stays if each.int % 3}
            others = [each for each in await _in_order(connection, order) if each not in stays]
            ended = [each for each in await _in_order(connection, ListOrder.DUE) if table is None and each in stays]
            seen: list[UUID] = []
            cursor: str | None = None
            while True:
                page = await store.list(JobFilter(), min(limit, 9), cursor, order=order)
                seen += [each.id for each in page.jobs]
                if (cursor := page.cursor) is None:
                    break
                await connection.execute(BEGIN)
                gone = [others.pop(rng.randrange(len(others))) for _ in range(min(2, len(others)))]
                await connection.execute("DELETE FROM aioqueue.job WHERE id = ANY($1::uuid[])", gone)
                await connection.execute("DELETE FROM aioqueue.archive WHERE id = ANY($1::uuid[])", gone)
                if ended:
                    await connection.execute(END, ended.pop(rng.randrange(len(ended))))
            assert len(seen) == len(set(seen)), order
            assert stays <= set(seen), order


async def test_what_a_transaction_has_made_due_is_ready_in_it(postgres_url: str) -> None:
    later = job(delay=600)
    async with opened(postgres_url) as store:
        await store.insert([later])
        async with store.transaction() as tx:
            await tx.operations.run_now([later.id])
            now = job()
            await tx.insert([now])
            for order in (ListOrder.NEWEST, ListOrder.DUE):
                page = await tx.operations.list(JobFilter(states=["ready"], types=["a"]), 10, order=order)
                assert {each.id for each in page.jobs} == {later.id, now.id}
