"""The metrics: their names, which are stable, and what each shows at the moment.

One table for both ways out: Prometheus text (`_prometheus`), and OpenTelemetry's instruments (`_instruments`). The page
docs/how-to/metrics.md tells them to users, and a test compares it with what is printed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aioqueue.telemetry._counters import LEDGER
from aioqueue.telemetry._views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.telemetry._counters import Histogram
    from aioqueue.telemetry._views import Figures, Gauges

__all__ = ["DELAY", "DURATION", "METRICS", "TICK_DELAY", "Kind", "Metric", "Values", "look", "read"]

_ANSWER_SECONDS = 0.25
"""That an event loop gets to answer, for the lag to be today's."""

_CONNECTIONS = ("lease", "notifications")
"""Those of which it's counted how often they were lost, and that are shown with 0 until then."""
_PARTS = (
    "claim",
    "event_loop",
    "limits",
    "next_due",
    "notifications",
    "outcome",
    "progress",
    "reap",
    "reconcile",
    "release",
    "renew",
    "retention",
    "schedules",
    "settle",
    "stats",
    "tend",
    "webhooks",
)
"""Parts that may fail, and are shown with 0 while they don't."""


class Kind(StrEnum):
    """What a metric's numbers mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As OpenTelemetry writes it.
        kind: What its numbers mean.
        labels: Their names.
        help: One sentence for people.
        unit: `s`, or nothing for counts.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str = ""

    @property
    def prometheus_name(self) -> str:
        """As Prometheus writes it."""
        unit = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + unit + ("_total" if self.kind is Kind.COUNTER else "")


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

ENQUEUED = Metric("aioqueue.jobs.enqueued", _C, ("type",), "Jobs that this process has stored.")
UNIQUE = Metric("aioqueue.unique_enqueues", _C, ("type", "outcome"), "Unique calls, and calls with a chosen id, by outcome.")
PROCESSED = Metric("aioqueue.jobs.processed", _C, ("type", "outcome"), "Attempts that have ended, by how.")
DURATION = Metric("aioqueue.job.duration", _H, ("type",), "From the first step of an attempt to its end.", "s")
DELAY = Metric("aioqueue.job.start_delay", _H, ("type",), "From when a job was due to when it was claimed.", "s")
IN_FLIGHT = Metric("aioqueue.in_flight", _G, ("type",), "Attempts that run.")
BUSY = Metric("aioqueue.slots.busy", _G, (), "Slots that run an attempt.")
FREE = Metric("aioqueue.slots.free", _G, (), "Slots that run none.")
LATE = Metric("aioqueue.late_attempts", _G, (), "Attempts that run past their timeout or claim, or don't stop.")
UNWRITTEN = Metric("aioqueue.unwritten", _G, (), "Outcomes and claims that wait to be written.")
CLAIMS = Metric("aioqueue.claims", _C, (), "Claims that succeeded, empty ones too.")
CLAIMED = Metric("aioqueue.jobs.claimed", _C, (), "Jobs that claims have brought.")
RENEWALS = Metric("aioqueue.lease.renewals", _C, ("result",), "Renewals of leases.")
LEASES_LOST = Metric("aioqueue.leases.lost", _C, (), "Leases that were lost, with all that ran under them.")
REAPED = Metric("aioqueue.jobs.reaped", _C, (), "Jobs of dead workers that were taken over.")
TENDED = Metric("aioqueue.jobs.tended", _C, ("result",), "Jobs that waited, or weren't started, and were seen to.")
PHASES = Metric("aioqueue.phases", _C, ("result",), "Phases that have run, or whose stored result was taken (resumed).")
REMOVED = Metric("aioqueue.chains.removed", _C, (), "Old chains that were removed by retention.")
WEBHOOKS = Metric("aioqueue.webhooks.sent", _C, ("result",), "Tries to send webhooks, by what became of them.")
TICKS = Metric("aioqueue.schedule.ticks", _C, ("outcome",), "Ticks of schedules that this process has decided, by outcome.")
TICK_DELAY = Metric("aioqueue.schedule.delay", _H, (), "From when a tick was due to when its job was enqueued.", "s")
RECONNECTS = Metric("aioqueue.reconnects", _C, ("connection",), "Connections that were lost, and are there again.")
LAG = Metric("aioqueue.event_loop.lag", _G, (), "How long the event loop takes to answer.", "s")
FAILING = Metric("aioqueue.failing", _G, ("part",), "1 for each part that fails at the moment.")
JOBS = Metric("aioqueue.jobs", _G, ("type", "state"), "Jobs in the store; counting stops at 10,000.")
OLDEST = Metric("aioqueue.oldest_ready", _G, ("type",), "For how long the oldest ready job has been due.", "s")
PAUSES = Metric("aioqueue.pauses", _G, ("target",), "Pauses of types, of keys and of all jobs.")
PLACES = Metric("aioqueue.limit.places", _G, ("limit",), "Jobs that a limit lets run at once, or a rate start in its time.")
AT_LIMIT = Metric("aioqueue.limit.running", _G, ("limit",), "Jobs that run at a limit; counting stops at 10,000.")
WAITING = Metric("aioqueue.limit.waiting", _G, ("limit",), "Jobs that are held at a limit or a rate; counting stops at 10,000.")
KEPT = Metric("aioqueue.sequences.kept", _G, (), "Sequences that a failed job keeps; counting stops at 1,000.")
TICK_OVERDUE = Metric("aioqueue.schedule.overdue", _G, (), "For how long the first tick that nobody decides has been due.", "s")
FIGURES_AGE = Metric("aioqueue.store_figures.age", _G, (), "How old what is said of the store is.", "s")

METRICS = (
    ENQUEUED,
    UNIQUE,
    PROCESSED,
    DURATION,
    DELAY,
    IN_FLIGHT,
    BUSY,
    FREE,
    LATE,
    UNWRITTEN,
    CLAIMS,
    CLAIMED,
    RENEWALS,
    LEASES_LOST,
    REAPED,
    TENDED,
    PHASES,
    REMOVED,
    WEBHOOKS,
    TICKS,
    TICK_DELAY,
    RECONNECTS,
    LAG,
    FAILING,
    JOBS,
    OLDEST,
    PAUSES,
    PLACES,
    AT_LIMIT,
    WAITING,
    KEPT,
    TICK_OVERDUE,
    FIGURES_AGE,
)

Values = dict[tuple[str, ...], "float | Histogram"]
"""By the values of the metric's labels."""


