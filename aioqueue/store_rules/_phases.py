"""What a snapshot shows of a job's phases: a worker's last word about each, and what the job's own end makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._phases import PhaseState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioqueue.vocabulary._phases import Phase

__all__ = ["KEPT_LOGS", "shown_phases", "shown_state_of_phase"]

KEPT_LOGS = 10
"""The logs of how many claims of a job are kept: the newest."""


def shown_phases(stored: Iterable[Phase], state: JobState) -> tuple[Phase, ...]:
    """Give the phases as a snapshot of a job in this state shows them, in their order."""
    return tuple(
        phase if (shown := shown_state_of_phase(phase.state, state)) is phase.state else replace(phase, state=shown)
        for phase in stored
    )


def shown_state_of_phase(stored: PhaseState, state: JobState) -> PhaseState:
    """Give the state that a phase shows: of a job that has failed none runs, and of one that was cancelled all that weren't
    completed are cancelled. It serves those that are waiting, too.
    """
    if state is JobState.CANCELLED and stored is not PhaseState.COMPLETED:
        return PhaseState.CANCELLED
    if state is JobState.FAILED and stored is PhaseState.RUNNING:
        return PhaseState.FAILED
    return stored
