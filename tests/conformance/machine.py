"""Commands for a store and for a simple model of it, which must agree after each."""

from __future__ import annotations

import asyncio
import copy
import itertools
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioqueue.abc import ChainEnd, JobFilter
from aioqueue.errors import BlockerCycle, DuplicateJob, LeaseLost
from aioqueue.testing.conformance._tools import LeaseThread
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, Claim, ClaimedJob, JobState, NewJob, Settlement, SettlementKind
from tests.conformance.drawn import HOUR, HOURS, NEW_JOBS, TYPES, new_job, waiting_behind
from tests.conformance.model import ModelJob
from tests.conformance.model_waiting import BLOCKER_FAILED, WaitingModel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from uuid import UUID

    from aioqueue.abc import Store

__all__ = ["StoreMachine"]

MOSTLY_ON = 3 * (SettlementKind.CONTINUED,) + (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.RETRIED)


class StoreMachine(RuleBasedStateMachine):
    """Subclasses make the harness. Every draw is an index into a list in order of insertion, whatever ids and clocks are."""

    def make_harness(self, stack: ExitStack) -> Any:
        raise NotImplementedError

    def make_model(self) -> WaitingModel:
        return WaitingModel()

    @initialize()
    def begin(self) -> None:
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(asyncio.Runner())
        self.model = self.make_model()
        self.known: list[NewJob] = []
        self.inserted: list[NewJob] = []
        self.claimed: list[ClaimedJob] = []
        self.leases: list[int] = []
        self._numbers = itertools.count(1)
        self.harness: Any = None
        self.harness = self.run(self._open())
        self.open_lease(hours=8)

    async def _open(self) -> Any:
        harness = self.make_harness(self._stack)
        await harness.open()
        self.store: Store = harness.store
        self.thread = LeaseThread(self.store)
        return harness

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def teardown(self) -> None:
        if not hasattr(self, "_stack"):
            return
        if self.harness is not None:
            self.run(self.thread.close())
            self.run(self.harness.close())
        self._stack.close()

    def tick(self, seconds: int = 1) -> None:
        """Give the next command a second of its own."""
        self.run(self.harness.age(seconds))
        self.model.now += seconds

    def pick(self, data: st.DataObject, things: list[Any], most: int = 4) -> list[Any]:
        """Some different ones, in order."""
        indices = data.draw(st.lists(st.integers(0, len(things) - 1), min_size=1, max_size=most, unique=True))
        return [things[index] for index in sorted(indices)]

    # -- producers ------------------------------------------------------------------------------------------------

    @rule(drawn=st.lists(NEW_JOBS, min_size=1, max_size=4))
    def insert(self, drawn: list[dict[str, Any]]) -> None:
        self.tick()
        self._insert([new_job(new_id(), each) for each in drawn])

    def _insert(self, jobs: list[NewJob]) -> None:
        self.known += jobs
        before = copy.deepcopy(self.model)
        try:
            expected = self.model.insert(jobs)
        except (DuplicateJob, BlockerCycle):
            self.model = before
            with pytest.raises((DuplicateJob, BlockerCycle)):
                self.run(self.store.insert(jobs))
            return
        assert list(self.run(self.store.insert(jobs))) == expected
        self.inserted += jobs
        self.tend()

    def tend(self) -> None:
        """Let those be told who wait, down all levels. In one portion, since of two late ones one may wait for the other."""
        if self.model.edges:
            while self.run(self.store.tend(100)).more:
                pass
            self.model.tend()

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def repeat_an_insert(self, data: st.DataObject) -> None:
        self.tick()
        pruned = [new for new in self.inserted if new.id not in self.model.jobs and self.model.steps(new.id)]
        # One alone where some wait: one whose place was taken may wait for one that had waited for it, which is a circle.
        most = 1 if self.model.edges else 4
        jobs = waiting_behind(self.pick(data, [*(job.new for job in self.model.jobs.values()), *pruned], most))
        assert list(self.run(self.store.insert(jobs, repeated=True))) == self.model.insert(jobs, repeated=True)

    # -- workers --------------------------------------------------------------------------------------------------

    @rule(hours=st.integers(1, 8))
    def open_lease(self, hours: int) -> None:
        self.tick()
        worker = f"w{next(self._numbers)}"
        lease_id = self.run(self.store.open_lease(worker, hours * HOUR))
        assert lease_id not in self.leases
        self.leases.append(lease_id)
        self.model.open_lease(lease_id, worker, hours * HOUR)

    @rule(data=st.data(), types=st.sampled_from([("a", "b"), ("b",)]), limit=st.integers(1, 5))
    def claim(self, data: st.DataObject, types: tuple[str, ...], limit: int) -> None:
        self.tick()
        valid = [lease_id for lease_id in self.leases if self.model.valid(lease_id)]
        lease_id = data.draw(st.sampled_from([*valid, self.leases[0]]))
        leases = data.draw(st.dictionaries(st.just("b"), st.sampled_from([*valid, self.leases[0]])))
        if not all(map(self.model.valid, [lease_id, *leases.values()])):
            with pytest.raises(LeaseLost):
                self.run(self.store.claim(lease_id, types, limit, leases=leases))
            return
        self._claim(lease_id, types, limit, leases)

    def _claim(self, lease_id: int, types: tuple[str, ...], limit: int, leases: dict[str, int]) -> None:
        got = self._ask_for_jobs(lease_id, types, limit, leases)
        expected = self.model.claim(lease_id, types, limit, leases, [each.id for each in got])
        assert [each.id for each in got] == [job.new.id for job in expected]
        for each, job in zip(got, expected, strict=True):
            assert (each.claims, each.attempt, each.lease_id) == (job.claims, job.attempt, job.lease_id)
            assert (each.type, each.priority, each.key) == (job.new.type, job.new.priority, job.new.key)
            assert (each.chain_id, each.position) == (job.chain, job.position)
            if each.claims == 1:
                assert each.expired == (job.expires is not None and job.expires <= self.model.now)
            assert not (each.expired and job.started)
            self._look_at_blockers(each)
        self.claimed += got

    def _ask_for_jobs(self, lease_id: int, types: tuple[str, ...], limit: int, leases: dict[str, int]) -> Sequence[ClaimedJob]:
        return self.run(self.store.claim(lease_id, types, limit, leases=leases))

    def _look_at_blockers(self, claimed: ClaimedJob) -> None:
        pairs = list(zip(claimed.blockers, self.model.edges.get(claimed.id, []), strict=True))
        assert all(end.chain_id == edge.chain for end, edge in pairs)
        assert {(end.end, end.output) for end, edge in pairs if not edge.settled} <= {(ChainEnd.COMPLETED, b"1")}

    def _settle(
        self,
        data: st.DataObject,
        claims: list[ClaimedJob],
        *,
        orphaned: bool,
        kinds: Sequence[SettlementKind] = tuple(SettlementKind),
    ) -> None:
        batch = [self._settlement(data, each, kinds) for each in sorted(claims, key=lambda each: (each.id, each.claims))]
        results = self.run(self.store.settle(batch, orphaned=orphaned))
        assert len(results) == len(batch)
        for each, result in zip(batch, results, strict=True):
            allowed = self.model.settle(each, orphaned=orphaned)
            assert result.lost in allowed, (each, result, allowed)
            assert not result.busy
            if allowed == (None,) and each.kind is not SettlementKind.CANCELLED:
                assert result.cancelled == self.model.jobs[each.id].newest_cancelled, (each, result)
            if orphaned and each.lease_id in self.model.leases and not self.model.valid(each.lease_id):
                # Whether it's deleted or only locked is the store's choice.
                self.run(self.harness.delete_lease(each.lease_id))
                del self.model.leases[each.lease_id]
        self.tend()

    def _settlement(self, data: st.DataObject, claimed: ClaimedJob, kinds: Sequence[SettlementKind]) -> Settlement:
        kind = data.draw(st.sampled_from(kinds))
        again = kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED)
        error = None
        if kind in (SettlementKind.RETRIED, SettlementKind.FAILED):
            message = f"error {next(self._numbers)}"
            error = AttemptError(attempt=claimed.attempt, at=datetime(2024, 1, 1, tzinfo=UTC), type="E", message=message)
        return Settlement(
            id=claimed.id,
            claims=claimed.claims,
            lease_id=claimed.lease_id,
            kind=kind,
            output=b"1" if kind is SettlementKind.COMPLETED else None,
            delay=data.draw(HOURS) if again else None,
            error=error,
            yields=kind is SettlementKind.FAILED and data.draw(st.booleans()),
            next=self._next(data, claimed) if kind is SettlementKind.CONTINUED else None,
        )

    def _next(self, data: st.DataObject, claimed: ClaimedJob) -> NewJob:
        """The next step, seldom with an id that is there already. What it says of keys isn't looked at."""
        taken = data.draw(st.sampled_from([False] * 7 + [True]))
        job_id = data.draw(st.sampled_from([claimed.id, *self.model.jobs])) if taken and self.model.jobs else new_id()
        new = new_job(job_id, data.draw(NEW_JOBS))
        if not taken:
            self.known.append(new)
        return new

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), orphaned=st.booleans())
    def settle_any_claim(self, data: st.DataObject, orphaned: bool) -> None:
        self.tick()
        self._settle(data, self.pick(data, self.claimed), orphaned=orphaned)

    def _held(self) -> list[ClaimedJob]:
        return [each for each in self.claimed if self.model.lost(each.claim, each.lease_id) is None]

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def settle_what_is_held(self, data: st.DataObject) -> None:
        self.tick()
        self._settle(data, self.pick(data, self._held()), orphaned=False)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        """Some chains go on for a few steps, as far as these are due."""
        for _ in range(steps):
            self.tick()
            valid = [lease_id for lease_id in self.leases if self.model.valid(lease_id)]
            if valid:
                self._claim(valid[-1], TYPES, 3, {})
            if held := self._held():
                self.tick()
                self._settle(data, self.pick(data, held), orphaned=False, kinds=MOSTLY_ON)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), end=st.booleans())
    def release(self, data: st.DataObject, end: bool) -> None:
        self.tick()
        claims = self.pick(data, self.claimed)
        lease_id = data.draw(st.sampled_from([each.lease_id for each in claims]))
        end = end and lease_id in self.model.leases
        asked = [each.claim for each in claims]
        self.run(self.store.release(lease_id, asked, end=end))
        self.model.release(lease_id, asked, end=end)

    @rule(data=st.data(), hours=st.integers(1, 8))
    def renew(self, data: st.DataObject, hours: int) -> None:
        self.tick()
        lease_id = data.draw(st.sampled_from(self.leases))
        asked = [each.claim for each in self.pick(data, self.claimed)] if self.claimed else []
        renewal = self.run(self.thread.renew(lease_id, hours * HOUR, asked))
        assert renewal.valid == (lease_id in self.model.leases)
        if not renewal.valid:
            return
        self.model.renew(lease_id, hours * HOUR)
        lost = {claim: reason for claim in asked if (reason := self.model.lost(claim, lease_id)) is not None}
        assert dict(renewal.lost) == lost
        held = {Claim(job.new.id, job.claims) for job in self.model.held(lease_id)}
        assert set(renewal.unheld) == held - set(asked)
        assert dict(renewal.asked_to_stop) == self.model.asked_under(lease_id)

    @rule(data=st.data(), recover=st.booleans())
    def take_expired(self, data: st.DataObject, recover: bool) -> None:
        self.tick()
        own = data.draw(st.lists(st.sampled_from(self.leases), max_size=2))
        # Which lease goes first is the store's choice, so all of them go.
        expired = self.model.expired_leases(own)
        taken: list[ClaimedJob] = []
        for _ in range(max(1, len(expired))):
            taken = list(self.run(self.store.take_expired(100, own=own)))
        for lease_id in expired:
            del self.model.leases[lease_id]
        orphans = self.model.orphans(own)
        assert not any(each.expired for each in taken)
        by_id = sorted((each.id, each.claims, each.lease_id) for each in taken)
        assert by_id == sorted((job.new.id, job.claims, job.lease_id) for job in orphans)
        if recover and taken:
            some = self.pick(data, sorted(taken, key=lambda each: each.id))
            self._settle(data, some, orphaned=True)

    # -- operators ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.known)
    @rule(data=st.data(), verb=st.sampled_from(["retry", "run_now", "delete"]))
    def change(self, data: st.DataObject, verb: str) -> None:
        self.tick()
        # Of several, some may wait for others of them: in which order they're looked at is the store's choice.
        ids = [new.id for new in self.pick(data, self.known, most=1 if self.model.edges else 4)]
        results = list(self.run(getattr(self.store, verb)(ids)))
        change: Callable[[Any], Any] = getattr(self.model, verb)
        answers: dict[Any, Any] = {}
        chains = [self.model.chain_of(job_id) for job_id in ids]
        for job_id, chain, result in zip(ids, chains, results, strict=True):
            # Of several ids of one chain the first one's answer may be that of all.
            expected = change(job_id)
            assert result in (expected, answers.setdefault(chain, expected)), (verb, ids, results)
        self.tend()

    @rule(hours=st.integers(1, 4))
    def age(self, hours: int) -> None:
        self.tick(hours * HOUR)

    # -- looking --------------------------------------------------------------------------------------------------

    @rule(data=st.data(), limit=st.integers(1, 7), types=st.sampled_from([("a", "b"), ("b",)]))
    def look(self, data: st.DataObject, limit: int, types: tuple[str, ...]) -> None:
        self._look_at_pages(limit, types)
        self._look_at_next_due(types, data.draw(st.lists(st.sampled_from(self.leases), max_size=3)))
        self._look_at_stats()
        if self.known:
            self._look_at_chains([new.id for new in self.pick(data, self.known)], limit)

    def _look_at_chains(self, ids: list[UUID], limit: int) -> None:
        for job_id, found in zip(ids, self.run(self.store.fetch_ends(ids)), strict=True):
            end = self.model.end(job_id)
            assert (found and found.id) == (end and end.new.id)
            if end is not None:
                self._compare(end, found)
        for chain in [self.model.chain_of(job_id) for job_id in ids]:
            found = self.run(self.store.list_dependents(chain, 1000))
            assert [each.job_id for each in found] == self.model.dependents(chain)
        chain, cursor = self.model.chain_of(ids[0]), None
        steps = self.model.steps(chain)
        while True:
            page = self.run(self.store.list_chain(chain, limit, cursor))
            assert [each.id for each in page.jobs] == [step.new.id for step in steps[:limit]]
            steps, cursor = steps[limit:], page.cursor
            if cursor is None:
                break
        assert steps == []

    def _look_at_pages(self, limit: int, types: tuple[str, ...]) -> None:
        where = JobFilter(types=frozenset(types))
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(len(self.model.jobs) + 2):
            page = self.run(self.store.list(where, limit, cursor))
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
        wanted = [job for job in self.model.jobs.values() if job.new.type in types]
        assert [job.id for job in found] == sorted((job.new.id for job in wanted), reverse=True)
        states = {job.new.id: self.model.state(job) for job in wanted}
        assert {job.id: job.state for job in found} == states

    def _look_at_next_due(self, types: tuple[str, ...], own: list[int]) -> None:
        answer, model = self.run(self.store.next_due(types, own=own)), self.model.next_due(types, own)
        for found, expected in ((answer.job, model.job), (answer.lease, model.lease)):
            assert (found is None, found == 0) == (expected is None, expected == 0)
            if found is not None and expected is not None:
                assert abs(found - expected) < HOUR / 2

    def _look_at_stats(self) -> None:
        stats = self.run(self.store.stats())
        counts: dict[str, dict[Any, int]] = {}
        for job in self.model.jobs.values():
            of_type = counts.setdefault(job.new.type, {})
            of_type[self.model.state(job)] = of_type.get(self.model.state(job), 0) + 1
        assert {name: {s: n for s, n in each.counts.items() if n} for name, each in stats.types.items()} == counts
        valid = [lease.worker for lease_id, lease in self.model.leases.items() if self.model.valid(lease_id)]
        assert sorted(stats.workers) == sorted(valid)

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "model") or not self.known:
            return
        found = self.run(self.store.fetch([new.id for new in self.known]))
        for new, stored in zip(self.known, found, strict=True):
            job = self.model.jobs.get(new.id)
            assert (job is None) == (stored is None), new
            if job is not None and stored is not None:
                self._compare(job, stored)

    def _compare(self, job: ModelJob, stored: Any) -> None:
        assert stored.state == self.model.state(job), (job, stored)
        assert (stored.type, stored.priority, stored.attempt) == (job.new.type, job.new.priority, job.attempt), (job, stored)
        said = [BLOCKER_FAILED if error.type == "BlockerFailed" else error.message for error in stored.errors]
        assert (stored.reschedules, said) == (job.reschedules, job.errors[-20:])
        assert stored.open_blockers == (self.model.open_blockers(job.new.id) if job.state is JobState.BLOCKED else 0)
        assert stored.output_json == (job.output if job.finished else None)
        assert (stored.finished_at is not None) == job.finished
        assert (stored.chain_id, stored.position, stored.key) == (job.chain, job.position, job.new.key)
        assert stored.cancel_reason == job.asked
