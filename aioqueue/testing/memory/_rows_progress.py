"""What is kept beside jobs of how far they have come: phases, progress, and logs of attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.vocabulary._phases import Phase, PhaseState, Progress

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite

__all__ = ["Come"]


@dataclass(frozen=True, slots=True)
class _StoredPhase:
    claims: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class _StoredProgress:
    claims: int
    progress: Progress


def is_done(claims: int, phase: Phase, write: PhaseWrite) -> bool:
    """Whether the same claim has completed a phase: what is said of its beginning or failure comes late."""
    return claims == write.claims and phase.state is PhaseState.COMPLETED and write.state is not PhaseState.COMPLETED


class Come:
    """The three tables: how far jobs have come. Each row says by which claim it was written.

    Attributes:
        phases: By the job, and their names.
        progress: By the job.
        logs: By the job, and the claims.
    """

    def __init__(self) -> None:
        self.phases: dict[UUID, dict[str, _StoredPhase]] = {}
        self.progress: dict[UUID, _StoredProgress] = {}
        self.logs: dict[UUID, dict[int, AttemptLog]] = {}

    def copy(self) -> Come:
        """The same, on its own."""
        made = Come()
        made.phases = {job_id: dict(phases) for job_id, phases in self.phases.items()}
        made.progress = dict(self.progress)
        made.logs = {job_id: dict(logs) for job_id, logs in self.logs.items()}
        return made

    def phases_of(self, job_id: UUID) -> list[Phase]:
        """A job's phases, by the times at which they began."""
        stored = [each.phase for each in self.phases.get(job_id, {}).values()]
        return sorted(stored, key=lambda phase: (phase.started_at is None, phase.started_at))

    def progress_of(self, job_id: UUID) -> Progress | None:
        """How far a job had come."""
        stored = self.progress.get(job_id)
        return None if stored is None else stored.progress

    def logs_of(self, job_id: UUID) -> list[AttemptLog]:
        """What was kept of a job's logs, by claims."""
        logs = self.logs.get(job_id, {})
        return [logs[claims] for claims in sorted(logs)]

    def write_phase(self, write: PhaseWrite, now: datetime) -> bool:
        """Note where a phase stands; whether so: not over what a later claim has written."""
        phases = self.phases.setdefault(write.id, {})
        before = phases.get(write.name)
        if before is not None and before.claims > write.claims:
            return False
        if before is not None and is_done(before.claims, before.phase, write):
            return True
        ended = write.state in (PhaseState.COMPLETED, PhaseState.FAILED)
        began = now if before is None or not ended else before.phase.started_at
        phase = Phase(
            name=write.name,
            state=write.state,
            result_json=write.result if write.state is PhaseState.COMPLETED else None,
            started_at=began,
            finished_at=now if ended else None,
        )
        phases[write.name] = _StoredPhase(write.claims, phase)
        return True

    def write_progress(self, write: ProgressWrite, now: datetime) -> bool:
        """Note how far a job has come, unless a later claim has done so; whether so."""
        before = self.progress.get(write.id)
        if before is not None and before.claims > write.claims:
            return False
        progress = Progress(percent=write.percent, message=write.message, phase=write.phase, phases=tuple(write.phases), at=now)
        self.progress[write.id] = _StoredProgress(write.claims, progress)
        return True

    def keep_log(self, job_id: UUID, log: AttemptLog, kept: int) -> None:
        """Keep what was logged in an attempt, and so many of the newest of them."""
        logs = self.logs.setdefault(job_id, {})
        logs[log.claims] = log
        for claims in sorted(logs)[:-kept]:
            del logs[claims]

    def begin_anew(self, job_id: UUID) -> None:
        """Forget how far a job has come, but not what it has logged."""
        self.phases.pop(job_id, None)
        self.progress.pop(job_id, None)

    def forget(self, job_id: UUID) -> None:
        """Forget all of a job that is gone."""
        self.begin_anew(job_id)
        self.logs.pop(job_id, None)
