"""What a worker says of itself: its state at a moment, what a run has done, and what fails at the moment."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.definitions._observers import Observers
from aioqueue.errors import LeaseLost, RowRejected, StoreUnavailable
from aioqueue.events import WorkerError
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

__all__ = ["Health", "LateAttempt", "OnceResult", "Troubles", "shown_ends"]

logger = logging.getLogger("aioqueue.worker")

_LOG_EVERY_SECONDS = 30.0


_TOLERATED = frozenset(
    {"notifications", "outcome", "progress", "reconcile", "retention", "rows", "schedules", "stats", "tend", "webhooks"}
)
"""Troubles that don't keep the worker from its work: it polls, or they're about single jobs, or only about what is shown, or
about what other workers see to as well."""
_HARMLESS = frozenset({"outcome", "progress", "reconcile", "retention", "stats", "webhooks"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LateAttempt:
    """An attempt that should have ended: it's past its timeout or its claim, or was asked to stop and doesn't.

    Attributes:
        id, type, attempt: Which job's, and its number from 1.
        running: Seconds since it began.
        reasons: Why it should have ended: `timeout`, `lost`, `cancelled`, `shutdown`, `exit`.
    """

    id: UUID
    type: str
    attempt: int
    running: float
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return one_line(
            f"{self.type} {self.id}: attempt {self.attempt} runs for {self.running:.0f} s, and doesn't stop "
            f"({', '.join(self.reasons)})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A worker's state at one moment.

    Attributes:
        running: Whether it has been started and hasn't ended.
        stopping: Whether it was asked to stop.
        lease_valid: Whether it has its lease (one for each duration), confirmed by the database within its duration.
        busy: Slots that run a job.
        concurrency: Slots.
        standing_by: What it stands by for, if it does: such as `standing by for reports (held by web-1-4711)`. That's its work
            for now: it's ready.
        unwritten: Outcomes and claims that wait to be written.
        last_claim: Seconds since a claim succeeded (an empty one too); None before the first.
        troubles: The newest error of each part that fails at the moment: `claim`, `next_due`, `settle`, `release`, `renew`,
            `reap`; `event_loop`: a job blocks it for longer than `blocked_after`, which another thread can see; `outcome`: what
            became of one job can't be written, and its neighbours' outcomes can; `tend`: telling those who wait for chains that
            have ended, and discarding what wasn't started in time; `progress`: storing how far attempts have come; `retention`:
            removing what finished long ago; `schedules`: deciding their ticks; `reconcile`: storing those that stand in code,
            or their release number is that of other ones; `stats`: the store's figures for the metrics; `webhooks`: sending
            these; and what the store says of its own parts.
        late: Attempts that should have ended.
    """

    running: bool
    stopping: bool
    lease_valid: bool
    busy: int
    concurrency: int
    standing_by: str | None = None
    unwritten: int = 0
    last_claim: float | None = None
    troubles: Mapping[str, str] = field(default_factory=dict[str, str])
    late: Sequence[LateAttempt] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it isn't ready to do its work; empty if it is. Polling in place of notifications doesn't count."""
        if not self.running:
            return ("it doesn't run",)
        found = ["it is stopping"] if self.stopping else []
        found += [] if self.lease_valid or self.standing_by else ["it has no valid lease"]
        found += [f"{part}: {text}" for part, text in self.troubles.items() if part not in _TOLERATED]
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd, and doesn't keep it from its work."""
        found = [f"{part}: {text}" for part, text in self.troubles.items() if part in _TOLERATED]
        return (*([self.standing_by] if self.standing_by else ()), *found, *map(str, self.late))

    @property
    def ready(self) -> bool:
        """Whether it does its work, and will go on: it runs, isn't stopping, holds a lease, and nothing that matters fails.

        A worker that stands by for another is ready, too: a rolling deploy waits for that before it ends the other.
        """
        return not self.reasons

    @property
    def ok(self) -> bool:
        """Whether it does its work: it runs, holds a lease, and nothing fails.

        One job's outcome that can't be written (`outcome`) doesn't count: the others are, and a restart wouldn't help. Nor do
        what is only shown (`progress`, `stats`), messages to others (`webhooks`), old jobs that aren't removed (`retention`),
        nor schedules in code that aren't stored (`reconcile`).
        """
        return self.running and (self.lease_valid or self.standing_by is not None) and not (self.troubles.keys() - _HARMLESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceResult:
    """What `run_once` has done.

    Attributes:
        completed: Attempts that completed their job.
        continued: Attempts that completed their job, and whose chain goes on with another.
        failed: Jobs that failed for good.
        retried: Attempts that failed, and will be tried again.
        cancelled: Jobs that had expired, were asked to end, or have raised `Cancel`.
        rescheduled: Attempts that put themselves off.
    """

    completed: int = 0
    continued: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    rescheduled: int = 0


_ENDS = {
    SettlementKind.COMPLETED: "completed",
    SettlementKind.CONTINUED: "continued",
    SettlementKind.FAILED: "failed",
    SettlementKind.CANCELLED: "discarded",
    SettlementKind.RETRIED: "to be tried again",
    SettlementKind.RESCHEDULED: "put off",
}


def shown_ends(written: Mapping[SettlementKind, int], interrupted: int, left_behind: int) -> str:
    """What a run has done, for the log: how many attempts ended in which way."""
    counts = [f"{count} {_ENDS[kind]}" for kind, count in sorted(written.items())]
    counts += [f"{interrupted} interrupted"] if interrupted else []
    counts += [f"{left_behind} left behind"] if left_behind else []
    return ", ".join(counts) or "no attempts"


class Troubles:
    """Collects what fails at the moment, and logs it: at once, then now and then, and when it's over.

    Arguments:
        name: The worker's, for the log.
        observers: Who observes the worker; by default nobody.

    Attributes:
        current: The newest error of each part that fails, as one line. `Worker.health` shows it.
    """

    def __init__(self, name: str, observers: Observers | None = None) -> None:
        self._name = name
        self._observers = Observers() if observers is None else observers
        self.current: dict[str, str] = {}
        self._logged: dict[str, float] = {}

    def add(self, part: str, error: BaseException, *, told: bool = False) -> None:
        """Note that a part of the worker has failed, and that it will try again.

        Arguments:
            part: Its name in `Health.troubles`.
            error: What it has failed with.
            told: Whether the part has logged its first failure itself.
        """
        text = one_line(f"{type(error).__name__}: {error}")
        now = time.monotonic()
        if part not in self.current or now - self._logged[part] > _LOG_EVERY_SECONDS:
            self._logged[part], told = now, told and part not in self.current
            known = isinstance(error, (StoreUnavailable, LeaseLost, RowRejected))
            if not told:
                logger.warning(
                    "worker %s: %s fails, and is tried again: %s",
                    one_line(self._name),
                    part,
                    text,
                    exc_info=None if known else error,
                    extra=event("part.failing", worker=self._name, part=part),
                )
            if self._observers.active:
                self._observers.tell(WorkerError(at=datetime.now(UTC), worker=self._name, part=part, error=text))
        self.current[part] = text

    def note(self, part: str, text: str) -> None:
        """Note what is told in the log elsewhere. May be called in any thread."""
        self.current[part] = text

    def forget(self, part: str) -> None:
        """Undo what `note` has noted. May be called in any thread."""
        self.current.pop(part, None)

    def clear(self, part: str) -> None:
        """Note that a part works. If it has failed before, that's logged as loudly as its failure was."""
        if self.current and self.current.pop(part, None) is not None:
            logger.warning(
                "worker %s: %s works again",
                one_line(self._name),
                part,
                extra=event("part.works_again", worker=self._name, part=part),
            )
