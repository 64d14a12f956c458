"""What is said of ticks and schedules: in the log, to observers, and in the metrics."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.events import ScheduleTicked
from aioqueue.runtime._log import event
from aioqueue.vocabulary._schedules import TickOutcome
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from aioqueue.definitions._observers import Observers
    from aioqueue.telemetry._counters import Counters
    from aioqueue.vocabulary._schedules import DecidedTick, StoredSchedule, Ticked

__all__ = ["SchedulesTold"]

logger = logging.getLogger("aioqueue.worker")


class SchedulesTold:
    """Tells what one worker has decided.

    Arguments:
        name: The worker's.
        observers: Who observes it.
        counters: What its run counts.

    Attributes:
        enqueued: How many jobs its ticks have enqueued.
    """

    def __init__(self, name: str, observers: Observers, counters: Counters) -> None:
        self._worker = name
        self._name = one_line(name)
        self._observers = observers
        self._counters = counters
        self.enqueued = 0

    def ticked(self, schedule: StoredSchedule, ticked: Ticked) -> None:
        """Tell what became of a schedule's ticks."""
        for decided in ticked.ticks:
            self._count(decided)
            self._log(schedule, decided)
            if self._observers.active:
                self._observers.tell(
                    ScheduleTicked(
                        at=datetime.now(UTC),
                        worker=self._worker,
                        schedule=schedule.name,
                        job_type=schedule.definition.job_type,
                        nominal_time=decided.nominal_time,
                        outcome=decided.outcome.name.lower(),
                        reason=decided.reason,
                        chain_id=decided.chain_id,
                        count=decided.count,
                    )
                )

    def _count(self, decided: DecidedTick) -> None:
        counters = self._counters
        if decided.outcome is TickOutcome.ENQUEUED:
            self.enqueued += 1
            counters.tick_enqueued(max(0.0, (decided.decided_at - decided.nominal_time).total_seconds()))
        elif decided.outcome is TickOutcome.SKIPPED:
            counters.ticks_skipped += decided.count
        else:
            counters.ticks_duplicate += decided.count

    def _log(self, schedule: StoredSchedule, decided: DecidedTick) -> None:
        if decided.outcome is TickOutcome.ENQUEUED:
            level, became = logging.DEBUG, " is enqueued"
        elif decided.outcome is TickOutcome.SKIPPED:
            more = f", and {decided.count - 1} before it," if decided.count > 1 else ""
            level, became = logging.INFO, f"{more} is skipped: {one_line(decided.reason)}"
        else:
            level, became = logging.INFO, f" finds its unique key taken by {decided.chain_id}"
        if not logger.isEnabledFor(level):
            return
        logger.log(
            level,
            "worker %s: the tick of %s at %s%s",
            self._name,
            one_line(schedule.name),
            decided.nominal_time.isoformat(),
            became,
            extra=event(
                "schedule.ticked",
                worker=self._worker,
                schedule=schedule.name,
                job_type=schedule.definition.job_type,
                nominal_time=decided.nominal_time.isoformat(),
                outcome=decided.outcome.name.lower(),
                reason=decided.reason or None,
                chain_id=None if decided.chain_id is None else str(decided.chain_id),
                count=decided.count,
            ),
        )

    def put_off(self, name: str, reason: str) -> None:
        """Tell that a schedule's ticks can't be decided by this worker for now."""
        logger.warning(
            "worker %s: the ticks of %s can't be decided, which is tried again: %s",
            self._name,
            one_line(name),
            one_line(reason),
            extra=event("schedule.put_off", worker=self._worker, schedule=name, reason=reason),
        )
