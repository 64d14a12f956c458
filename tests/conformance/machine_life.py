"""Commands about phases, progress, other due times and old chains, beside all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aioqueue.abc import SupportsRetention
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite, ProgressWrite
from tests.conformance.drawn import HOURS
from tests.conformance.machine_waiting import WaitingMachine
from tests.conformance.model_life import LifeModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from tests.conformance.model import ModelJob

__all__ = ["LifeMachine"]

_ENDED = [StoredState.COMPLETED, StoredState.CONTINUED, StoredState.FAILED, StoredState.CANCELLED]
_STATES = [PhaseState.RUNNING, PhaseState.COMPLETED, PhaseState.FAILED]


class LifeMachine(WaitingMachine):
    """See the module."""

    model: LifeModel

    def make_model(self) -> LifeModel:
        return LifeModel()

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), name=st.sampled_from(["one", "two"]), state=st.sampled_from(_STATES))
    def say_how_far_it_is(self, data: st.DataObject, name: str, state: PhaseState) -> None:
        """Of any claims, held or lost: where a phase of each stands, and its progress."""
        self.tick()
        held = self._held()
        claims = self.pick(data, held if held and data.draw(st.booleans()) else self.claimed)
        number = next(self._numbers)
        result = str(number).encode() if state is PhaseState.COMPLETED else None
        phases = [
            PhaseWrite(id=each.id, claims=each.claims, lease_id=each.lease_id, name=name, state=state, result=result)
            for each in claims
        ]
        assert list(self.run(self.store.write_phases(phases))) == [self.model.write_phase(each) for each in phases]
        # One for each job at most: of several claims the newest.
        newest = {each.id: each for each in sorted(claims, key=lambda each: each.claims)}.values()
        progress = [
            ProgressWrite(id=each.id, claims=each.claims, lease_id=each.lease_id, percent=number % 100) for each in newest
        ]
        self.run(self.store.write_progress(progress))
        for each in progress:
            self.model.write_progress(each)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def retry_from_the_start(self, data: st.DataObject) -> None:
        self.tick()
        (new,) = self.pick(data, self.known, most=1)
        assert list(self.run(self.store.retry([new.id], from_start=True))) == [self.model.retry_from_start(new.id)]
        self.tend()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), delay=HOURS)
    def reschedule(self, data: st.DataObject, delay: float) -> None:
        self.tick()
        ids = [new.id for new in self.pick(data, self.known)]
        expected = [self.model.reschedule(job_id, delay) for job_id in ids]
        assert list(self.run(self.store.reschedule(ids, delay=delay))) == expected

    @rule(states=st.lists(st.sampled_from(_ENDED), unique=True))
    def remove_what_is_old(self, states: list[StoredState]) -> None:
        if not isinstance(self.store, SupportsRetention):
            return
        self.tick()
        ages = dict.fromkeys(states, 0.0)
        expected = self.model.old(ages)
        assert sorted(self._old(ages)) == sorted(expected)
        asked = {job.chain for job in self.model.jobs.values()} | expected
        assert sorted(self.run(self.store.purge(sorted(asked), ages))) == sorted(expected)
        self.model.purge(expected)

    def _old(self, ages: Mapping[StoredState, float]) -> list[UUID]:
        found: list[UUID] = []
        cursor: str | None = None
        store: Any = self.store
        while True:
            page = self.run(store.find_old(ages, 2, cursor))
            found += page.ids
            if (cursor := page.cursor) is None:
                return found

    def _compare(self, job: ModelJob, stored: Any) -> None:
        super()._compare(job, stored)
        assert {each.name: (each.state, each.result_json) for each in stored.phases} == self.model.shown(job)
        assert (stored.progress and stored.progress.percent) == job.percent
        assert (stored.purge_at is not None) == (job.finished and job.new.keep is not None)
