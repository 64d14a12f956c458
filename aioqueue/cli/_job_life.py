"""What commands show of a job's life: its progress, phases and attempts one after the other, and what these have logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioqueue.cli._text import one_line
from aioqueue.vocabulary._job import was_discarded
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._job_attempts import JobAttempt
    from aioqueue.vocabulary._phases import Phase, Progress

__all__ = ["describe_life", "describe_log", "log_lines", "phase_lines", "progress_line", "timeline"]

_BAR_CHARACTERS = 20


def describe_life(job: Job) -> dict[str, Any]:
    """How far a job has come and what its attempts were, as JSON values, by name; nothing of what there isn't."""
    described: dict[str, Any] = {}
    if job.progress is not None:
        described["progress"] = _describe_progress(job.progress)
    if job.phases:
        described["phases"] = [_describe_phase(each) for each in job.phases]
    if job.attempts:
        described["attempts"] = [_describe_attempt(each) for each in job.attempts]
    return described


def _describe_progress(progress: Progress) -> dict[str, Any]:
    values = {
        "percent": progress.percent,
        "message": progress.message,
        "phase": progress.phase,
        "at": progress.at.isoformat(),
    }
    return {name: value for name, value in values.items() if value is not None}


def _describe_phase(phase: Phase) -> dict[str, Any]:
    values = {
        "name": phase.name,
        "state": phase.state.value,
        "started_at": _text_of(phase.started_at),
        "finished_at": _text_of(phase.finished_at),
    }
    return {name: value for name, value in values.items() if value is not None}


def _describe_attempt(attempt: JobAttempt) -> dict[str, Any]:
    values = {
        "number": attempt.number,
        "worker": attempt.worker,
        "started_at": _text_of(attempt.started_at),
        "ended_at": _text_of(attempt.ended_at),
        "error": None if attempt.error is None else str(attempt.error),
    }
    return {name: value for name, value in values.items() if value is not None}


def _text_of(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def progress_line(progress: Mapping[str, Any]) -> str:
    """How far a job is, for people, of what `describe_life` says: a bar in ASCII, since any terminal has that."""
    percent = float(progress["percent"])
    filled = min(max(int(percent * _BAR_CHARACTERS / 100), 0), _BAR_CHARACTERS)
    said = [progress[name] for name in ("phase", "message") if name in progress]
    bar = f"[{'#' * filled}{'-' * (_BAR_CHARACTERS - filled)}] {percent:.0f} %"
    return one_line(f"{bar}  {': '.join(said)}" if said else bar)


def phase_lines(phases: Iterable[Phase]) -> Iterable[str]:
    """One line for each phase, for people."""
    shown = [(one_line(each.name), each) for each in phases]
    width = max((len(name) for name, _ in shown), default=0)
    for name, phase in shown:
        began = _text_of(phase.started_at) or ""
        took = ""
        if phase.started_at is not None and phase.finished_at is not None:
            took = f"  took {duration_text((phase.finished_at - phase.started_at).total_seconds())}"
        yield f"{name:{width}}  {phase.state.value:9}  {began}{took}".rstrip()


def timeline(job: Job) -> list[dict[str, str]]:
    """What happened to a job and when, as far as that is kept: its newest attempts, and those of its errors that none made."""
    entries = [(job.created_at, "created"), (job.run_at, "due")]
    for attempt in job.attempts:
        if attempt.started_at is not None:
            by = f" by {attempt.worker}" if attempt.worker else ""
            entries.append((attempt.started_at, f"started{by}: attempt {attempt.number}"))
        if attempt.error is not None:
            by = f" on {attempt.worker}" if attempt.worker and attempt.started_at is None else ""
            entries.append((attempt.error.at, f"attempt {attempt.number} failed{by}: {attempt.error}"))
    entries += [(error.at, str(error)) for error in job.errors if not error.attempt]
    if (
        job.started_at is not None
        and not was_discarded(job)
        and all(job.started_at != each.started_at for each in job.attempts)
    ):
        entries.append((job.started_at, f"started{f' by {job.worker}' if job.worker else ''}"))  # and didn't count
    if job.finished_at is not None:
        entries.append((job.finished_at, f"finished: {job.state.value}{f' ({job.outcome})' if job.outcome else ''}"))
    return [{"at": at.isoformat(), "what": what} for at, what in sorted(entries, key=lambda entry: entry[0])]


def describe_log(log: AttemptLog) -> dict[str, Any]:
    """What one attempt has logged, as JSON values."""
    return {"attempt": log.attempt, "claims": log.claims, "lines": _read(log)}


def log_lines(log: AttemptLog) -> Iterable[str]:
    """What one attempt has logged, for people: one line for each record, and further ones of a traceback."""
    for line in _read(log):
        if not isinstance(line, dict):
            yield one_line(str(line))
            continue
        fields = cast("dict[str, object]", line)
        if "left_out" in fields:
            yield one_line(f"{fields['left_out']} earlier lines were left out")
            continue
        time, level, logger = (str(fields.get(name, "")) for name in ("time", "level", "logger"))
        yield one_line(f"{time} {level:8} {logger:17} {fields.get('message', '')}".strip())
        for each in str(fields.get("exception") or "").splitlines():
            yield one_line(f"    {each}")


def _read(log: AttemptLog) -> list[Any]:
    """The records; one that somebody broke is shown as text."""
    try:
        return list(log.lines)
    except (ValueError, TypeError):
        return [log.lines_json.decode(errors="replace")]
