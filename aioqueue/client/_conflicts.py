"""What has become of calls that weren't simply stored: those with a unique key or a chosen id, and what only they needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aioqueue.errors import DuplicateJob, WrongJobType
from aioqueue.runtime._log import event
from aioqueue.telemetry._counters import UniqueOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.definitions._call import Call
    from aioqueue.telemetry._counters import Counters
    from aioqueue.telemetry._tracing import SendSpan
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["left_out", "report_conflict", "report_unique"]

logger = logging.getLogger("aioqueue")


def left_out(jobs: Sequence[NewJob], results: Sequence[Inserted]) -> set[int]:
    """Find the implied jobs that weren't stored, since nothing that is stored waits for them.

    Arguments:
        jobs: Each after those that it waits for.
        results: What became of them.

    Returns:
        Their places.
    """
    needed: set[UUID] = set()
    places: set[int] = set()
    for place in range(len(jobs) - 1, -1, -1):
        job, result = jobs[place], results[place]
        if job.implied and job.id not in needed:
            places.add(place)
        elif result.created or result.replaced or (result.id == job.id and not job.chosen_id):
            needed.update([each.chain_id for each in job.blockers])
    return places


def report_unique(calls: Sequence[tuple[Call[Any], NewJob, Inserted]], counters: Counters, span: SendSpan | None) -> None:
    """Count, and say of the span, what became of calls of which some are unique or have a chosen id."""
    seen: dict[UniqueOutcome, int] = {}
    for _, job, result in calls:
        if job.unique is None and not job.chosen_id:
            continue
        outcome = _outcome(result)
        counters.count_unique(job.type, outcome)
        seen[outcome] = seen.get(outcome, 0) + 1
        if outcome is not UniqueOutcome.CREATED:
            _log(job, outcome, result.id)
    if span is not None:
        span.unique(seen, one=len(calls) == 1)


def report_conflict(jobs: Sequence[NewJob], error: BaseException, counters: Counters, span: SendSpan | None) -> None:
    """The same of a call that was refused, and nothing was stored."""
    if not isinstance(error, DuplicateJob | WrongJobType):
        return
    job = next((job for job in jobs if job.id == error.job_id), None)
    if job is None:
        return
    counters.count_unique(job.type, UniqueOutcome.REFUSED)
    _log(job, UniqueOutcome.REFUSED, error.chain_id)
    if span is not None:
        span.unique({UniqueOutcome.REFUSED: 1}, one=len(jobs) == 1)
        if len(jobs) == 1:
            span.stored_as(error.chain_id or job.id)


def _outcome(result: Inserted) -> UniqueOutcome:
    if result.created:
        return UniqueOutcome.CREATED
    return UniqueOutcome.REPLACED if result.replaced else UniqueOutcome.RETURNED


def _log(job: NewJob, outcome: UniqueOutcome, chain_id: UUID | None) -> None:
    if not logger.isEnabledFor(logging.DEBUG):
        return
    logger.debug(
        "the job %s of %s wasn't stored: %s",
        job.id,
        job.type,
        _TEXTS[outcome].format(chain_id),
        extra=event(
            "client.enqueue_not_stored",
            job_id=str(job.id),
            job_type=job.type,
            chain_id=None if chain_id is None else str(chain_id),
            outcome=outcome.value,
        ),
    )


_TEXTS = {
    UniqueOutcome.RETURNED: "{} is there already",
    UniqueOutcome.REPLACED: "its arguments and options are those of {} now",
    UniqueOutcome.REFUSED: "{} is there already, which is an error",
}
