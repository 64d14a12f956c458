"""Plain integers: what the workers and clients of this process have done. Counting is an addition, with no lock.

Each run of a worker, and each opening of a client, has a `Counters` of its own, which only its event loop's thread writes. The
`Ledger` knows those that live, and keeps the sums of those that are over, so that no counter ever falls.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "DELAY_BOUNDS_SECONDS",
    "DURATION_BOUNDS_SECONDS",
    "LEDGER",
    "OTHER",
    "AttemptOutcome",
    "Counters",
    "Histogram",
    "Ledger",
    "Recorder",
    "Recorders",
    "TypeCounters",
    "UniqueOutcome",
]

Recorder: TypeAlias = "Callable[[str, float], None]"
"""Is told of a value, and its label."""
Recorders: TypeAlias = tuple[Recorder, Recorder, Recorder]
"""Of durations of attempts, of delays of their starts, and of ticks' delays, which have no label."""

OTHER = "other"
"""The label of job types that the registry doesn't know: a name that anybody may store must not become a label."""

_MOST_ENQUEUED_TYPES = 200
"""Names that are counted apart; what is enqueued beyond them is `other`, with one client and in the sums of all."""

DURATION_BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
DELAY_BOUNDS_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


_SUMS = (
    "claims",
    "claimed",
    "reaped",
    "renewals",
    "renewals_failed",
    "leases_lost",
    "dependents_told",
    "dependents_failed",
    "expired_unstarted",
    "webhooks_delivered",
    "webhooks_retried",
    "webhooks_failed",
    "phases_completed",
    "phases_failed",
    "phases_resumed",
    "chains_removed",
    "ticks_enqueued",
    "ticks_skipped",
    "ticks_duplicate",
)
"""What is counted without a label."""


class AttemptOutcome(StrEnum):
    """How an attempt ended, as metrics and traces name it.

    `FAILED` has used its last attempt; `POISON` failed for good since it said so (`Fail`, `fail_on`), or couldn't be read.
    `LOST` was taken by another worker meanwhile; `INTERRUPTED` was given back with no attempt used.
    """

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    POISON = "poison"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    LOST = "lost"
    INTERRUPTED = "interrupted"


class UniqueOutcome(StrEnum):
    """What became of a call with a unique key, or with an id of the caller's choice, as metrics and traces name it.

    `CREATED` was stored, also behind a running chain whose key it has taken over; `RETURNED` wasn't, since another is there;
    that one was `REPLACED`; or the call was `REFUSED` with an error.
    """

    CREATED = "created"
    RETURNED = "returned"
    REPLACED = "replaced"
    REFUSED = "refused"