def look() -> None:
    """Ask for what isn't there at once: signs of life of the event loops, and figures of the stores. From any other thread."""
    views = VIEWS.all()
    for view in views:
        view.want_figures()
        view.watch.ask()
    until = time.monotonic() + _ANSWER_SECONDS
    for view in views:
        view.watch.wait(max(0.0, until - time.monotonic()))


def read() -> Mapping[Metric, Values]:
    """What each metric shows now, from memory alone."""
    values: dict[Metric, Values] = {metric: {} for metric in METRICS}
    _read_counters(values)
    if views := VIEWS.all():
        _read_gauges(values, [view.gauges() for view in views])
    return values


def _read_counters(values: Mapping[Metric, Values]) -> None:
    total = LEDGER.total()
    values[ENQUEUED].update({(name,): count for name, count in total.enqueued.items()})
    values[UNIQUE].update({(name, outcome.value): count for (name, outcome), count in total.unique.items()})
    for label, counted in total.by_label().items():
        values[PROCESSED].update({(label, outcome.value): count for outcome, count in counted.outcomes.items()})
        values[DURATION][label,] = counted.duration
        values[DELAY][label,] = counted.delay
    values[CLAIMS][()], values[CLAIMED][()] = total.claims, total.claimed
    values[RENEWALS].update({("ok",): total.renewals, ("failed",): total.renewals_failed})
    values[LEASES_LOST][()], values[REAPED][()] = total.leases_lost, total.reaped
    told, failed, expired = total.dependents_told, total.dependents_failed, total.expired_unstarted
    values[TENDED].update({("told",): told, ("failed",): failed, ("expired",): expired})
    done, broken, resumed = total.phases_completed, total.phases_failed, total.phases_resumed
    values[PHASES].update({("completed",): done, ("failed",): broken, ("resumed",): resumed})
    values[REMOVED][()] = total.chains_removed
    delivered, retried, given_up = total.webhooks_delivered, total.webhooks_retried, total.webhooks_failed
    values[WEBHOOKS].update({("delivered",): delivered, ("retried",): retried, ("failed",): given_up})
    ticks = total.ticks_enqueued, total.ticks_skipped, total.ticks_duplicate
    values[TICKS].update({(name,): count for name, count in zip(("enqueued", "skipped", "duplicate"), ticks, strict=True)})
    values[TICK_DELAY][()] = total.tick_delay
    values[RECONNECTS].update({(name,): total.reconnects.get(name, 0) for name in sorted({*_CONNECTIONS, *total.reconnects})})


def _read_gauges(values: Mapping[Metric, Values], gauges: Sequence[Gauges]) -> None:
    """Of several workers in one process: the sums, but the longest lag, and what fails in any of them."""
    in_flight: dict[str, int] = defaultdict(int)
    for each in gauges:
        for label, count in each.in_flight.items():
            in_flight[label] += count
    values[IN_FLIGHT].update({(label,): count for label, count in in_flight.items()})
    values[BUSY][()] = sum(each.busy for each in gauges)
    values[FREE][()] = sum(each.free for each in gauges)
    values[LATE][()] = sum(each.late for each in gauges)
    values[UNWRITTEN][()] = sum(each.unwritten for each in gauges)
    values[LAG][()] = max(each.lag for each in gauges)
    failing = {part for each in gauges for part in each.failing}
    values[FAILING].update({(part,): int(part in failing) for part in sorted({*_PARTS, *failing})})
    _read_figures(values, [each.figures for each in gauges if each.figures is not None])


def _read_figures(values: Mapping[Metric, Values], figures: Sequence[Figures]) -> None:
    """What several workers were told: mostly of one store, so the largest numbers count, and no sum."""
    for each in figures:
        for key, count in each.counts.items():
            values[JOBS][key] = max(count, _number(values[JOBS].get(key)))
        for label, age in each.oldest_ready.items():
            values[OLDEST][label,] = max(age, _number(values[OLDEST].get((label,))))
        for target, count in each.pauses.items():
            values[PAUSES][target,] = max(count, _number(values[PAUSES].get((target,))))
        for metric, numbers in ((PLACES, each.places), (AT_LIMIT, each.at_limit), (WAITING, each.waiting)):
            for limit, count in numbers.items():
                values[metric][limit,] = max(count, _number(values[metric].get((limit,))))
        if each.kept_sequences is not None:
            values[KEPT][()] = max(each.kept_sequences, _number(values[KEPT].get(())))
        if each.tick_overdue is not None:
            values[TICK_OVERDUE][()] = max(each.tick_overdue, _number(values[TICK_OVERDUE].get(())))
    if figures:
        values[FIGURES_AGE][()] = time.monotonic() - min(each.read_at for each in figures)


def _number(value: float | Histogram | None) -> float:
    return value if isinstance(value, (int, float)) else 0.0
