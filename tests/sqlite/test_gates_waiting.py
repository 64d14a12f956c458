"""Where nothing may run at gates, workers wait: they aren't told that something is due, again and again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import _gates_news
from aioqueue.vocabulary._gates import By, GateRules, LimitKind, NewLimit, SequenceMember
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from tests.sqlite.conftest import execute, new_job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

SHARED = GateRules(type="a", shared="stripe")
RATE = GateRules(type="a", rate=True)
FAIR = GateRules(type="a", fair_by=By("tenant"))
FAIR_AND_LIMITED = GateRules(type="a", fair_by=By("tenant"), shared="stripe")
STRICT = SequenceMember(name="s", strict=True)
DAY = 86400.0


class Scene:
    """A store with one worker, and something that keeps its jobs."""

    def __init__(self, store: SQLiteStore, path: Path, rules: GateRules | None) -> None:
        self.store = store
        self.path = path
        self.rules = {} if rules is None else {"a": rules}
        self.lease = 0

    async def claim(self) -> list[ClaimedJob]:
        self.lease = self.lease or await self.store.open_lease("w", 600)
        return list(await self.store.claim(self.lease, ["a"], 10, gates=self.rules))

    async def settle(self, job: ClaimedJob, kind: SettlementKind = SettlementKind.COMPLETED) -> None:
        await self.store.settle([Settlement(id=job.id, claims=job.claims, lease_id=self.lease, kind=kind)])

    async def due(self) -> float | None:
        return (await self.store.next_due(["a"], gates=self.rules)).job

    async def one_runs_and_others_wait(self) -> ClaimedJob:
        await self.store.put_limits([NewLimit(name="stripe", places=1)])
        await self.store.insert([new_job(key="k") for _ in range(3)])
        (running,) = await self.claim()
        return running


async def limit_taken(scene: Scene) -> None:
    await scene.one_runs_and_others_wait()


async def limit_of_0(scene: Scene) -> None:
    await scene.store.put_limits([NewLimit(name="stripe", places=0)])
    await scene.store.insert([new_job() for _ in range(3)])


async def type_paused(scene: Scene) -> None:
    running = await scene.one_runs_and_others_wait()
    await scene.store.pause([NewPause(target=PauseTarget.TYPE, value="a")])
    await scene.settle(running)


async def key_paused(scene: Scene) -> None:
    running = await scene.one_runs_and_others_wait()
    await scene.store.pause([NewPause(target=PauseTarget.KEY, value="k")])
    await scene.settle(running)


async def all_paused(scene: Scene) -> None:
    await scene.store.insert([new_job(payload=b'{"tenant":"%d"}' % n) for n in range(3)])
    assert len(await scene.store.claim(await scene.store.open_lease("x", 600), ["a"], 1, gates=scene.rules)) == 1
    await scene.store.pause([NewPause(target=PauseTarget.ALL)])


async def key_in_turns_paused(scene: Scene) -> None:
    await scene.store.pause([NewPause(target=PauseTarget.KEY, value="k")])
    await scene.store.insert([new_job(payload=b'{"tenant":"%d"}' % n, key="k") for n in range(3)])


async def turns_at_a_limit_of_0(scene: Scene) -> None:
    await scene.store.put_limits([NewLimit(name="stripe", places=0)])
    await scene.store.insert([new_job(payload=b'{"tenant":"%d"}' % n) for n in range(30)])


async def rate_used_up(scene: Scene) -> None:
    await scene.store.put_limits([NewLimit(name="rate:a", kind=LimitKind.STARTS, places=1, per=DAY, burst=1)])
    await scene.store.insert([new_job() for _ in range(3)])
    assert len(await scene.claim()) == 1


async def rate_woken_too_early(scene: Scene) -> None:
    await rate_used_up(scene)
    assert await scene.claim() == []
    execute(scene.path, "UPDATE gate_rate SET wake_at = 1")


async def rate_of_0(scene: Scene) -> None:
    await rate_woken_too_early(scene)
    await scene.store.put_limits([NewLimit(name="rate:a", kind=LimitKind.STARTS, places=0, per=DAY, burst=1)])
    execute(scene.path, "UPDATE gate_rate SET wake_at = 1")


async def sequence_taken(scene: Scene) -> None:
    await scene.store.insert([new_job(sequence=SequenceMember(name="s")) for _ in range(3)])
    assert len(await scene.claim()) == 1


async def sequence_kept_by_a_failed_one(scene: Scene) -> None:
    await scene.store.insert([new_job(sequence=SequenceMember(name="s", block=True)) for _ in range(3)])
    (running,) = await scene.claim()
    await scene.settle(running, SettlementKind.FAILED)


async def strict_sequence_before_its_time(scene: Scene) -> None:
    await scene.store.insert([new_job(sequence=STRICT, delay=DAY), *(new_job(sequence=STRICT) for _ in range(2))])


async def strict_sequence_with_a_paused_key(scene: Scene) -> None:
    await scene.store.pause([NewPause(target=PauseTarget.KEY, value="k")])
    await scene.store.insert([new_job(sequence=STRICT, key="k"), *(new_job(sequence=STRICT) for _ in range(2))])


async def marks_of_nobody(scene: Scene) -> None:
    await limit_of_0(scene)
    execute(
        scene.path,
        "INSERT INTO gate_mark (gate) VALUES ('nothing'), ('sequence=none'), ('stripe'), ('fair:a'), ('rate:a'), ('job:')",
    )


async def promotion_refused(scene: Scene) -> None:
    await scene.settle(await scene.one_runs_and_others_wait())
    execute(scene.path, "CREATE TRIGGER refuses BEFORE DELETE ON gate_mark BEGIN SELECT RAISE(ABORT, 'no'); END")


SCENES: list[tuple[Callable[[Scene], Awaitable[None]], GateRules | None]] = [
    *((each, SHARED) for each in (limit_taken, limit_of_0, type_paused, key_paused, marks_of_nobody)),
    *((each, FAIR) for each in (all_paused, key_in_turns_paused)),
    (turns_at_a_limit_of_0, FAIR_AND_LIMITED),
    *((each, RATE) for each in (rate_used_up, rate_woken_too_early, rate_of_0)),
    *((each, None) for each in (sequence_taken, sequence_kept_by_a_failed_one)),
    *((each, None) for each in (strict_sequence_before_its_time, strict_sequence_with_a_paused_key)),
]


@pytest.mark.parametrize(("happens", "rules"), SCENES, ids=lambda each: getattr(each, "__name__", ""))
async def test_nobody_is_told_twice_of_what_cannot_be_claimed(
    store: SQLiteStore, path: Path, happens: Callable[[Scene], Awaitable[None]], rules: GateRules | None
) -> None:
    scene = Scene(store, path, rules)
    await happens(scene)
    for _ in range(2):
        told = 0
        for _ in range(4):
            assert await scene.claim() == []
            told += await scene.due() == 0
        assert told <= 1
        assert await scene.due() != 0
        await store.tend(100)


async def test_what_is_refused_is_told_once_and_tried_again_later(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others are claimed meanwhile."""
    now = time.monotonic()
    monkeypatch.setattr(_gates_news, "time", SimpleNamespace(monotonic=lambda: now))
    scene = Scene(store, path, SHARED)
    await promotion_refused(scene)
    for wait in (1, 2, 4):
        assert await scene.claim() == []
        assert await scene.claim() == []
        assert 0.9 * wait <= (await scene.due() or 0) <= wait
        now += wait
    await store.put_limits([NewLimit(name="stripe", places=2)])
    await store.insert([newer := new_job()])
    assert [job.id for job in await scene.claim()] == [newer.id]
    assert sum("can't be let come" in record.message for record in caplog.records) == 1
    execute(path, "DROP TRIGGER refuses")
    assert await scene.claim() == []
    now += 60
    assert len(await scene.claim()) == 1
    assert await scene.due() is None
