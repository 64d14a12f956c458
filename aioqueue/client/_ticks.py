"""What ticks of schedules enqueue: as a client enqueues anything else, with its middlewares, its webhook and its spans."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from aioqueue.client._enqueue import check_sizes, refuse_unsupported
from aioqueue.definitions._middleware import fold_enqueue
from aioqueue.errors import ConfigurationError
from aioqueue.events import JobEnqueued
from aioqueue.runtime._log import event
from aioqueue.telemetry._counters import UniqueOutcome
from aioqueue.vocabulary._job import Inserted
from aioqueue.vocabulary._schedules import TickOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._middleware import EnqueueMiddleware
    from aioqueue.definitions._observers import Observers
    from aioqueue.telemetry._counters import Counters
    from aioqueue.telemetry._tracing import SendSpan, Tracing
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import DecidedTick, Tick, Ticked

__all__ = ["Decide", "Ticker"]

Decide: TypeAlias = "Callable[[Tick], Awaitable[Ticked]]"
"""Gives a tick to the store, perhaps together with others."""

logger = logging.getLogger("aioqueue")


class Ticker:
    """Has ticks decided, with what one opening of a client enqueues with.

    Arguments:
        store: Open.
        middlewares: Around each enqueueing, the first listed outermost.
        counters: What is counted.
        tracing: Makes the spans: one for each tick that enqueues something.
        observers: Told of what is stored.
        webhook: The URL that is told of the ends of jobs that name none.
    """

    def __init__(
        self,
        store: Store,
        middlewares: Sequence[EnqueueMiddleware],
        counters: Counters,
        tracing: Tracing,
        observers: Observers,
        webhook: str | None,
    ) -> None:
        self._store = store
        self._middlewares = middlewares
        self._counters = counters
        self._tracing = tracing
        self._observers = observers
        self._webhook = webhook

    async def tick(self, tick: Tick, decide: Decide) -> Ticked:
        """Have one tick decided.

        Arguments:
            tick: As it was worked out.
            decide: Gives it to the store, perhaps together with others.

        Returns:
            What became of it.

        Raises:
            NotSupported: Somebody is to be told of its job's end, and the store keeps no deliveries.
            Exception: What `decide` has raised, or a middleware before it has gone on.
        """
        if not tick.jobs:
            return await decide(tick)
        # One that isn't enqueued by this has no span: of those who try to, all but one come too late, and theirs are dropped.
        span = self._tracing.send_jobs([job.type for job in tick.jobs])
        trace = None if span is None else span.trace
        jobs = [
            replace(job, trace=trace, webhook=(self._webhook if job.webhook is None else job.webhook) or None)
            for job in tick.jobs
        ]
        try:
            refuse_unsupported(self._store, jobs)
            ticked = await self._decide_through_middlewares(tick, jobs, decide)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise
        if ticked.decided:
            self._hear(jobs, ticked, span)
        return ticked

    async def _decide_through_middlewares(self, tick: Tick, jobs: Sequence[NewJob], decide: Decide) -> Ticked:
        ticked: Ticked | None = None

        async def insert(passed_on: Sequence[NewJob]) -> Sequence[Inserted]:
            nonlocal ticked
            if [job.id for job in passed_on] != [job.id for job in jobs]:
                raise ConfigurationError("an enqueue middleware has to pass on as many jobs, in order, and with the same ids")
            for job in passed_on:
                check_sizes(job)
            kept = tuple(replace(job, origin=own.origin) for job, own in zip(passed_on, jobs, strict=True))
            ticked = await decide(replace(tick, jobs=kept))
            return _inserted(jobs, ticked)

        if not self._middlewares:
            return await decide(replace(tick, jobs=tuple(jobs)))
        try:
            await fold_enqueue(self._middlewares, insert)(jobs)
        except Exception:
            if ticked is None:
                raise
            logger.exception(
                "the tick of the schedule %r was decided, and an enqueue middleware has failed after that",
                tick.name,
                extra=event("schedule.middleware_failed", schedule=tick.name),
            )
        if ticked is None:
            raise ConfigurationError("an enqueue middleware has to call call_next() once, and await it")
        return ticked

    def _hear(self, jobs: Sequence[NewJob], ticked: Ticked, span: SendSpan | None) -> None:
        """Tell whoever counts, traces and observes what became of the jobs."""
        seen: dict[UniqueOutcome, int] = {}
        stored = [
            (job, decided)
            for job, decided in zip(jobs, ticked.ticks, strict=False)
            if decided.outcome is not TickOutcome.SKIPPED
        ]
        for job, decided in stored:
            chain_id, outcome = decided.chain_id or job.id, _outcome(job, decided)
            if outcome is UniqueOutcome.CREATED:
                self._counters.count_enqueued(job.type)
            if job.unique is not None:
                self._counters.count_unique(job.type, outcome)
                seen[outcome] = seen.get(outcome, 0) + 1
            if span is not None and len(jobs) == 1:
                span.stored_as(chain_id)
            if outcome is not UniqueOutcome.RETURNED and self._observers.active:
                self._observers.tell(JobEnqueued(at=datetime.now(UTC), job_id=chain_id, chain_id=chain_id, job_type=job.type))
        if span is not None and stored:
            span.unique(seen, one=len(jobs) == 1)
            span.sent()


def _outcome(job: NewJob, decided: DecidedTick) -> UniqueOutcome:
    """What became of a job that wasn't skipped."""
    if decided.outcome is TickOutcome.DUPLICATE:
        return UniqueOutcome.RETURNED
    return UniqueOutcome.CREATED if decided.chain_id in (None, job.id) else UniqueOutcome.REPLACED


def _inserted(jobs: Sequence[NewJob], ticked: Ticked) -> list[Inserted]:
    """What middlewares are told of each job."""
    if not ticked.decided:
        return [Inserted(job.id, created=False) for job in jobs]
    return [
        Inserted(
            decided.chain_id or job.id,
            created=decided.outcome is TickOutcome.ENQUEUED and _outcome(job, decided) is UniqueOutcome.CREATED,
            replaced=decided.outcome is TickOutcome.ENQUEUED and _outcome(job, decided) is UniqueOutcome.REPLACED,
        )
        for job, decided in zip(jobs, ticked.ticks, strict=False)
    ]
