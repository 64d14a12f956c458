"""What is wrong with what is to come: pauses that jobs wait for; schedules that nobody advances, or whose jobs nobody runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.client._why_paused import resume_command
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._pauses import PauseTarget
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from aioqueue.vocabulary._abilities import SupportsSchedules
    from aioqueue.vocabulary._pauses import Pause
    from aioqueue.vocabulary._schedules import DueSchedules, StoredSchedule
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["MOST_SCHEDULES", "all_schedules", "judge_pauses", "judge_schedules"]

MOST_SCHEDULES = 1_000
"""How many are looked at."""

_OVERDUE_SECONDS = 60.0
"""For how long a tick may wait for a worker before that is a fault."""
_MOST_NAMED = 10
_COUNTED_JOBS = 10_000
_START_A_WORKER = "Start a worker on this database: `aioqueue worker MODULE:REGISTRY`."


def judge_pauses(pauses: Sequence[Pause]) -> list[Finding]:
    """What is paused, and how many jobs wait behind it. Nothing is said of a queue where nothing is."""
    waited_for = sorted((each for each in pauses if each.waiting), key=lambda each: -each.waiting)
    findings = [
        Finding(
            "pauses",
            Verdict.WARNING,
            f"{_what(each)} is paused{_by(each)} since {_at(each.at)}{_until(each)}: "
            f"{each.waiting:,}{' or more' if each.waiting >= _COUNTED_JOBS else ''} due "
            f"{'job waits' if each.waiting == 1 else 'jobs wait'}",
            f"When the cause is gone: {resume_command(each)}.",
        )
        for each in waited_for[:_MOST_NAMED]
    ]
    if len(waited_for) > _MOST_NAMED:
        more = f"and {len(waited_for) - _MOST_NAMED:,} more pauses that jobs wait behind"
        findings.append(Finding("pauses", Verdict.WARNING, more, "See them all: `aioqueue pauses`."))
    idle = [each for each in pauses if not each.waiting]
    if idle:
        names = _some([f"{_what(each)}{_by(each)}" for each in idle])
        findings.append(Finding("pauses", Verdict.OK, f"paused, and no job waits: {names}"))
    return findings


def _what(pause: Pause) -> str:
    if pause.target is PauseTarget.ALL:
        return "everything"
    return f"the {pause.target.value} {pause.value}"


def _by(pause: Pause) -> str:
    return f" by {pause.by}" if pause.by else ""


def _until(pause: Pause) -> str:
    return "" if pause.until is None else f" until {_at(pause.until)}"


async def all_schedules(store: SupportsSchedules) -> list[StoredSchedule]:
    """The first schedules by name, as many as are looked at."""
    return list((await store.list_schedules(MOST_SCHEDULES, None)).schedules)


def judge_schedules(
    schedules: Sequence[StoredSchedule], due: DueSchedules, leases: Sequence[LeaseFacts], declared: Collection[str] = ()
) -> list[Finding]:
    """Whether workers advance schedules, and run what they enqueue. Nothing is said of a queue that has none.

    Arguments:
        schedules: All that are looked at.
        due: Those with something to decide.
        leases: Of all workers.
        declared: Job types that are known to be only declared: their jobs wait for an answer.
    """
    if not schedules:
        return []
    alive = [each for each in leases if each.ends_in > 0]
    late = [each for each in due.schedules if _late(each, due.now) > _OVERDUE_SECONDS]
    findings = [_overdue(late, due.now, working=bool(alive))] if late else []
    findings += _unserved(schedules, alive, declared)
    if findings:
        return findings
    ticking = [each for each in schedules if not each.paused]
    paused = f", {len(schedules) - len(ticking):,} of them paused" if len(ticking) < len(schedules) else ""
    number = f"{len(schedules):,} schedule{'' if len(schedules) == 1 else 's'}{paused}"
    served = ", and live workers run what they enqueue" if alive else ""
    return [Finding("schedules", Verdict.OK, f"{number}: no tick is overdue{served}")]


def _late(schedule: StoredSchedule, now: datetime) -> float:
    """For how many seconds there has been something to decide."""
    return (now - (schedule.next_at or schedule.since)).total_seconds()


def _overdue(late: Sequence[StoredSchedule], now: datetime, *, working: bool) -> Finding:
    longest = max(_late(each, now) for each in late)
    which = f"{len(late):,} schedule{'' if len(late) == 1 else 's'} overdue, one for {duration_text(longest)}"
    names = _some([each.name for each in late])
    if not working:
        return Finding("schedules", Verdict.PROBLEM, f"{which}: no worker is alive: {names}", _START_A_WORKER)
    advice = "See the workers' logs for `schedule.` events; a worker with --dry-run advances none."
    if any(each.definition.cron is not None for each in late):
        advice = f"Cron expressions need the extra `cron` where a worker runs: `pip install cronsim`. {advice}"
    return Finding("schedules", Verdict.PROBLEM, f"{which}, though workers are alive: {names}", advice)


def _unserved(schedules: Sequence[StoredSchedule], alive: Sequence[LeaseFacts], declared: Collection[str]) -> list[Finding]:
    """Which of them enqueue what no live worker runs; nothing where that can't be told, or nobody lives: that is told apart."""
    if not alive or any(each.types is None for each in alive):
        return []
    served = {name for each in alive for name in each.types or ()} | set(declared)
    unserved: dict[str, list[str]] = {}
    for each in schedules:
        if not each.paused and each.definition.job_type not in served:
            unserved.setdefault(each.definition.job_type, []).append(each.name)
    findings = [
        Finding(
            "schedules",
            Verdict.WARNING,
            f"no worker that is alive runs {job_type}, which is enqueued by {_some(names)}",
            "Start a worker whose registry has that type; or delete or pause what enqueues it: `aioqueue schedules`.",
        )
        for job_type, names in list(unserved.items())[:_MOST_NAMED]
    ]
    if len(unserved) > _MOST_NAMED:
        more = f"and {len(unserved) - _MOST_NAMED:,} more types that schedules enqueue and nobody runs"
        findings.append(Finding("schedules", Verdict.WARNING, more))
    return findings


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
