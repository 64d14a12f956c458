"""The frames of a stream: an event's kind, its id, and one line of JSON. Whatever a job says is within that JSON, and so can't
be taken for a frame: it has no line breaks of its own.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioqueue.events import JobEvent
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._stats import Stats

__all__ = ["COMMENT", "fields_of_event", "fields_of_job", "fields_of_stats", "frame", "kind_of"]

COMMENT = b":\n\n"
"""Keeps what is in between from taking the stream for dead."""

_KEPT_BACK = {"error_type", "error_message"}
"""What of an event isn't told by default: errors may show arguments, and what they stand for."""


def frame(event: str, data: Mapping[str, Any], event_id: int | None = None) -> bytes:
    """One frame.

    Arguments:
        event: Its kind, for `addEventListener`.
        data: What it tells: what JSON has, and UUIDs and times.
        event_id: From which a browser goes on when it comes back; without one that stays as it was.
    """
    lines = [b"event: " + event.encode()]
    if event_id is not None:
        lines.append(b"id: %d" % event_id)
    lines.append(b"data: " + orjson.dumps(data, _other, orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z))
    return b"\n".join(lines) + b"\n\n"


def _other(value: object) -> str:
    """What orjson doesn't know: a driver's own UUIDs."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a {type(value).__qualname__} can't be sent")


def kind_of(happened: JobEvent) -> str:
    """The name of an event's kind: `enqueued` for `JobEnqueued`, `phase_started` for `PhaseStarted`."""
    name = type(happened).__name__.removeprefix("Job")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def fields_of_event(happened: JobEvent) -> dict[str, Any]:
    """What is told of an event by default: all but errors."""
    names = [each.name for each in fields(happened) if each.name not in _KEPT_BACK]
    return {name: getattr(happened, name) for name in names}


def fields_of_job(job: Job) -> dict[str, Any]:
    """What is told of a job by default: where it stands; neither arguments and output, nor errors."""
    progress = job.progress
    return {
        "job_id": job.id,
        "chain_id": job.chain_id,
        "job_type": job.type,
        "state": job.state,
        "attempt": job.attempt,
        "run_at": job.run_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "outcome": job.outcome,
        "progress": None
        if progress is None
        else {"percent": progress.percent, "message": progress.message, "phase": progress.phase},
        "phases": {phase.name: phase.state for phase in job.phases},
    }


def fields_of_stats(stats: Stats, types: tuple[str, ...]) -> dict[str, Any]:
    """How many jobs there are, by type and state: of all types, or of some."""
    wanted = {name: each for name, each in stats.types.items() if not types or name in types}
    return {"types": {name: {str(state): count for state, count in each.counts.items()} for name, each in wanted.items()}}
