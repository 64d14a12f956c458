"""A job's states: as people see them, and as the stores write them. No I/O."""

from __future__ import annotations

from enum import IntEnum, StrEnum

__all__ = ["JobState", "StoredState"]


class JobState(StrEnum):
    """What people see. `scheduled` and `ready` are one stored state, told apart by the due time; `blocked` and `held` are, too,
    told apart by whether it waits for other chains.
    """

    BLOCKED = "blocked"
    HELD = "held"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    CONTINUED = "continued"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether a job in this state never runs again, unless an operator retries it."""
        return self in _FINISHED


_FINISHED = frozenset({JobState.COMPLETED, JobState.CONTINUED, JobState.FAILED, JobState.CANCELLED})


class StoredState(IntEnum):
    """What the stores write. The first three are live, the others are in the archive."""

    HELD = 0
    PENDING = 1
    RUNNING = 2
    COMPLETED = 4
    CONTINUED = 5
    FAILED = 6
    CANCELLED = 7

    def shown(self, *, due: bool, blocked: bool = True) -> JobState:
        """The state as people see it.

        Arguments:
            due: Whether a pending job's time has come.
            blocked: Whether a held one waits for other chains; otherwise something keeps it from being claimed, such as a
                paused key.
        """
        if self is StoredState.HELD and not blocked:
            return JobState.HELD
        if self is StoredState.PENDING:
            return JobState.READY if due else JobState.SCHEDULED
        return _SHOWN[self]


_SHOWN = {
    StoredState.HELD: JobState.BLOCKED,
    StoredState.RUNNING: JobState.RUNNING,
    StoredState.COMPLETED: JobState.COMPLETED,
    StoredState.CONTINUED: JobState.CONTINUED,
    StoredState.FAILED: JobState.FAILED,
    StoredState.CANCELLED: JobState.CANCELLED,
}
