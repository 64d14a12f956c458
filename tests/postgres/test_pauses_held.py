"""What has a paused key on PostgreSQL, while it is held: whatever is done to it, and how it is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from aioqueue.abc import JobFilter
from aioqueue.postgres import _operate
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Ending, JobState, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres.test_notifications import about_jobs, tapped
from tests.postgres.test_pauses import ALL, KEY, TYPE, claim, parked, states, waiting
from tests.postgres_server import execute

if TYPE_CHECKING:
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio


async def test_parked_ones_expire_are_cancelled_deleted_and_ended(postgres_url: str) -> None:
    late, cancelled, deleted, ended = (job(key="k", expires=600.0), job(key="k"), job(key="k"), job(key="k"))
    after = job("b", blockers=(NewBlocker(late.id, settled=True),))
    async with opened(postgres_url) as store:
        await parked(store, late, cancelled, deleted, ended)
        await store.insert([after])
        execute(postgres_url, f"UPDATE aioqueue.job SET expires_at = now() WHERE id = '{late.id}'")
        while (await store.tend(10)).more:
            pass
        await store.cancel([cancelled.id], "enough")
        assert await store.delete([deleted.id]) == [Changed.DONE]
        await store.end([Ending(id=ended.id, kind=SettlementKind.COMPLETED, output=b"1")])
        assert await states(store, late, cancelled, deleted, ended) == [
            JobState.CANCELLED,
            JobState.CANCELLED,
            None,
            JobState.COMPLETED,
        ]
        assert await states(store, after) == [JobState.READY]
        await store.retry([cancelled.id])
        assert await states(store, cancelled) == [JobState.READY]
        assert await claim(store) == []
        assert await states(store, cancelled) == [JobState.HELD]


async def test_parked_ones_are_rescheduled_and_brought_forward(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_operate, "_PATIENCE_SECONDS", 0.0)
    held = job(key="k")
    async with opened(postgres_url) as store, connected(postgres_url) as somebody:
        await parked(store, held)
        await store.insert([blocker := job("b"), blocked := job("c", blockers=(NewBlocker(held.id),))])
        assert await store.run_now([held.id, blocked.id]) == [Changed.DONE, Changed.WRONG_STATE]
        assert await store.reschedule([held.id], delay=3000.0) == [Changed.DONE]
        assert await waiting(store) == {(PauseTarget.KEY, "k"): 0}
        await store.resume(PauseTarget.KEY, ["k"])
        assert await states(store, held) == [JobState.SCHEDULED]
        due = (await store.next_due(["a"])).job
        assert due is not None
        assert 2900 < due < 3000
        await store.pause([KEY])
        execute(postgres_url, f"UPDATE aioqueue.job SET state = 0, gate = 'pause:k' WHERE id = '{held.id}'")
        transaction = somebody.transaction()
        await transaction.start()
        await somebody.execute("SELECT FROM aioqueue.job FOR UPDATE")
        assert await store.run_now([blocker.id, held.id, blocked.id]) == [
            Changed.CONTENDED,
            Changed.CONTENDED,
            Changed.WRONG_STATE,
        ]
        await transaction.rollback()


@pytest.mark.parametrize("by_function", [False, True], ids=["insert", "function"])
async def test_a_parked_one_is_replaced(postgres_url: str, by_function: bool) -> None:
    held = job(key="k", unique=Unique())
    new = job(key="k", unique=Unique(on_conflict="replace"), priority=1)
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await parked(store, held)
        if by_function:
            sql, parameters = store.statement([new], placeholder="$1")
            await connection.execute(sql, *parameters)
        else:
            await store.insert([new])
        (replaced,) = await store.fetch([held.id])
        assert replaced is not None
        assert (replaced.state, replaced.priority, replaced.held_by) == (JobState.READY, 1, None)
        assert await claim(store) == []
        assert await states(store, held) == [JobState.HELD]


async def test_held_and_blocked_are_told_apart_everywhere(postgres_url: str) -> None:
    held = job(key="k")
    blocked, after = job("b", blockers=(NewBlocker(held.id),)), job("c")
    async with opened(postgres_url) as store:
        await parked(store, held)
        await store.insert([blocked, after])
        counts = {name: dict(each.counts) for name, each in (await store.stats()).types.items()}
        assert counts == {"a": {JobState.HELD: 1}, "b": {JobState.BLOCKED: 1}, "c": {JobState.READY: 1}}
        for state, one in ((JobState.HELD, held), (JobState.BLOCKED, blocked)):
            page = await store.list(JobFilter(states=frozenset({state})), 10)
            assert [each.id for each in page.jobs] == [one.id]
        assert [each.state for each in await store.list_blockers(blocked.id, 10)] == [JobState.HELD]
        assert [each.state for each in await store.list_dependents(held.id, 10)] == [JobState.HELD]
        shown = execute(postgres_url, "SELECT type, state, held_by, origin FROM aioqueue.jobs ORDER BY type")
        assert shown == [("a", "held", "pause:k", None), ("b", "blocked", None, None), ("c", "ready", None, None)]


async def test_a_blocked_job_with_a_paused_key_is_parked_once_it_is_due(postgres_url: str) -> None:
    first = job("b")
    blocked = job(key="k", blockers=(NewBlocker(first.id),))
    async with opened(postgres_url) as store:
        await store.insert([first, blocked])
        await store.pause([KEY])
        (claimed,) = await claim(store, 10, ["a", "b"])
        assert await states(store, blocked) == [JobState.BLOCKED]
        await store.settle([completed(claimed)])
        assert await claim(store) == []
        assert await states(store, blocked) == [JobState.HELD]
        await store.resume(PauseTarget.KEY, ["k"])
        (claimed,) = await claim(store)
        assert [each.chain_id for each in claimed.blockers] == [first.id]


# -- who waits, and who is told ---------------------------------------------------------------------------------------


async def test_how_many_wait(postgres_url: str) -> None:
    """Those that wait for several reasons count for each; those that aren't due for none."""
    async with opened(postgres_url) as store:
        await parked(store, job(key="k"), job("b", key="k"))
        later = [job(key="k", delay=100.0), job(delay=100.0)]
        await store.insert([job(key="k"), job(), job("b"), job("c"), job("c", blockers=(NewBlocker(later[1].id),)), *later][:4])
        await store.insert(later)
        await store.pause([TYPE, ALL])
        assert await waiting(store) == {
            (PauseTarget.ALL, ""): 6,
            (PauseTarget.KEY, "k"): 3,
            (PauseTarget.TYPE, "a"): 3,
        }


async def test_others_are_told_when_a_pause_is_lifted(postgres_url: str) -> None:
    """And this process's listeners. Of a key only if there is something to claim again."""
    told: list[Notification] = []
    async with opened(postgres_url) as store:
        await parked(store, job(key="k"))
        await store.pause([TYPE, ALL, NewPause(target=PauseTarget.KEY, value="other")])
        async with tapped(postgres_url) as notes:
            with store.subscribe(told.append):
                await store.resume(PauseTarget.KEY, ["other"])
                for pause in (ALL, TYPE, KEY):
                    await store.resume(pause.target, [pause.value])
    assert [orjson.loads(note)["t"] for note in about_jobs(notes)] == [None, ["a"], ["a"]]
    assert [each.types for each in told] == [None, {"a"}, {"a"}]
