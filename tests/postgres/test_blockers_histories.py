"""Random histories of jobs that wait, and take each other's places, on four stores: nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioqueue.errors import CallError, StoreContended
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import completed, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._unique import Until

pytestmark = pytest.mark.anyio

TYPES = ("a", "b", "c")

EDGE = "SELECT FROM aioqueue.blocker b WHERE b.job_id = j.id AND NOT b.resolved"
AWAITED = "b.chain_id = coalesce(j.chain_id, j.id) AND NOT b.resolved AND b.job_id IN (SELECT id FROM aioqueue.job)"
ALWAYS = {
    "a held job's number of open blockers": f"""SELECT j.id FROM aioqueue.job j WHERE state = 0
        AND (open_blockers <> (SELECT count(*) FROM ({EDGE}) AS open) OR open_blockers = 0)""",
    "a job that began early": f"SELECT j.id FROM aioqueue.job j WHERE state > 0 AND EXISTS ({EDGE})",
    "a chain for which somebody waits without a mark": f"""SELECT j.id FROM aioqueue.job j
        WHERE NOT marked AND EXISTS (SELECT FROM aioqueue.blocker b WHERE {AWAITED})""",
    "a key in two places": """SELECT unique_key FROM aioqueue.job
        WHERE unique_key IS NOT NULL AND (claims = 0 OR NOT until_started) GROUP BY 1 HAVING count(*) > 1""",
    "a job in two places": "SELECT id FROM aioqueue.job JOIN aioqueue.archive USING (id)",
    "a chain that has ended twice": """SELECT coalesce(chain_id, id) FROM aioqueue.archive WHERE state <> 5
        GROUP BY 1 HAVING count(*) > 1""",
}
AT_THE_END = {
    "a job that is left": "SELECT id FROM aioqueue.job",
    "somebody who wasn't told": "SELECT chain_id FROM aioqueue.chain_end WHERE untold",
    "an edge that nobody needs": """SELECT job_id FROM aioqueue.blocker
        WHERE job_id NOT IN (SELECT id FROM aioqueue.archive WHERE state IN (6, 7))""",
    "an end that nobody needs": """SELECT chain_id FROM aioqueue.chain_end
        WHERE chain_id NOT IN (SELECT chain_id FROM aioqueue.blocker)""",
}


def check(url: str, statements: dict[str, str]) -> None:
    for what, statement in statements.items():
        assert execute(url, statement) == [], what


@dataclass
class History:
    """What happens, drawn anew for each number; the interleaving is the server's."""

    draw: random.Random
    ids: list[UUID] = field(default_factory=list[UUID])

    def some(self, most: int) -> list[UUID]:
        """Jobs from lately, most of them there."""
        return list(dict.fromkeys(self.draw.choices(self.ids[-60:], k=self.draw.randint(0, most)))) if self.ids else []

    def job(self, *chains: UUID) -> NewJob:
        waited = dict.fromkeys([*self.some(self.draw.choice([0, 0, 1, 2, 5])), *chains])
        blockers = tuple(NewBlocker(each, settled=self.draw.random() < 0.4) for each in waited)
        unique = self.unique() if self.draw.random() < 0.2 else None
        key = f"k{self.draw.randrange(8)}" if unique else None
        expires = self.draw.random() if self.draw.random() < 0.05 else None
        return replace(job(self.draw.choice(TYPES)), blockers=blockers, key=key, unique=unique, expires=expires)

    def unique(self) -> Unique:
        until: Until = self.draw.choice(("finished", "finished", "started"))
        window = self.draw.choice((None, 0.01, 1.0)) if until == "finished" else None
        return Unique(until=until, window=window, on_conflict=self.draw.choice(("return", "replace", "replace")))

    def batch(self) -> list[NewJob]:
        """Some of which the last one waits, maybe, and there only for it; some with ids that others have."""
        jobs = [self.job() for _ in range(self.draw.randint(1, 5))]
        if self.draw.random() < 0.3:
            jobs = [replace(each, implied=self.draw.random() < 0.7) for each in jobs]
            jobs.append(self.job(*(each.id for each in jobs)))
        if self.draw.random() < 0.1 and (taken := self.some(1)):
            jobs.append(replace(self.job(), id=taken[0], chosen_id=True, aliases=TYPES))
        return jobs

    def outcome(self, settlement: Settlement, at: datetime) -> Settlement:
        error = AttemptError(attempt=1, at=at, type="ValueError", message="boom")
        children = tuple(self.job() for _ in range(self.draw.choice([0, 0, 0, 1, 2])))
        kind = self.draw.choices([4, 6, 7, 8, 5], [50, 15, 5, 5, 25])[0]
        if kind == SettlementKind.COMPLETED:
            return replace(settlement, children=children)
        settlement = replace(settlement, kind=SettlementKind(kind), output=None)
        if kind == SettlementKind.CONTINUED:
            following = replace(self.job(*(each.id for each in children)), key=None, unique=None, expires=None)
            return replace(settlement, next=following, children=children)
        return replace(settlement, error=error, delay=0.0 if kind == SettlementKind.RETRIED else None)

    async def insert(self, store: PostgresStore) -> None:
        results = await store.insert(self.batch())
        self.ids += [each.id for each in results if each.created]

    async def work(self, store: PostgresStore) -> None:
        lease_id = await store.open_lease("w", 600)
        claims = await store.claim(lease_id, TYPES, self.draw.randint(1, 30))
        left = [self.outcome(completed(claim), claim.created_at) for claim in claims]
        if self.draw.random() < 0.1:
            await store.release(lease_id, [], end=True)
            return
        while left:
            results = await store.settle(left)
            refused = [each for each, result in zip(left, results, strict=True) if result.refused is not None]
            self.ids += [
                child.id
                for each, result in zip(left, results, strict=True)
                if result.lost is None and not result.busy and result.refused is None
                for child in each.children
                if not child.unique
            ]
            left = [each for each, result in zip(left, results, strict=True) if result.busy]
            left += [replace(each, kind=SettlementKind.FAILED, output=None, next=None, children=()) for each in refused]

    async def operate(self, store: PostgresStore) -> None:
        cascade, some = self.draw.random() < 0.5, self.some(3)
        verb = self.draw.choices(["delete", "retry", "end"], [1, 5, 5])[0]
        if verb == "end" and some:
            (found, *_) = await store.fetch(some[:1])
            drawn = Settlement(id=some[0], claims=0, lease_id=0, kind=SettlementKind.COMPLETED, output=b"1")
            if found is not None and (what := self.outcome(drawn, found.created_at)).kind in {4, 5, 6}:
                await store.end(
                    [
                        Ending(
                            id=what.id,
                            kind=what.kind,
                            output=what.output,
                            error=what.error,
                            next=what.next,
                            children=what.children,
                        )
                    ]
                )
        elif verb == "delete":
            await store.delete(some, cascade=cascade)
        elif verb == "retry":
            await store.retry(some, cascade=cascade)

    async def tend(self, store: PostgresStore) -> None:
        await store.tend(self.draw.randint(1, 50))