class Histogram:
    """How many values fell into each bucket, and their sum.

    Arguments:
        bounds: The buckets' upper bounds, inclusive, ascending. A last bucket has what is above them.

    Attributes:
        bounds: As given.
        counts: One number for each bucket, not cumulated.
        sum: Of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, other: Histogram) -> None:
        """Count what another one with the same bounds has counted."""
        for place, count in enumerate(list(other.counts)):
            self.counts[place] += count
        self.sum += other.sum


class TypeCounters:
    """What was counted of one job type.

    Arguments:
        label: The type's, for the recorders.
        recorders: Who is told of durations and of delays too, if anybody is, and of other things.

    Attributes:
        outcomes: Attempts by how they ended.
        duration: Seconds from an attempt's first step to its end.
        delay: Seconds from when a job was due to when it was claimed, by the database's clock.
    """

    __slots__ = ("_label", "_recorders", "delay", "duration", "outcomes")

    def __init__(self, label: str = OTHER, recorders: Recorders | None = None) -> None:
        self._label = label
        self._recorders = recorders
        self.outcomes = dict.fromkeys(AttemptOutcome, 0)
        self.duration = Histogram(DURATION_BOUNDS_SECONDS)
        self.delay = Histogram(DELAY_BOUNDS_SECONDS)

    def begun(self, delay: float) -> None:
        """Count that an attempt has begun, so many seconds after it was due."""
        histogram = self.delay  # written out here and in `ended`, which are called for each job
        histogram.counts[bisect_left(DELAY_BOUNDS_SECONDS, delay)] += 1
        histogram.sum += delay
        if self._recorders is not None:
            self._recorders[1](self._label, delay)

    def ended(self, duration: float) -> None:
        """Count that an attempt has ended, after so many seconds."""
        histogram = self.duration
        histogram.counts[bisect_left(DURATION_BOUNDS_SECONDS, duration)] += 1
        histogram.sum += duration
        if self._recorders is not None:
            self._recorders[0](self._label, duration)

    def add(self, other: TypeCounters) -> None:
        """Count what another one has counted."""
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.duration.add(other.duration)
        self.delay.add(other.delay)


class Counters:
    """What one run of a worker, or one opening of a client, has done.

    Arguments:
        labels: The names of job types as they are stored, aliases too, and the label of each. What isn't among them is `other`.
        recorders: Who is told of durations, of delays and of ticks' delays too, if anybody is.

    Attributes:
        labels: As given.
        claims, claimed: Claims that succeeded, empty ones too; jobs that they brought.
        renewals, renewals_failed, leases_lost: Of leases.
        reaped: Jobs of dead workers that were taken over.
        dependents_told, dependents_failed, expired_unstarted: What tending has done: ends of chains told to a job that waited,
            jobs that have failed since what they waited for didn't complete, jobs that weren't started in time.
        phases_completed, phases_failed, phases_resumed: Phases that have run, by how they ended; those whose stored result was
            taken.
        chains_removed: Old chains that retention has removed.
        webhooks_delivered, webhooks_retried, webhooks_failed: Tries to send messages, by what became of them: the receiver has
            taken it, it's tried again, or it's given up.
        ticks_enqueued, ticks_skipped, ticks_duplicate: Ticks of schedules, by what became of them.
        tick_delay: Seconds from when a tick was due to when it was enqueued, by the database's clock.
        enqueued: Jobs that were stored, by label.
        unique: What became of calls that are unique, or have a chosen id: by label and outcome.
        reconnects: Connections of the store that were lost and are there again, by what they're for; the store counts them.
    """

    __slots__ = (
        "_others",
        "_recorders",
        "_types",
        "chains_removed",
        "claimed",
        "claims",
        "dependents_failed",
        "dependents_told",
        "enqueued",
        "expired_unstarted",
        "labels",
        "leases_lost",
        "phases_completed",
        "phases_failed",
        "phases_resumed",
        "reaped",
        "reconnects",
        "renewals",
        "renewals_failed",
        "tick_delay",
        "ticks_duplicate",
        "ticks_enqueued",
        "ticks_skipped",
        "unique",
        "webhooks_delivered",
        "webhooks_failed",
        "webhooks_retried",
    )

    def __init__(self, labels: Mapping[str, str] | None = None, recorders: Recorders | None = None) -> None:
        self._recorders = recorders
        self.labels: Mapping[str, str] = {} if labels is None else labels
        self.claims = self.claimed = self.reaped = 0
        self.dependents_told = self.dependents_failed = self.expired_unstarted = 0
        self.renewals = self.renewals_failed = self.leases_lost = 0
        self.webhooks_delivered = self.webhooks_retried = self.webhooks_failed = 0
        self.phases_completed = self.phases_failed = self.phases_resumed = self.chains_removed = 0
        self.ticks_enqueued = self.ticks_skipped = self.ticks_duplicate = 0
        self.tick_delay = Histogram(DELAY_BOUNDS_SECONDS)
        self.enqueued: dict[str, int] = {}
        self.unique: dict[tuple[str, UniqueOutcome], int] = {}
        self.reconnects: Mapping[str, int] = {}
        by_label = {label: TypeCounters(label, recorders) for label in self.labels.values()}
        self._types = {name: by_label[label] for name, label in self.labels.items()}
        self._others: TypeCounters | None = None

    def of(self, name: str) -> TypeCounters:
        """What is counted of a type, given the name under which its job is stored."""
        found = self._types.get(name)
        if found is None:
            found = self._others = self._others or TypeCounters(OTHER, self._recorders)
        return found

    def by_label(self) -> dict[str, TypeCounters]:
        """What was counted, by label; `other` only where there was one. May be called from any thread."""
        found = {label: self._types[name] for name, label in self.labels.items()}
        if self._others is not None:
            found[OTHER] = self._others
        return found

    def count_enqueued(self, name: str) -> None:
        """Count one job that was stored."""
        enqueued = self.enqueued
        if name not in enqueued and len(enqueued) >= _MOST_ENQUEUED_TYPES:
            name = OTHER
        enqueued[name] = enqueued.get(name, 0) + 1

    def tick_enqueued(self, delay: float) -> None:
        """Count that a tick was enqueued, so many seconds after it was due."""
        self.ticks_enqueued += 1
        self.tick_delay.counts[bisect_left(DELAY_BOUNDS_SECONDS, delay)] += 1
        self.tick_delay.sum += delay
        if self._recorders is not None:
            self._recorders[2]("", delay)

    def count_unique(self, name: str, outcome: UniqueOutcome) -> None:
        """Count what became of one call that is unique, or has a chosen id."""
        unique = self.unique
        if (name, outcome) not in unique and len(unique) >= _MOST_ENQUEUED_TYPES * len(UniqueOutcome):
            name = OTHER
        unique[name, outcome] = unique.get((name, outcome), 0) + 1

    def add(self, other: Counters, names: set[str]) -> None:
        """Count what another one has counted, under its labels.

        Arguments:
            other: What is added.
            names: Of what was enqueued, those that are shown apart; new ones join them, as long as there are few.
        """
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.tick_delay.add(other.tick_delay)
        for label, counted in other.by_label().items():
            mine = self._types.get(label)
            if mine is None:
                mine = self._types[label] = TypeCounters()
                self.labels = {**self.labels, label: label}
            mine.add(counted)
        for name, count in other.enqueued.copy().items():
            shown = _shown(name, names)
            self.enqueued[shown] = self.enqueued.get(shown, 0) + count
        for (name, outcome), count in other.unique.copy().items():
            unique = _shown(name, names), outcome
            self.unique[unique] = self.unique.get(unique, 0) + count
        if other.reconnects:
            one, two = self.reconnects, other.reconnects
            self.reconnects = {name: one.get(name, 0) + two.get(name, 0) for name in {*one, *two}}


def _shown(name: str, names: set[str]) -> str:
    if name not in names:
        if len(names) >= _MOST_ENQUEUED_TYPES:
            return OTHER
        names.add(name)
    return name


class Ledger:
    """All counters of this process: those that live, and the sums of those that are over. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._past = Counters()
        self._live: list[Counters] = []
        self._names: set[str] = set()

    def open(self, counters: Counters) -> None:
        """Count these too, from now on."""
        with self._lock:
            self._live.append(counters)

    def close(self, counters: Counters) -> None:
        """Keep only the sums of these: nobody writes them any more. Closing them again does nothing."""
        with self._lock:
            if counters in self._live:
                self._live.remove(counters)
                self._past.add(counters, self._names)

    def total(self) -> Counters:
        """The sums of all, at this moment."""
        with self._lock:
            counted: Iterable[Counters] = (self._past, *self._live)
            total = Counters()
            for each in counted:
                total.add(each, self._names)
            return total

    def forget(self) -> None:
        """Begin anew: in a forked process, what was counted is its parent's, and the lock may be held by nobody."""
        self._lock = threading.Lock()
        self._past = Counters()
        self._live = []
        self._names = set()


LEDGER = Ledger()
"""This process's."""

os.register_at_fork(after_in_child=LEDGER.forget)
