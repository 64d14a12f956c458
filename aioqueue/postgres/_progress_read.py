"""What is stored of jobs' phases, progress and logs, as snapshots and look-ups show it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.postgres._rows import flat, job_snapshot, moment
from aioqueue.store_rules._phases import KEPT_LOGS, shown_phases
from aioqueue.vocabulary._attempt_log import AttemptLog
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._phases import Phase, PhaseState, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Reader, Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Job

__all__ = ["BESIDE", "fetch_logs", "fetch_phases", "progress_read_statements", "whole_snapshot"]

_PHASES = f"""(SELECT json_agg(json_build_array(p.name, p.state, {moment("p.started_at")}, {moment("p.finished_at")},
                                      p.result::text) ORDER BY p.started_at, p.name)::text
     FROM @schema@.phase p WHERE p.job_id = {{job}})"""
BESIDE = f"""(SELECT json_build_array(p.percent, p.message, p.phase, p.phases, {moment("p.at")})::text
     FROM @schema@.progress p WHERE p.job_id = j.id) AS progress, {_PHASES.format(job="j.id")} AS phases"""
"""Two columns more, for `whole_snapshot`. One look-up each by the job's id finds that there is nothing."""

_FETCH_PHASES = f"SELECT {_PHASES.format(job='$1::uuid')}"
_FETCH_LOGS = f"""SELECT l.attempt, l.claims, l.lines::text FROM @schema@.job_log l
WHERE l.job_id = $1::uuid ORDER BY l.claims DESC LIMIT {KEPT_LOGS}"""

_STATES = {int(StoredState.COMPLETED): PhaseState.COMPLETED, int(StoredState.FAILED): PhaseState.FAILED}


def progress_read_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"fetch_phases": schema.render(_FETCH_PHASES), "fetch_logs": schema.render(_FETCH_LOGS)}


async def fetch_phases(reader: Reader, statement: str, job_id: UUID) -> Sequence[Phase]:
    """Show a job's phases as they're stored, as `aioqueue.abc.Operable.fetch_phases` says."""
    ((phases,),) = await reader.read(statement, job_id)
    return _phases(phases)


async def fetch_logs(reader: Reader, statement: str, job_id: UUID) -> Sequence[AttemptLog]:
    """Show what a job's handler has logged, as `aioqueue.abc.Operable.fetch_logs` says."""
    rows = await reader.read(statement, job_id)
    return [AttemptLog(attempt=row[0], claims=row[1], lines_json=row[2].encode()) for row in reversed(rows)]


def whole_snapshot(row: Row) -> Job:
    """Read one row of a job's columns with `BESIDE` behind them."""
    job, (progress, phases) = job_snapshot(row[:-2]), row[-2:]
    if progress is None and phases is None:
        return job
    return replace(job, progress=_progress(progress), phases=shown_phases(_phases(phases), job.state))


def _phases(text: str | None) -> list[Phase]:
    return [] if text is None else [_phase(*each) for each in orjson.loads(text)]


def _phase(name: str, state: int, started: str, finished: str | None, result: str | None) -> Phase:
    return Phase(
        name=name,
        state=_STATES.get(state, PhaseState.RUNNING),  # also of a state that newer code has written
        result_json=None if result is None else result.encode(),
        started_at=_time(started),
        finished_at=None if finished is None else _time(finished),
    )


def _progress(text: str | None) -> Progress | None:
    if text is None:
        return None
    values: list[Any] = orjson.loads(text)
    percent, message, phase, phases, at = values
    return Progress(percent=float(percent), message=message, phase=phase, phases=tuple(flat(phases)), at=_time(at))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
