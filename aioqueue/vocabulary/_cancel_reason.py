"""Why a running attempt was asked to stop, as handlers see it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CancelReason"]


class CancelReason(StrEnum):
    """Why an attempt should stop: `current_attempt().cancel_reason`.

    Where there are several, a lost claim (the first five of these) comes before a request to end, that before the stop of the
    worker, and that before the timeout.
    """

    TAKEN = "taken_by_another_worker"
    """Its claim is lost, and another worker may run its job already. As with all of the first five, nothing of it counts."""
    COMPLETED = "already_completed"
    """Its job was ended by somebody else."""
    NOT_FOUND = "not_found"
    """Its job was deleted."""
    LAPSED = "lease_lapsed"
    """The worker couldn't renew its lease, and it's over: others may have taken the job."""
    ERROR = "error"
    """The store doesn't accept it any more; or a task or callback of its own has raised `SystemExit`."""
    CANCELLED = "cancelled"
    """Its job was asked to end: whatever else it ends with than a value, another call or `Fail`, the job is cancelled."""
    SHUTDOWN = "shutdown"
    """The worker stops, and the grace is over: the job runs again, and no attempt is used."""
    TIMEOUT = "timeout"
    """Its time is over."""
