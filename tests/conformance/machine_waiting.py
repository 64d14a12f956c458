"""Commands about jobs that wait for others, about ends from outside, requests to end and pruning, beside all others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aioqueue.abc import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, Ending, JobState, NewJob, SettlementKind, StoredState
from tests.conformance.drawn import NEW_JOBS, new_job
from tests.conformance.machine import StoreMachine

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["WaitingMachine"]


class WaitingMachine(StoreMachine):
    """See the module."""

    @precondition(lambda self: any(map(self.model.can_be_waited_for, self.model.jobs)))
    @rule(data=st.data(), drawn=st.lists(NEW_JOBS, min_size=1, max_size=3))
    def insert_what_waits(self, data: st.DataObject, drawn: list[dict[str, Any]]) -> None:
        self.tick()
        known = [job_id for job_id in self.model.jobs if self.model.can_be_waited_for(job_id)]
        jobs: list[NewJob] = []
        for each in drawn:
            new = new_job(new_id(), each)
            ids: list[UUID] = self.pick(data, [*known, *(job.id for job in jobs)], most=3)
            settled = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
            blockers = [NewBlocker(job_id, settled=each) for job_id, each in zip(ids, settled, strict=True)]
            jobs.append(replace(new, blockers=tuple(blockers)))
        self._insert(jobs)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), good=st.booleans())
    def end_from_outside(self, data: st.DataObject, good: bool) -> None:
        self.tick()
        kind = SettlementKind.COMPLETED if good else SettlementKind.FAILED
        output, message = (b"1" if good else None), f"refused {next(self._numbers)}"
        error = None if good else AttemptError(attempt=0, at=datetime(2024, 1, 1, tzinfo=UTC), type="E", message=message)
        ids = [new.id for new in self.pick(data, self.known)]
        endings = [Ending(id=job_id, kind=kind, output=output, error=error) for job_id in ids]
        expected = [self.model.end_outside(job_id, kind, output, message) for job_id in ids]
        assert list(self.run(self.store.end(endings))) == expected
        self.tend()

    @precondition(lambda self: self.model.edges)
    @rule(data=st.data(), verb=st.sampled_from(["retry", "delete"]))
    def change_with_cascade(self, data: st.DataObject, verb: str) -> None:
        self.tick()
        (new,) = self.pick(data, self.known, most=1)
        (result,) = self.run(getattr(self.store, verb)([new.id], cascade=True))
        assert result == getattr(self.model, verb)(new.id, cascade=True)
        self.tend()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tick()
        ids = [new.id for new in self.pick(data, self.known)]
        reason = f"asked {next(self._numbers)}"
        expected: dict[Any, Any] = {}
        for job_id in ids:
            chain = self.model.chain_of(job_id)
            if chain not in expected:
                expected[chain] = self.model.cancel(job_id, reason)
        assert list(self.run(self.store.cancel(ids, reason))) == [expected[self.model.chain_of(job_id)] for job_id in ids]
        self.tend()

    @rule(
        state=st.sampled_from(["COMPLETED", "CONTINUED", "FAILED", "CANCELLED"]),
        types=st.sampled_from([None, ["a"], ["b", "c"]]),
    )
    def prune(self, state: str, types: list[str] | None) -> None:
        self.tick()
        removed, cursor, begun = [], None, False
        while cursor is not None or not begun:
            pruned = self.run(self.store.prune(StoredState[state], 0.0, types, 2, cursor))
            removed, cursor, begun = [*removed, *pruned.ids], pruned.cursor, True
        assert sorted(removed) == sorted(self.model.prune(JobState[state], types))