async def _run_out(store: PostgresStore, url: str) -> None:
    """Complete all that can run, until there is nothing left."""
    for _ in range(100):
        while (await store.tend(1_000)).more:
            pass
        lease_id = await store.open_lease("w", 600)
        while claims := await store.claim(lease_id, TYPES, 1_000):
            assert {(each.lost, each.busy) for each in await store.settle([completed(each) for each in claims])} == {
                (None, False)
            }
        if execute(url, "SELECT count(*) FROM aioqueue.job") == [(0,)]:
            break
    for _ in range(3):
        await store.tend(1_000)


@pytest.mark.parametrize(
    ("number", "steps"), [(1, 60), *(pytest.param(each, 1_000, marks=pytest.mark.soak) for each in range(2, 7))]
)
async def test_random_histories(postgres_url: str, number: int, steps: int) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(4)]

        async def act(seed: int, history: History) -> None:
            actions = (history.insert, history.work, history.work, history.operate, history.tend)
            for _ in range(steps):
                action: Awaitable[None] = actions[history.draw.randrange(5)](stores[seed])
                try:
                    await action
                except (CallError, StoreContended):
                    continue

        ids = [new_id()]
        histories = [History(random.Random(4 * number + seed), ids) for seed in range(4)]
        await asyncio.gather(*(act(seed, history) for seed, history in enumerate(histories)))
        check(postgres_url, ALWAYS)
        await _run_out(stores[0], postgres_url)
        check(postgres_url, {**ALWAYS, **AT_THE_END})
