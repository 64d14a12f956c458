"""Listing, counting, and what operators change."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue.abc import Changed
from aioqueue.client import Client
from aioqueue.errors import ConfigurationError, NotSupported
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from tests.client.fake_store import FakeStore
from tests.client.jobs import add, completed, ended, fetch, work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

pytestmark = pytest.mark.anyio


async def test_listings_are_filtered(client: Client) -> None:
    done = await client.enqueue(add(1, 2))
    await work(client.store, completed(b"3"))
    keyed = await client.enqueue(add(3, 4).options(key="sum"))
    tagged = await client.enqueue(fetch("a").options(tags=["nightly"]))
    later = await client.enqueue(fetch("b").options(delay=3600))

    async def ids(**filters: object) -> list[object]:
        return [job.id for job in (await client.list_jobs(**filters)).jobs]

    assert await ids() == [later.id, tagged.id, keyed.id, done.id]
    assert await ids(states=["completed"]) == [done.id]
    assert await ids(states=[JobState.READY, JobState.SCHEDULED]) == [later.id, tagged.id, keyed.id]
    assert await ids(types=[add]) == [keyed.id, done.id]
    assert await ids(types=["test.fetch", "test.other"]) == [later.id, tagged.id]
    assert await ids(key="sum") == [keyed.id]
    assert await ids(tag="nightly") == [tagged.id]


async def test_listings_come_in_pages(client: Client) -> None:
    handles = await client.enqueue_many([add(number, 1) for number in range(25)])
    page, found = await client.list_jobs(limit=10), list[object]()
    found += [job.id for job in page.jobs]
    while page.cursor is not None:
        page = await client.list_jobs(limit=10, cursor=page.cursor)
        found += [job.id for job in page.jobs]
    assert found == [handle.id for handle in reversed(handles)]


async def test_listings_that_are_refused(client: Client) -> None:
    for limit in (0, 1001):
        with pytest.raises(ConfigurationError):
            await client.list_jobs(limit=limit)
    with pytest.raises(ConfigurationError, match="several"):
        await client.list_jobs(states="failed")
    with pytest.raises(ValueError, match="lost"):
        await client.list_jobs(states=["lost"])
    with pytest.raises(ValueError):
        await client.list_jobs(cursor="nonsense")


async def test_numbers(client: Client) -> None:
    await client.enqueue_many([add(number, 1) for number in range(3)])
    await client.enqueue(fetch("b").options(delay=3600))
    stats = await client.stats()
    assert stats.types["test.add"].counts[JobState.READY] == 3
    assert stats.types["test.fetch"].counts[JobState.SCHEDULED] == 1


async def test_retry_and_run_now_and_delete(client: Client) -> None:
    failed = await client.enqueue(add(1, 2))
    await work(client.store, ended(SettlementKind.FAILED, "no"))
    later = await client.enqueue(add(1, 2).options(delay=3600))
    absent = new_id()
    assert await client.retry() == {}
    assert await client.retry(failed, later.id, absent, failed.id) == {
        failed.id: Changed.DONE,
        later.id: Changed.WRONG_STATE,
        absent: Changed.NOT_FOUND,
    }
    assert await client.run_now(later) == {later.id: Changed.DONE}
    assert len(await work(client.store, completed(b"3"))) == 2
    assert await failed.result(timeout=60) == 3
    assert await client.delete(failed, absent) == {failed.id: Changed.DONE, absent: Changed.NOT_FOUND}
    assert await client.store.fetch([failed.id]) == [None]


async def test_pruning_in_portions(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 2)
    done = [await client.enqueue(add(number, 1)) for number in range(5)]
    other = await client.enqueue(fetch("a"))
    for _ in range(6):
        await work(client.store, completed(b"3"))
    waiting = await client.enqueue(add(9, 9))
    assert await client.prune(older_than=timedelta(hours=1)) == 0
    assert await client.prune(older_than=0, states=["failed", "cancelled"]) == 0
    portions: list[Sequence[UUID]] = []
    assert await client.prune(older_than=0, states=[JobState.COMPLETED], types=[add], on_portion=portions.append) == 5
    assert [len(portion) for portion in portions] == [2, 2, 1]
    assert {each for portion in portions for each in portion} == {handle.id for handle in done}
    assert {job.id for job in (await client.list_jobs()).jobs} == {other.id, waiting.id}
    assert await client.prune(older_than=0) == 1


async def test_what_finishes_while_others_are_pruned_stays(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would go on for as long as jobs finish as fast as they're removed."""
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 1)
    for number in range(2):
        await client.enqueue(add(number, 1))
        await work(client.store, completed(b"3"))
    ages: list[float] = []
    prune = client.store.prune

    async def slow(state: object, older_than: float, *arguments: object) -> object:
        ages.append(older_than)
        await anyio.sleep(0.02)
        return await prune(state, older_than, *arguments)

    monkeypatch.setattr(client.store, "prune", slow)
    await client.prune(older_than=0, states=["completed"])
    assert len(ages) >= 2
    assert ages[1] - ages[0] >= 0.02


class WithoutPruning(FakeStore):
    """A store of somebody's, from before there was pruning."""

    prune: Any = None


async def test_prunings_that_are_refused(client: Client) -> None:
    for duration in (-1, float("nan"), float("inf"), "1d"):
        with pytest.raises(ConfigurationError, match="older_than"):
            await client.prune(older_than=duration)
    with pytest.raises(ConfigurationError, match="only finished jobs are pruned, not those that are ready, running"):
        await client.prune(older_than=0, states=["running", "failed", "ready"])
    with pytest.raises(ConfigurationError, match="several"):
        await client.prune(older_than=0, types="test.add")
    with pytest.raises(ValueError, match="lost"):
        await client.prune(older_than=0, states=["lost"])
    async with Client(WithoutPruning()) as older:
        with pytest.raises(NotSupported) as caught:
            await older.prune(older_than=0)
    assert caught.value.ability == "prune"
