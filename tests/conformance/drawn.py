"""What the state machine draws jobs from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from aioqueue.vocabulary._job import NewJob
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

__all__ = ["HOUR", "HOURS", "NEW_JOBS", "TYPES", "new_job", "waiting_behind"]

HOUR = 3600
TYPES = ("a", "b")
HOURS = st.sampled_from([0.0, 0.0, 1.0 * HOUR, 3.0 * HOUR])
KEPT = {1: 0.0, 4: 100_000.0 * HOUR}
NEW_JOBS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(TYPES),
        "priority": st.integers(1, 4),
        "delay": HOURS,
        "expires": st.sampled_from([None, 2.0 * HOUR, 5.0 * HOUR]),
        "key": st.sampled_from(["k", None]),
        "unique": st.sampled_from(
            [
                None,
                Unique(),
                Unique(),
                Unique(until="started"),
                Unique(window=2.0 * HOUR),
                Unique(on_conflict="replace"),
                Unique(until="started", on_conflict="replace"),
                Unique(window=2.0 * HOUR, on_conflict="replace"),
                Unique(on_conflict="raise"),
            ]
        ),
        "max_delay": st.sampled_from([None, 2.0 * HOUR]),
    }
)


def new_job(job_id: UUID, drawn: Mapping[str, Any]) -> NewJob:
    """The job that was drawn: without a key it can't be unique. How long it's kept goes by its priority: one draw less."""
    unique, keep = None if drawn["key"] is None else drawn["unique"], KEPT.get(drawn["priority"])
    return NewJob(id=job_id, **{**drawn, "unique": unique, "keep": keep})


def waiting_behind(jobs: Sequence[NewJob]) -> list[NewJob]:
    """Those of a batch that wait for none behind them, as none does that is enqueued."""
    behind = [{each.id for each in jobs[place:]} for place in range(len(jobs))]
    return [new for new, ids in zip(jobs, behind, strict=True) if not ids & {each.chain_id for each in new.blockers}]
