"""How far a job has come: its phases, which a later attempt doesn't repeat, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["Phase", "PhaseState", "PhaseWrite", "Progress", "ProgressWrite"]


class PhaseState(StrEnum):
    """Where a phase of a job stands."""

    WAITING = "waiting"
    """It hasn't begun."""
    RUNNING = "running"
    """It has begun, in this attempt or in one that was interrupted."""
    COMPLETED = "completed"
    """Its result is stored."""
    FAILED = "failed"
    """Its function has raised. The next attempt runs it again."""
    CANCELLED = "cancelled"
    """It wasn't completed when its job was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of a job, as it is stored.

    Attributes:
        name: As declared with the job type.
        state: See `PhaseState`.
        result_json: What its function has returned, where it's completed. `result` reads it.
        started_at, finished_at: When it was begun last, and when it was completed or has failed; UTC.
    """

    name: str
    state: PhaseState
    result_json: bytes | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def result(self) -> Any:
        """The result as plain JSON values; None without one.

        Raises:
            orjson.JSONDecodeError: Somebody stored something that isn't JSON.
        """
        return None if self.result_json is None else orjson.loads(self.result_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWrite:
    """What a worker writes of one phase.

    Attributes:
        id, claims, lease_id: The fence, as of a `Settlement`.
        name: The phase's.
        state: `RUNNING` when it begins, `COMPLETED` or `FAILED` when its function has ended.
        result: JSON, for a completed one.
    """

    id: UUID
    claims: int
    lease_id: int
    name: str
    state: PhaseState
    result: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job had come when it said so last.

    Attributes:
        percent: Of the whole job: 0 to 100.
        message: What the handler said with it; None for nothing.
        phase: The phase that was running; None without phases.
        phases: The names of all phases of the job, in order, as the worker knew them.
        at: When it was stored; UTC.
    """

    percent: float
    message: str | None
    phase: str | None
    phases: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressWrite:
    """What a worker writes of the progress of one claim.

    Attributes:
        id, claims, lease_id: The fence, as of a `Settlement`.
        percent, message, phase, phases: As of `Progress`.
    """

    id: UUID
    claims: int
    lease_id: int
    percent: float
    message: str | None = None
    phase: str | None = None
    phases: tuple[str, ...] = ()
