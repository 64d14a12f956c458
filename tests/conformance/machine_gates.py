"""Commands about limits, rates, sequences and turns for a store, and a simple model of who may run.

Who of several comes first is the store's choice, but for sequences. After a worker has claimed for as long as anything is due,
nobody is over a limit, and nobody is left that may run.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, limit_of, rate_of, tenant
from aioqueue.testing.conformance._tools import HOUR, failure, job, settlement
from aioqueue.vocabulary._gates import GateRules, NewLimit, SequenceMember
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from tests.conformance.model_gates import GatedJob, GatesModel

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["GatesMachine"]

RULES = {
    "a": GateRules(type="a", limit=True, limit_by=BY_TENANT, fair_by=BY_TENANT),
    "b": GateRules(type="b", shared="s"),
    "c": GateRules(type="c", rate=True, limit=True, shared="s"),
}
LIMITS = {"job:a": "a", "s": "", "job:c": "c"}
"""The names of limits, with the types whose own they are."""
STARTS, INTERVAL = 2, 3 * HOUR
"""The rate of the type `c`."""
TYPES = ["a", "b", "c", "d"]
PAUSES = [(PauseTarget.TYPE, "a"), (PauseTarget.TYPE, "b"), (PauseTarget.TYPE, "d"), (PauseTarget.KEY, "k")]
MEMBERS = st.builds(SequenceMember, name=st.sampled_from(["x", "y"]), strict=st.booleans(), block=st.booleans())
NEW_JOBS = st.fixed_dictionaries(
    {
        "job_type": st.sampled_from([*TYPES, "a"]),
        "priority": st.integers(1, 2),
        "payload": st.sampled_from([tenant("x"), tenant("y")]),
        "delay": st.sampled_from([None, None, None, 2 * HOUR]),
        "key": st.sampled_from([None, None, "k"]),
        "sequence": st.one_of(st.none(), MEMBERS, MEMBERS),
    }
)


class _Worker(Worker):
    async def lease(self) -> int:
        """One that outlasts the test."""
        if not self._lease_id:
            self._lease_id = await self.store.open_lease("w", 10_000 * HOUR)
        return self._lease_id


class GatesMachine(RuleBasedStateMachine):
    """Subclasses make the harness."""

    def make_harness(self, stack: ExitStack) -> Any:
        raise NotImplementedError

    @initialize(drawn=st.lists(NEW_JOBS, min_size=6, max_size=10))
    def begin(self, drawn: list[dict[str, Any]]) -> None:
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(asyncio.Runner())
        self.model = GatesModel(each=INTERVAL / STARTS, burst=STARTS)
        self.harness: Any = None
        self.harness = self.run(self._open())
        self.worker = _Worker(self.harness.store, RULES, TYPES)
        for name in LIMITS:
            self.put_a_limit(name, 1)
        self.insert(drawn)

    async def _open(self) -> Any:
        harness = self.make_harness(self._stack)
        await harness.open()
        self.store: Any = harness.store
        await self.store.put_limits([rate_of("c", STARTS, INTERVAL)])
        return harness

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "_stack"):
            if self.harness is not None:
                self.run(self.harness.close())
            self._stack.close()

    def _some(self, data: st.DataObject, jobs: Sequence[GatedJob]) -> list[GatedJob]:
        indices = data.draw(st.lists(st.integers(0, len(jobs) - 1), min_size=1, max_size=3, unique=True))
        return [jobs[index] for index in indices]

    # -- what may run runs ----------------------------------------------------------------------------------------

    @rule(drawn=st.lists(NEW_JOBS, min_size=1, max_size=5))
    def insert(self, drawn: list[dict[str, Any]]) -> None:
        jobs = [job(**each) for each in drawn]
        self.run(self.store.insert(jobs))
        self.model.insert(jobs)

    @rule(limit=st.sampled_from([1, 2, 100, 100]))
    def claim(self, limit: int) -> None:
        self._claim(limit)

    def _claim(self, limit: int = 100) -> None:
        claimed: list[ClaimedJob] = self.run(self.worker.claim(limit))
        self.model.claim(claimed)
        if len(claimed) < limit:
            left = self.model.may_run()
            assert left == [], ("could have run", left)

    @precondition(lambda self: self.model.running())
    @rule(
        data=st.data(),
        kind=st.sampled_from([SettlementKind.COMPLETED, *SettlementKind]),
        delay=st.sampled_from([0.0, 0.0, 2 * HOUR]),
    )
    def settle(self, data: st.DataObject, kind: SettlementKind, delay: float) -> None:
        again = kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED)
        bad = kind in (SettlementKind.RETRIED, SettlementKind.FAILED, SettlementKind.CANCELLED)
        for each in self._some(data, self.model.running()):
            assert each.claimed is not None
            following = job(data.draw(st.sampled_from(TYPES))) if kind is SettlementKind.CONTINUED else None
            end = settlement(each.claimed, kind, delay=delay if again else None, error=failure() if bad else None)
            if following is not None:
                end = settlement(each.claimed, kind, next=following)
            (result,) = self.run(self.store.settle([end]))
            assert result.lost is None
            self.model.settle(each, kind, delay, following)
        self._claim()

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """Some that run end well, a few times: so that most have their turn."""
        for _ in range(3):
            if self.model.running():
                self.settle(data, SettlementKind.COMPLETED, 0.0)

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        for each in self._some(data, self.model.running()):
            assert each.claimed is not None
            self.run(self.store.release(each.claimed.lease_id, [each.claimed.claim]))
            self.model.wait(each, 0)
        self._claim()

    @rule()
    def lose_the_worker(self) -> None:
        """Its lease is gone: what it had counts until it's recovered."""
        self.run(self.harness.delete_lease(self.run(self.worker.lease())))
        self.worker = _Worker(self.store, RULES, TYPES)
        self._claim(2)
        orphans = [
            each for each in self.model.running() if each.claimed and each.claimed.lease_id != self.run(self.worker.lease())
        ]
        taken = list(self.run(self.store.take_expired(1000)))
        assert sorted(each.id for each in taken) == sorted(each.new.id for each in orphans)
        ends = [settlement(each, SettlementKind.RETRIED, delay=0.0, error=failure()) for each in taken]
        assert [each.lost for each in self.run(self.store.settle(ends, orphaned=True))] == [None] * len(ends)
        for each in orphans:
            self.model.wait(each, 0)
        self._claim()

    @rule(hours=st.integers(1, 4))
    def age(self, hours: int) -> None:
        self.run(self.harness.age(hours * HOUR))
        self.model.now += hours * HOUR
        self._claim()

    # -- what people do -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(sorted(LIMITS)), places=st.integers(0, 3))
    def put_a_limit(self, name: str, places: int) -> None:
        own = LIMITS[name]
        self.run(self.store.put_limits([limit_of(own, places) if own else NewLimit(name=name, places=places)]))
        self.model.limits[name] = places
        self._claim()

    @rule(name=st.sampled_from(sorted(LIMITS)))
    def remove_a_limit(self, name: str) -> None:
        assert list(self.run(self.store.remove_limits([name]))) == [self.model.limits.pop(name, None) is not None]
        self._claim()

    @rule(about=st.sampled_from(PAUSES))
    def pause_or_resume(self, about: tuple[PauseTarget, str]) -> None:
        if about in self.model.paused:
            self.run(self.store.resume(about[0], [about[1]]))
            self.model.paused.remove(about)
        else:
            self.run(self.store.pause([NewPause(target=about[0], value=about[1])]))
            self.model.paused.append(about)
        self.run(self.store.tend(1000))
        self._claim()

    @rule(name=st.sampled_from(["x", "y"]))
    def let_a_sequence_go_on(self, name: str) -> None:
        assert list(self.run(self.store.resume_sequences([name]))) == [self.model.let_go_on(name)]
        self._claim()

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), verb=st.sampled_from(["cancel", "delete", "erase", "retry", "run_now", "reschedule"]))
    def change(self, data: st.DataObject, verb: str) -> None:
        for each in self._some(data, self.model.jobs):
            if verb == "cancel":
                self.run(self.store.cancel([each.new.id], "no"))
            elif verb == "erase":
                self.run(self.harness.erase(each.new.id))
            elif verb == "reschedule":
                self.run(self.store.reschedule([each.new.id], delay=2 * HOUR))
            else:
                self.run(getattr(self.store, verb)([each.new.id]))
            getattr(self.model, verb)(each)
        self._claim()
