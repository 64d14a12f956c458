"""What commands say of a job: to programs as JSON values, to people in the cells of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.cli._json import read_json
from aioqueue.vocabulary._gates import FAIR, RATE, SEQUENCE, GateKind, kind_of
from aioqueue.vocabulary._job import JobState, was_discarded
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE
from aioqueue.vocabulary._webhook_url import webhook_host

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job

__all__ = [
    "asked_to_end",
    "attempts",
    "describe",
    "describe_blocker",
    "end_and_duration",
    "in_chain",
    "json_or_text",
    "is_dry",
    "last_error",
    "scheduled_by",
    "shown_time",
    "waits_for",
]


def describe(job: Job, *, arguments: bool = False) -> dict[str, Any]:
    """A job as JSON values.

    Arguments:
        job: A snapshot.
        arguments: Whether the arguments and the metadata are shown.

    Returns:
        What is set, by name.
    """
    values: dict[str, Any] = {
        "id": str(job.id),
        "type": job.type,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": job.created_at.isoformat(),
        "run_at": job.run_at.isoformat(),
        "started_at": job.started_at.isoformat() if job.started_at else None,
        "finished_at": job.finished_at.isoformat() if job.finished_at else None,
        "expires_at": job.expires_at.isoformat() if job.expires_at else None,
        "worker": job.worker,
        "cancel_reason": job.cancel_reason,
        "chain": str(job.chain_id) if in_chain(job) else None,
        "position": job.position if in_chain(job) else None,
        "open_blockers": job.open_blockers or None,
        "held_by": job.held_by,
        "schedule": None if job.origin is None else job.origin.schedule,
        "dry_run": is_dry(job) or None,
        "nominal_time": job.nominal_time.isoformat() if job.nominal_time else None,
        "key": job.key,
        "tags": list(job.tags) or None,
        "timeout": job.timeout,
        "reschedules": job.reschedules or None,
        "outcome": job.outcome,
        "kept_until": job.purge_at.isoformat() if job.purge_at else None,
        "webhook": None if job.webhook is None else webhook_host(job.webhook),  # the rest may be secret
        "output": json_or_text(job.output_json),
        "arguments": json_or_text(job.payload) if arguments else None,
        "metadata": json_or_text(job.metadata_json) if arguments else None,
    }
    described = {name: value for name, value in values.items() if value is not None}
    described["errors"] = [
        {
            "attempt": error.attempt,
            "at": error.at.isoformat(),
            "type": error.type,
            "message": error.message,
            "traceback": error.traceback,
        }
        for error in job.errors
    ]
    return described


def describe_blocker(blocker: Blocker) -> dict[str, Any]:
    """A chain that a job waits for, or has waited for, as JSON values."""
    return {
        "chain": str(blocker.chain_id),
        "type": blocker.type,
        "state": None if blocker.state is None else blocker.state.value,
        "needed": not blocker.settled,
        "told": blocker.resolved,
    }


def is_dry(job: Job) -> bool:
    """Whether it's part of a dry run: what became of it didn't happen for real."""
    return job.origin is not None and job.origin.dry_run


def in_chain(job: Job) -> bool:
    """Whether it's known to be a step of a chain of several. A first one is once its chain has gone on from it."""
    return job.position > 0 or job.state is JobState.CONTINUED


def json_or_text(value: bytes | None) -> Any:
    """What was stored, as JSON values; a row that somebody broke is shown as text."""
    if value is None:
        return None
    try:
        return read_json(value)
    except ValueError:
        return value.decode(errors="replace")


def shown_time(value: datetime | None) -> str:
    """A time in UTC for people; nothing for none."""
    return "" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def attempts(job: Job) -> str:
    """How many have run, and of how many while that matters."""
    ran = max(job.attempt - was_discarded(job), 0)  # whether a claim has found that out, or workers' upkeep before it
    return f"{ran}" if job.state.finished else f"{ran}/{job.max_attempts or '∞'}"


def end_and_duration(job: Job) -> tuple[str, str]:
    """When it finished, and how long its last attempt took."""
    if job.finished_at is None or job.started_at is None or was_discarded(job):
        return shown_time(job.finished_at), ""
    return shown_time(job.finished_at), f"{(job.finished_at - job.started_at).total_seconds():.3g} s"


def asked_to_end(job: Job) -> str:
    """That its chain was asked to end, and why, while that hasn't happened yet."""
    if job.cancel_reason is None:
        return ""
    return f"asked to end: {job.cancel_reason}" if job.cancel_reason else "asked to end"


def scheduled_by(job: Job) -> str:
    """Behind its state: which tick of which schedule it's for; nothing for others."""
    if job.origin is None or job.origin.schedule is None:
        return ""
    return f"  scheduled by {job.origin.schedule}, tick {shown_time(job.nominal_time) or 'unknown'}"


def last_error(job: Job) -> str:
    """The newest error in its history, if there is one."""
    return "" if job.last_error is None else str(job.last_error)


def waits_for(job: Job) -> str:
    """What holds a job, in a few words; empty where nothing does."""
    gate = job.held_by
    if gate is None:
        return ""
    if gate.startswith(HELD_BY_PAUSE):
        return f"pause of the key {gate.removeprefix(HELD_BY_PAUSE)}"
    match kind_of(gate):
        case GateKind.SEQUENCE:
            return f"its turn in {SEQUENCE} {gate.removeprefix(f'{SEQUENCE}=')}"
        case GateKind.RATE:
            return f"rate {gate.removeprefix(RATE)}"
        case GateKind.FAIR:
            return f"its turn among {gate.removeprefix(FAIR)}"
        case GateKind.LIMIT:
            return f"limit {gate}"
