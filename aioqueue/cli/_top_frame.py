"""What `aioqueue top` shows at one moment: put together of what the store counts, and of the moment before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.cli._limits import LIMITS_HEADER, describe_limit, limit_row
from aioqueue.cli._pauses import PAUSES_HEADER, describe_pause, pause_row
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aioqueue.vocabulary._gates import StoredLimit
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._pauses import Pause
    from aioqueue.vocabulary._stats import Stats, TypeStats
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["MOST_RUNNING_SHOWN", "Frame", "Table", "as_json", "make_frame", "summary", "tables"]

MOST_LIMITS_SHOWN = 20
MOST_RUNNING_SHOWN = 20
_SHOWN = (JobState.READY, JobState.SCHEDULED, JobState.BLOCKED, JobState.HELD, JobState.RUNNING, JobState.FAILED)
_SHOWN_IF_ANY = (JobState.BLOCKED, JobState.HELD)
_ENDS = (JobState.COMPLETED, JobState.CONTINUED, JobState.FAILED, JobState.CANCELLED)

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One moment.

    Attributes:
        at: When it was looked at, by this machine's clock.
        stats: The numbers.
        leases: Who works.
        running: The newest jobs that run.
        pauses: What is paused.
        limits: How many may run at once, or start in a time.
        rates: By type, how many jobs finished in a second since the moment before; None where that can't be told: there is no
            moment before, as many have finished as are counted, or some were removed.
    """

    at: datetime
    stats: Stats
    leases: Sequence[LeaseFacts]
    running: Sequence[Job]
    pauses: Sequence[Pause]
    limits: Sequence[StoredLimit]
    rates: Mapping[str, float | None]


def make_frame(
    at: datetime,
    stats: Stats,
    leases: Sequence[LeaseFacts],
    running: Sequence[Job],
    before: Frame | None,
    pauses: Sequence[Pause] = (),
    limits: Sequence[StoredLimit] = (),
) -> Frame:
    """Put a frame together.

    Arguments:
        at: Now.
        stats: The store's.
        leases: The store's.
        running: The newest jobs that run.
        before: The frame before this one.
        pauses, limits: The store's.
    """
    seconds = 0.0 if before is None else (at - before.at).total_seconds()
    earlier: Mapping[str, TypeStats] = {} if before is None else before.stats.types
    rates: dict[str, float | None] = {}
    for name, each in stats.types.items():
        finished, then = _finished(each), _finished(earlier[name]) if name in earlier else 0
        if seconds <= 0 or finished is None or then is None or finished < then:
            rates[name] = None
        else:
            rates[name] = (finished - then) / seconds
    return Frame(at=at, stats=stats, leases=leases, running=running, pauses=pauses, limits=limits, rates=rates)


def _finished(stats: TypeStats) -> int | None:
    """How many have finished; None where there are more than are counted."""
    return None if any(state in stats.capped for state in _ENDS) else sum(stats.counts.get(state, 0) for state in _ENDS)


def summary(frame: Frame) -> str:
    """The whole queue in a line."""
    types = frame.stats.types.values()
    parts: list[str] = []
    for state in _SHOWN:
        number = sum(each.counts.get(state, 0) for each in types)
        if number or state not in _SHOWN_IF_ANY:
            more = "+" if any(state in each.capped for each in types) else ""
            parts.append(f"{state.value} {number:,}{more}")
    oldest = max((each.oldest_ready for each in types if each.oldest_ready is not None), default=None)
    parts.append(f"oldest ready {'-' if oldest is None else duration_text(oldest)}")
    alive = [each for each in frame.leases if each.ends_in > 0]
    slots = sum(each.slots or 0 for each in alive if not each.extra)
    workers = sum(not each.extra for each in alive)
    parts.append(f"{workers} worker{'' if workers == 1 else 's'}, {sum(each.running for each in alive):,}/{slots:,} slots busy")
    if frame.pauses:
        parts.append(f"{len(frame.pauses):,} pause{'' if len(frame.pauses) == 1 else 's'}")
    return "  ".join(parts)


def tables(frame: Frame) -> list[Table]:
    """What is shown below that, the busiest first: pauses, limits, types, workers, running jobs."""
    types = sorted(frame.stats.types.items(), key=lambda each: (*_busy(each[1]), each[0]))
    by_type = [_type_row(name, each, frame.rates.get(name)) for name, each in types]
    by_worker = [_worker_row(each) for each in sorted(frame.leases, key=lambda each: (-each.running, each.worker))]
    running: list[tuple[str, ...]] = [
        (
            str(job.id),
            job.type,
            job.worker or "",
            "" if job.started_at is None else duration_text((frame.at - job.started_at).total_seconds()),
        )
        for job in frame.running
    ]
    header = ("type", *(state.value for state in _SHOWN), "finished/s", "oldest ready")
    paused = sorted(frame.pauses, key=lambda each: -each.waiting)
    fullest = sorted(frame.limits, key=lambda each: (-each.waiting, -each.running, each.name))
    shown: list[Table] = [
        (PAUSES_HEADER, [pause_row(each) for each in paused]),
        (LIMITS_HEADER, [limit_row(each) for each in fullest[:MOST_LIMITS_SHOWN]]),
        (header, by_type),
        (("worker", "lease", "running", "slots", "types"), by_worker),
        (("running job", "type", "worker", "for"), running),
    ]
    return [each for each in shown if each[1]]


def _busy(stats: TypeStats) -> tuple[int, ...]:
    return tuple(
        -stats.counts.get(state, 0) for state in (JobState.READY, JobState.RUNNING, JobState.SCHEDULED, JobState.FAILED)
    )


def _type_row(name: str, stats: TypeStats, rate: float | None) -> tuple[str, ...]:
    return (
        name,
        *(
            f"{number:,}{'+' if state in stats.capped else ''}" if (number := stats.counts.get(state, 0)) else ""
            for state in _SHOWN
        ),
        "" if rate is None else f"{rate:.1f}",
        "" if stats.oldest_ready is None else duration_text(stats.oldest_ready),
    )


def _worker_row(lease: LeaseFacts) -> tuple[str, ...]:
    return (
        lease.worker,
        f"{lease.ends_in:.0f} s left" if lease.ends_in > 0 else f"ran out {duration_text(-lease.ends_in)} ago",
        f"{lease.running:,}",
        "shared" if lease.extra else "?" if lease.slots is None else str(lease.slots),
        "?" if lease.types is None else ", ".join(lease.types),
    )


def as_json(frame: Frame) -> dict[str, object]:
    """The same for programs."""
    return {
        "at": frame.at.isoformat(),
        "types": {
            name: {
                "counts": {state.value: number for state, number in each.counts.items()},
                "capped": sorted(state.value for state in each.capped),
                "oldest_ready": each.oldest_ready,
                "finished_per_second": frame.rates.get(name),
            }
            for name, each in frame.stats.types.items()
        },
        "workers": [
            {
                "id": str(each.id),
                "worker": each.worker,
                "alive": each.ends_in > 0,
                "ends_in": each.ends_in,
                "extra": each.extra,
                "running": each.running,
                "slots": each.slots,
                "types": None if each.types is None else list(each.types),
            }
            for each in frame.leases
        ],
        "running": [
            {"id": str(job.id), "type": job.type, "worker": job.worker, "started_at": _iso(job.started_at)}
            for job in frame.running
        ],
        "pauses": [describe_pause(each) for each in frame.pauses],
        "limits": [describe_limit(each) for each in frame.limits],
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
