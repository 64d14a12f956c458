"""What telling, tending, retrying and settling jobs that others wait for costs over a big backlog with many edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioqueue.postgres._resolve import MOST_TOLD
from aioqueue.postgres._tend import _SWEPT_ROWS
from tests.postgres.backlog import explain
from tests.postgres.test_plans_blockers import CROWD, MANY, STATEMENTS, bounded, connection, edges_url, ids

if TYPE_CHECKING:
    import asyncpg

__all__ = ["connection", "edges_url"]

pytestmark = pytest.mark.anyio

NIL = UUID(int=0)


@pytest.mark.parametrize("name", ["resolve_lock", "resolve_lock_free"])
async def test_looking_who_waits(connection: asyncpg.Connection[Any], name: str) -> None:
    """A bounded number of a crowd."""
    plan = await explain(connection, STATEMENTS[name], [[CROWD], MOST_TOLD, []])
    bounded(plan, buffers=16 * MOST_TOLD, rows=2 * MOST_TOLD + 10)


async def test_telling(connection: asyncpg.Connection[Any]) -> None:
    """Some of the crowd, of whom each waits for another chain, too: a bounded number of pages for each."""
    count = 500
    waiting = await ids(connection, "job", count, 5)
    plan = await explain(connection, STATEMENTS["resolve_tell"], [waiting, [0] * count, [CROWD] * count, None])
    bounded(plan, buffers=60 * count, rows=2 * count)


async def test_telling_after_a_quiet_moment(connection: asyncpg.Connection[Any]) -> None:
    """Statistics from when there were no edges, and no jobs that waited, don't make it read all edges for each."""
    count = 500
    waiting = await ids(connection, "job", count, 5)
    stale = "UPDATE pg_class SET reltuples = 0, relpages = 100 WHERE relname IN ('job', 'archive', 'blocker', 'chain_end')"
    before = await connection.fetch(
        "SELECT oid, reltuples, relpages FROM pg_class WHERE relname IN ('job', 'archive', 'blocker', 'chain_end')"
    )
    await connection.execute(stale)
    try:
        plan = await explain(connection, STATEMENTS["resolve_tell"], [waiting, [0] * count, [CROWD] * count, None])
    finally:
        for row in before:
            await connection.execute("UPDATE pg_class SET reltuples = $2, relpages = $3 WHERE oid = $1", *row)
    bounded(plan, buffers=60 * count, rows=2 * count)


async def test_whether_somebody_is_left(connection: asyncpg.Connection[Any]) -> None:
    ended = await ids(connection, "archive", 100, 3 * MANY)
    bounded(await explain(connection, STATEMENTS["resolve_rest"], [[*ended, CROWD]]), buffers=1_500, rows=400)


@pytest.mark.parametrize("half", [False, True])
async def test_looking_what_there_is_to_do(connection: asyncpg.Connection[Any], half: bool) -> None:
    begin = UUID("80000000-0000-7000-8000-000000000000") if half else NIL
    plan = await explain(connection, STATEMENTS["tend_look"], [begin, NIL, begin, begin, _SWEPT_ROWS])
    bounded(plan, buffers=22 * _SWEPT_ROWS, rows=_SWEPT_ROWS + 10)


@pytest.mark.parametrize("name", ["tend_look_briefly", "tend_untold", "tend_late"])
async def test_what_is_looked_for_always(connection: asyncpg.Connection[Any], name: str) -> None:
    """There's nothing of it here."""
    arguments = [100, []] if name == "tend_late" else []
    bounded(await explain(connection, STATEMENTS[name], arguments), buffers=80, rows=10)


@pytest.mark.parametrize("name", ["tend_gone", "tend_known", "tend_lock_ends", "tend_forget"])
async def test_ends_of_chains(connection: asyncpg.Connection[Any], name: str) -> None:
    some = await ids(connection, "archive", 100, 3 * MANY)
    bounded(await explain(connection, STATEMENTS[name], [some]), buffers=2_500, rows=300)


@pytest.mark.parametrize("name", ["tend_drop_edges", "settle_unneeded", "retry_edges"])
async def test_edges_of_jobs(connection: asyncpg.Connection[Any], name: str) -> None:
    some = await ids(connection, "job", 100, 3 * MANY + 5)
    bounded(await explain(connection, STATEMENTS[name], [some]), buffers=2_500, rows=300)


@pytest.mark.parametrize("name", ["ends_needed", "ends_settled"])
async def test_storing_ends_for_those_that_wait(connection: asyncpg.Connection[Any], name: str) -> None:
    some = await ids(connection, "archive", 100, 3 * MANY)
    bounded(await explain(connection, STATEMENTS[name], [some, some, [""] * 100]), buffers=3_500, rows=400)


async def test_what_failed_through_a_chain(connection: asyncpg.Connection[Any]) -> None:
    some = await ids(connection, "archive", 100, 3 * MANY)
    bounded(await explain(connection, STATEMENTS["retry_dependents"], [some]), buffers=2_500, rows=300)
    bounded(await explain(connection, STATEMENTS["retry_ended"], [some]), buffers=1_000, rows=300)
