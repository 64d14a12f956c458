"""Reading how far jobs have come, and what their handlers have logged. The functions run in one snapshot of the file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import load, tags_of, text_of
from aioqueue.sqlite._rows_times import moment
from aioqueue.store_rules._phases import shown_phases
from aioqueue.vocabulary._attempt_log import AttemptLog
from aioqueue.vocabulary._phases import Phase, PhaseState, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job

__all__ = ["LIFE_OF_ARCHIVED", "LIFE_OF_LIVE", "fetch_logs", "fetch_phases", "with_life"]

_PHASE = "name, state, result, started_at, finished_at"

_IN_ORDER = "ORDER BY started_at, rowid"
"""The clock counts milliseconds: of phases that began in one, the row that was written first comes first."""

_LIFE = f"""(SELECT json_group_array(json_array({_PHASE})) FROM (
        SELECT {_PHASE} FROM phase WHERE phase.job_id = {{0}}.id {_IN_ORDER})),
    (SELECT json_array(percent, message, phase, phases, at) FROM progress WHERE progress.job_id = {{0}}.id)"""
"""The columns that `with_life` reads. One look at an index each, for a job that has neither."""

LIFE_OF_LIVE = _LIFE.format("job")
LIFE_OF_ARCHIVED = _LIFE.format("archive")

_PHASES = f"SELECT {_PHASE} FROM phase WHERE job_id = :id {_IN_ORDER}"

_LOGS = "SELECT attempt, claims, lines FROM job_log WHERE job_id = :id ORDER BY claims"

_STATES = {2: PhaseState.RUNNING, 4: PhaseState.COMPLETED, 6: PhaseState.FAILED}


def with_life(job: Job, phases: str, progress: str | None) -> Job:
    """Add to a snapshot what the columns of `LIFE_OF_LIVE` or `LIFE_OF_ARCHIVED` say."""
    if phases == "[]" and progress is None:
        return job
    shown = shown_phases(map(_phase, load(phases)), job.state)
    return replace(job, phases=shown, progress=None if progress is None else _progress(load(progress)))


def _phase(row: Sequence[Any]) -> Phase:
    name, state, result, started_at, finished_at = row
    return Phase(
        name=text_of(name),
        state=_STATES.get(state, PhaseState.RUNNING),
        result_json=None if result is None else text_of(result).encode(),
        started_at=moment(started_at),
        finished_at=None if finished_at is None else moment(finished_at),
    )


def _progress(row: Sequence[Any]) -> Progress:
    percent, message, phase, phases, at = row
    return Progress(percent=percent, message=message, phase=phase, phases=tags_of(phases), at=moment(at))


def fetch_phases(connection: Statements, job_id: UUID) -> list[Phase]:
    """What is stored of a job's phases, as `aioqueue.abc.Operable.fetch_phases` says."""
    return [_phase(row) for row in connection.execute(_PHASES, {"id": str(job_id)}).fetchall()]


def fetch_logs(connection: Statements, job_id: UUID) -> list[AttemptLog]:
    """What was kept of the logs of a job's attempts, as `aioqueue.abc.Operable.fetch_logs` says."""
    rows = connection.execute(_LOGS, {"id": str(job_id)}).fetchall()
    return [AttemptLog(attempt=attempt, claims=claims, lines_json=text_of(lines).encode()) for attempt, claims, lines in rows]
