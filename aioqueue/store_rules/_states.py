"""Which state a stored row shows, also when somebody wrote a strange one with SQL."""

from __future__ import annotations

from typing import Any

from aioqueue.vocabulary._job import JobState, StoredState

__all__ = ["shown_state"]


def shown_state(stored: Any, *, archived: bool, due: bool, blocked: bool = True) -> JobState:
    """Read a stored state. It never raises.

    The table decides where the state doesn't fit it, or isn't known (newer code may have written it): a live row that no
    worker takes is blocked, and not finished, so that nobody who waits for its result is told that there is one. An archived
    row is failed, so that nobody waits for a result that won't come; it stays as it is, since `retry` brings back only what is
    stored as failed or cancelled.

    Arguments:
        stored: The value of the column.
        archived: Whether the row is in the archive.
        due: Whether the time of a pending job has come.
        blocked: Whether a held job waits for other chains.
    """
    try:
        state = StoredState(stored)
    except ValueError:
        state = None
    if state is None or (state >= StoredState.COMPLETED) is not archived:
        return JobState.FAILED if archived else JobState.BLOCKED
    return state.shown(due=due, blocked=blocked)
