"""Commands about pauses, schedules, dry runs and names that only one lease may have, beside all others."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from aioqueue.errors import ScheduleOwned, SingletonHeld
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, NewPause, PauseTarget
from aioqueue.vocabulary._schedules import Generation, NewSchedule, ScheduleChange, SkippedTicks, Tick
from tests.conformance.drawn import HOUR, NEW_JOBS, new_job
from tests.conformance.machine_life import LifeMachine
from tests.conformance.model_plans import NEVER, PlansModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._schedules import StoredSchedule
    from tests.conformance.model import ModelJob

__all__ = ["PlansMachine"]

_TARGETS = [
    (PauseTarget.ALL, ""),
    *2 * [(PauseTarget.TYPE, "a"), (PauseTarget.TYPE, "b")],
    *4 * [(PauseTarget.KEY, "k")],
]
_NAMES = ["s", "t", "shop/a"]
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_CODE = {"1": {"shop/a": 60.0}, "2": {"shop/a": 60.0, "shop/b": 90.0}, "3": {"shop/b": 60.0}}
"""The schedules of each state of a registry's code, with their intervals."""


class PlansMachine(LifeMachine):
    """See the module. Ticks are known by minutes that are long over: every next tick is due."""

    model: PlansModel
    store: Any

    def make_model(self) -> PlansModel:
        return PlansModel()

    def tick(self, seconds: int = 1) -> None:
        super().tick(seconds)
        if self.model.coming_back():
            self._bring_back()

    def _bring_back(self) -> None:
        while self.run(self.store.tend(100)).more:
            pass
        self.model.come_back()
        self.model.tend()

    # -- pauses ---------------------------------------------------------------------------------------------------

    @rule(
        about=st.sampled_from(_TARGETS),
        by=st.sampled_from(["ann", "bob"]),
        hours=st.sampled_from([None, 2, 5]),
        data=st.data(),
    )
    def pause(self, about: tuple[PauseTarget, str], by: str, hours: int | None, data: st.DataObject) -> None:
        self.tick()
        until = None
        if hours is not None:
            now = self.run(self.store.due_schedules(1)).now
            until = now + timedelta(hours=hours)
        self.run(self.store.pause([NewPause(target=about[0], value=about[1], by=by, until=until)]))
        self.model.pauses[*about, by] = math.inf if hours is None else self.model.now + hours * HOUR
        if data.draw(st.booleans()):
            self._go_on_claiming()

    def _go_on_claiming(self) -> None:
        valid = [lease_id for lease_id in self.leases if self.model.valid(lease_id)]
        if valid:
            self._claim(valid[-1], ("a", "b"), 3, {})

    @rule(about=st.sampled_from([None, *_TARGETS]), by=st.sampled_from([None, None, "ann"]))
    def resume(self, about: tuple[PauseTarget, str] | None, by: str | None) -> None:
        """One, or what there is."""
        self.tick()
        pauses = self.model.pauses
        for each in [about] if about is not None else dict.fromkeys((kind, value) for kind, value, _ in pauses):
            meant = [key for key in pauses if key[:2] == each and by in (None, key[2])]
            lifted = self.run(self.store.resume(each[0], [each[1]], by=by))
            assert lifted == sum(pauses[key] > self.model.now for key in meant)
            for key in meant:
                del pauses[key]
        self._bring_back()

    def _ask_for_jobs(self, lease_id: int, types: tuple[str, ...], limit: int, leases: dict[str, int]) -> Sequence[ClaimedJob]:
        """A claim that comes to what has a paused key may give less than there is: whoever claims asks again."""
        dry_run = lease_id in self.leases[1:2]
        got: list[ClaimedJob] = []
        parked = self.model.come_to(types)
        for _ in range(len(parked) + 1):
            got += self.run(self.store.claim(lease_id, types, limit - len(got), leases=leases, dry_run=dry_run))
            if len(got) == limit:
                break
        for job in parked:
            # Which of them a claim has come to, is the store's choice.
            (found,) = self.run(self.store.fetch([job.new.id]))
            if found.state is JobState.HELD:
                job.state = JobState.HELD
        if dry_run:
            self.model.make_dry([each.id for each in got])
        return got

    def _look_at_next_due(self, types: tuple[str, ...], own: list[int]) -> None:
        answer, model = self.run(self.store.next_due(types, own=own)), self.model.next_due(types, own)
        assert (answer.lease is None, answer.lease == 0) == (model.lease is None, model.lease == 0)
        assert answer.lease is None or model.lease is None or abs(answer.lease - model.lease) < HOUR / 2
        assert (answer.job is not None and answer.job < (model.job or 0) + HOUR / 2) or model.job is None
        moments = [moment - self.model.now for moment in self.model.moments(types)]
        assert answer.job is None or any(abs(answer.job - max(0.0, each)) < HOUR / 2 for each in moments)
        ticking = [each for each in self.model.schedules.values() if not each.paused and each.next != NEVER]
        assert answer.tick == (0.0 if ticking else None)

    # -- names ----------------------------------------------------------------------------------------------------

    @rule(hours=st.integers(1, 8), name=st.sampled_from(["x", "x", "y"]))
    def open_a_named_lease(self, hours: int, name: str) -> None:
        self.tick()
        worker, holder = f"w{next(self._numbers)}", self.model.name_holder(name)
        if holder is not None and self.model.valid(holder):
            with pytest.raises(SingletonHeld):
                self.run(self.store.open_lease(worker, hours * HOUR, singleton=name))
            return
        lease_id = self.run(self.store.open_lease(worker, hours * HOUR, singleton=name))
        if holder is not None:
            del self.model.leases[holder]
        self.leases.append(lease_id)
        self.model.open_lease(lease_id, worker, hours * HOUR)
        self.model.names[lease_id] = name
        assert sorted((each.worker, each.singleton) for each in self.run(self.store.leases()) if each.singleton) == sorted(
            (self.model.leases[each].worker, given) for each, given in self.model.names.items() if each in self.model.leases
        )

    # -- schedules ------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(_NAMES), every=st.sampled_from([60.0, 90.0]), overlap=st.sampled_from(["allow", "skip"]))
    def put_a_schedule(self, name: str, every: float, overlap: Any) -> None:
        self.tick()
        new = NewSchedule(name=name, owner=None, job_type="a", template=b"{}", every=every, overlap=overlap)
        stored = self.model.schedules.get(name)
        if stored is not None and stored.new.owner is not None:
            with pytest.raises(ScheduleOwned):
                self.run(self.store.put_schedules([new]))
            return
        assert list(self.run(self.store.put_schedules([new]))) == [self.model.put(new)]

    @rule(digest=st.sampled_from(sorted(_CODE)), release=st.sampled_from([None, None, None, 1, 2]))
    def reconcile(self, digest: str, release: int | None) -> None:
        self.tick()
        generation = Generation(owner="shop", digest=digest, release=release)
        schedules = [
            NewSchedule(name=name, owner="shop", job_type="a", template=b"{}", every=every)
            for name, every in _CODE[digest].items()
        ]
        found = self.run(self.store.reconcile_schedules(generation, schedules, 2.0 * HOUR))
        assert (found.current, found.refused) == self.model.reconcile(generation, schedules, 2.0 * HOUR)

    @precondition(lambda self: self.model.schedules)
    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "delete", "recompute"]))
    def change_a_schedule(self, data: st.DataObject, verb: str) -> None:
        self.tick()
        (name,) = self.pick(data, [*self.model.schedules], most=1)
        stored = self.model.schedules[name]
        if verb == "pause":
            assert list(self.run(self.store.pause_schedules([name, "nobody"], "", "ann"))) == [True, False]
            stored.paused = True
        elif verb == "resume":
            assert list(self.run(self.store.resume_schedules([name, "nobody"]))) == [True, False]
            if stored.paused:
                stored.paused, stored.next, stored.version = False, None, stored.version + 1
        elif verb == "delete":
            owned = stored.new.owner is not None and self.model.is_code_live
            (became,) = self.run(self.store.delete_schedules([name]))
            assert became is (ScheduleChange.OWNED if owned else ScheduleChange.DONE)
            if not owned:
                del self.model.schedules[name]
        else:
            # All that are known are due, but for those that never are.
            assert self.run(self.store.recompute_schedules([name])) == (stored.next == NEVER)
            if stored.next == NEVER:
                stored.next, stored.version = None, stored.version + 1

    @precondition(lambda self: self.model.schedules)
    @rule(
        data=st.data(),
        drawn=st.lists(NEW_JOBS, max_size=2),
        alone=st.booleans(),
        by_hand=st.sampled_from([False] * 5 + [True]),
        times=st.integers(1, 2),
    )
    def decide_a_tick(self, data: st.DataObject, drawn: list[dict[str, Any]], alone: bool, by_hand: bool, times: int) -> None:
        """Of one schedule, mostly as it is; sometimes twice."""
        (name,) = self.pick(data, [*self.model.schedules], most=1)
        (stored,) = self.run(self.store.fetch_schedules([name]))
        stale = data.draw(st.sampled_from([False] * 5 + [True]))
        minutes = data.draw(st.lists(st.integers(1, 9), min_size=3, max_size=3, unique=True))
        jobs = tuple(self._of_tick(name, minute, each) for minute, each in zip(minutes, drawn, strict=False))
        skipped = [SkippedTicks(nominal_time=self._at(minutes[-1]), count=2, reason="missed")]
        tick = Tick(
            name=name,
            version=stored.version - (stale and data.draw(st.booleans())),
            expected=self._at(99) if stale else stored.next_at,
            next_at=data.draw(st.sampled_from([self._at(number) for number in range(10, 13)] + [None])),
            jobs=jobs,
            skipped=() if data.draw(st.booleans()) else tuple(skipped),
            alone=alone,
            by_hand=by_hand,
        )
        self.known += jobs
        for _ in range(times):
            self.tick_one_second_later(tick)

    def tick_one_second_later(self, tick: Tick) -> None:
        super().tick()
        (found,) = self.run(self.store.tick([tick]))
        expected = self.model.tick(tick)
        assert found.decided == (expected is not None), (tick, found, expected)
        assert [(each.outcome, each.reason, each.chain_id) for each in found.ticks] == (expected or [])
        self.tend()

    def _of_tick(self, name: str, number: int, drawn: dict[str, Any]) -> Any:
        return replace(new_job(new_id(), drawn), origin=Origin(schedule=name, nominal_time=self._at(number)))

    def _at(self, number: int) -> datetime:
        return _BEGIN + timedelta(minutes=number)

    # -- looking --------------------------------------------------------------------------------------------------

    @invariant()
    def schedules_agree(self) -> None:
        if hasattr(self, "model"):
            found = self.run(self.store.list_schedules(100)).schedules
            assert [each.name for each in found] == sorted(self.model.schedules)
            for each in found:
                self._compare_schedule(each)

    def _compare_schedule(self, found: StoredSchedule) -> None:
        stored = self.model.schedules[found.name]
        if stored.first is None:
            stored.first = found.version - stored.version
        assert (found.definition, found.version - stored.first, found.paused) == (stored.new, stored.version, stored.paused)
        next_at = None if stored.next == NEVER else stored.next
        assert (found.next_at, found.last_at, found.last_chain) == (next_at, stored.last, stored.chain), (found, stored)
        shown = {each.nominal_time: (each.outcome, each.reason, each.chain_id) for each in found.ticks}
        assert shown == stored.ticks

    def _compare(self, job: ModelJob, stored: Any) -> None:
        super()._compare(job, stored)
        assert stored.origin == job.new.origin, (job, stored)
        assert stored.held_by == (f"{HELD_BY_PAUSE}k" if job.state is JobState.HELD else None)
