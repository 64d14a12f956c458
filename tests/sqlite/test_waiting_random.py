"""Random histories of jobs that wait: whatever is done to them, the tables fit together after each step."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import CallError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import end
from tests.sqlite.conftest import query

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

STEPS = 80
OPEN = "SELECT count(*) FROM blocker AS b WHERE b.job_id = job.id AND b.resolved = 0"
WRONG = {
    "what isn't running has no request to end": "SELECT id FROM job WHERE cancel_reason IS NOT NULL AND state <> 2",
    "blocked jobs wait for as many chains as they say": (
        f"SELECT id FROM job WHERE state = 0 AND (open_blockers = 0 OR open_blockers <> ({OPEN}))"
    ),
    "others wait for none": f"SELECT id FROM job WHERE state <> 0 AND (open_blockers <> 0 OR ({OPEN}) > 0)",
    "what is waited for lives and is marked, or is still to be told": """
        SELECT b.chain_id FROM blocker AS b JOIN job AS waiting ON waiting.id = b.job_id
        WHERE b.resolved = 0
          AND NOT EXISTS (SELECT 1 FROM job WHERE coalesce(chain_id, id) = b.chain_id AND marked = 1)
          AND NOT EXISTS (SELECT 1 FROM chain_end AS e WHERE e.chain_id = b.chain_id AND e.untold = 1)""",
    "what was told is kept for those who need it": """
        SELECT b.chain_id FROM blocker AS b JOIN job AS waiting ON waiting.id = b.job_id
        WHERE b.resolved = 1 AND b.chain_id NOT IN (SELECT chain_id FROM chain_end)""",
    "a chain has one live step": "SELECT 1 FROM job GROUP BY coalesce(chain_id, id) HAVING count(*) > 1",
}


class History:
    def __init__(self, store: SQLiteStore, lease: int, seed: int) -> None:
        self.store = store
        self.lease = lease
        self.random = random.Random(seed)
        self.known: list[UUID] = []

    def job(self, others: list[NewJob], most: int, **options: Any) -> NewJob:
        pool = [*self.known[-30:], *(each.id for each in others)]
        waits_for = self.random.sample(pool, min(self.random.randint(0, most), len(pool)))
        blockers = tuple(NewBlocker(each, settled=self.random.random() < 0.3) for each in waits_for)
        return NewJob(id=new_id(), type="a", blockers=blockers, **options)

    def jobs(self, most: int) -> list[NewJob]:
        made: list[NewJob] = []
        for _ in range(self.random.randint(1, 5)):
            unique = self.random.random() < 0.1
            expires = self.random.choice([None, None, 0.02, 60.0])
            made.append(self.job(made, most, key="k" if unique else None, unique=Unique() if unique else None, expires=expires))
        return made

    def some(self) -> list[UUID]:
        return self.random.sample(self.known[-30:], min(2, len(self.known)))

    async def step(self) -> None:
        verbs = {self.insert: 30, self.settle: 40, self.end: 6, self.tend: 8, self.delete: 5, self.retry: 6, self.cancel: 4}
        (verb,) = self.random.choices(list(verbs), list(verbs.values()))
        await verb()

    async def insert(self) -> None:
        jobs = self.jobs(3)
        try:
            await self.store.insert(jobs)
        except CallError:
            return
        self.known += [each.id for each in jobs]

    async def settle(self) -> None:
        claimed = await self.store.claim(self.lease, ["a"], self.random.randint(1, 6))
        await self.store.cancel([each.id for each in claimed if self.random.random() < 0.15], "while it's running")
        outcomes = [self.outcome(each) for each in claimed]
        for outcome, result in zip(outcomes, await self.store.settle(outcomes), strict=True):
            assert (result.lost, result.busy) == (None, False)
            if result.refused is None:
                self.known += [each.id for each in (*outcome.children, *filter(None, [outcome.next]))]
                continue
            failed = replace(outcome, kind=SettlementKind.FAILED, children=(), next=None)
            assert [(each.lost, each.refused) for each in await self.store.settle([failed])] == [(None, None)]

    def outcome(self, job: ClaimedJob) -> Settlement:
        (kind,) = self.random.choices(list(SettlementKind), [30, 30, 12, 5, 10, 5])
        children = self.jobs(2) if kind in (4, 5) and self.random.random() < 0.3 else []
        following = self.job(children, 2) if kind is SettlementKind.CONTINUED else None
        return end(job, kind, children=tuple(children), next=following)

    async def end(self) -> None:
        kind = self.random.choice([SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CONTINUED])
        following = self.job([], 1) if kind is SettlementKind.CONTINUED else None
        for job_id in self.some()[:1]:
            try:
                ended = await self.store.end([Ending(id=job_id, kind=kind, next=following)])
            except CallError:
                return
            self.known += [following.id] if following is not None and ended == [True] else []

    async def tend(self) -> None:
        await self.store.tend(self.random.choice([1, 2, 100]))

    async def delete(self) -> None:
        await self.store.delete(self.some(), cascade=self.random.random() < 0.5)

    async def cancel(self) -> None:
        await self.store.cancel(self.some(), "not needed")

    async def retry(self) -> None:
        await self.store.retry(self.some(), cascade=self.random.random() < 0.5)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
async def test_whatever_happens(store: SQLiteStore, path: Path, seed: int) -> None:
    history = History(store, await store.open_lease("w", 600), seed)
    for number in range(STEPS):
        await history.step()
        for rule, wrong in WRONG.items():
            assert query(path, wrong) == [], (rule, number)
    await store.release(history.lease, [], end=True)
    lease = await store.open_lease("w", 600)
    for _ in range(100):
        tended = await store.tend(100)
        claimed = await store.claim(lease, ["a"], 100)
        await store.settle([end(each) for each in claimed])
        if not claimed and not tended.more:
            break
    assert query(path, "SELECT id FROM job") == []
