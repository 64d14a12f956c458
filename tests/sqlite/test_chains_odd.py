"""Chains in which somebody has written strange values with SQL: neighbours go on, and nobody waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import chain, continued, end, listed
from tests.sqlite.conftest import execute, new_job, spoil

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

ODD_PLACES = [
    "chain_id = 'abc'",
    "chain_id = x'00ff'",
    "chain_id = id",
    "position = 'abc'",
    "position = ''",
    "position = x'00'",
    "position = x''",
    "position = -3",
    "position = 1.5",
    "position = 9e999",
    "position = -9e999",
    "position = 9223372036854775807",
]


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("table", ["archive", "job"])
async def test_pages_of_chains_with_odd_steps(store: SQLiteStore, path: Path, table: str, limit: int) -> None:
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 3)
    others = await chain(store, lease, 3)
    ids = {step.id for step in steps}
    columns = "type, priority, state, run_at, created_at, attempt, claims, reschedules, tags, metadata, errors, payload"
    values = f"'a', 2, {5 if table == 'archive' else 0}, 0, 0, 1, 1, 0, '[]', '{{}}', '[]', '{{}}'"
    if table == "archive":
        columns, values = f"{columns}, finished_at", f"{values}, 1"
    positions = ["'abc'", "'abc'", "''", "x'00'", "x''", "CAST(x'ff' AS TEXT)", "-3", "1.5", "9e999", "-9e999", "1", "1"]
    for position in [*positions, "9223372036854775807", "1000000000", "'odd 4.'"]:
        ids.add(odd := new_id())
        row = f"'{odd}', '{steps[0].id}', {position}, {values}"
        execute(path, f"INSERT INTO {table} (id, chain_id, position, {columns}) VALUES ({row})")
    found = await listed(store, steps[0].id, limit)
    assert len(found) == len(ids)
    assert {job.id for job in found} == ids
    assert [job.id for job in await listed(store, others[0].id, limit)] == [step.id for step in others]
    ends = await store.fetch_ends([others[0].id, steps[0].id])
    assert ends[0] is not None
    assert ends[0].id == others[-1].id
    assert await store.delete([others[0].id]) == [Changed.DONE]


@pytest.mark.parametrize(
    "cursor", ["4.", "4.odd 1 t t", "4.number x t t", "4.number 1 t", "4.number 1 tzz t", "4.a b c d e", ""]
)
async def test_cursors_that_arent_ours(store: SQLiteStore, cursor: str) -> None:
    steps = await chain(store, await store.open_lease("w", 600), 2)
    try:
        page = await store.list_chain(steps[0].id, 1, cursor)
    except ValueError:
        return
    assert len(page.jobs) <= 1


@pytest.mark.parametrize("change", ODD_PLACES)
async def test_an_odd_step_ends_its_own_chain_only(store: SQLiteStore, path: Path, change: str) -> None:
    lease = await store.open_lease("w", 600)
    mine, others = await chain(store, lease, 3), await chain(store, lease, 3)
    await store.settle([end(mine[-1], SettlementKind.RETRIED), end(others[-1], SettlementKind.RETRIED)])
    spoil(path, mine[-1].id, change)
    claimed = {job.id: job for job in await store.claim(lease, ["a"], 10)}
    assert others[-1].id in claimed
    sound = [end(job, output=b"1") for job in claimed.values()]
    assert {result.lost for result in await store.settle(sound)} == {None}
    (job, ends, other) = await store.fetch_ends([mine[-1].id, mine[0].id, others[0].id])
    assert other is not None
    assert (other.id, other.state) == (others[-1].id, JobState.COMPLETED)
    assert job is not None
    assert job.id == mine[-1].id
    if change.startswith("position"):
        # Whoever waits for the chain hears that it has failed.
        assert ends == job
        assert job.state is JobState.FAILED
        assert job.position == 2
    assert {step.id for step in await listed(store, others[0].id, 2)} == {step.id for step in others}
    await store.retry([mine[-1].id])
    again = await store.claim(lease, ["a"], 10)
    assert {result.lost for result in await store.settle([continued(job) for job in again])} <= {None}


@pytest.mark.parametrize("change", ODD_PLACES)
async def test_a_running_step_becomes_odd(store: SQLiteStore, path: Path, change: str) -> None:
    lease = await store.open_lease("w", 600)
    mine, others = await chain(store, lease, 2, key="k", unique=Unique()), await chain(store, lease, 2)
    spoil(path, mine[-1].id, change)
    results = await store.settle([continued(mine[-1]), continued(others[-1])])
    assert results[1].lost is None
    following = await store.claim(lease, ["a"], 10)
    assert others[0].id in {job.chain_id for job in following}
    assert {result.lost for result in await store.settle([end(job) for job in following])} == {None}
    (other,) = await store.fetch_ends([others[0].id])
    assert other is not None
    assert other.state is JobState.COMPLETED
    # The key isn't kept by nobody.
    (key,) = await store.insert([new := new_job(key="k", unique=Unique())])
    assert key.created
    assert key.id == new.id
