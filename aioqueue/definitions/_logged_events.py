"""Events as a store's log has them, and as users get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import orjson

from aioqueue.events import (
    JobBlocked,
    JobCancelled,
    JobCompleted,
    JobContinued,
    JobDeleted,
    JobEnqueued,
    JobFailed,
    JobProgress,
    JobReaped,
    JobRescheduled,
    JobRetrying,
    JobStarted,
    JobUnblocked,
    PhaseCompleted,
    PhaseStarted,
    WebhookDelivered,
    WebhookUndelivered,
)
from aioqueue.vocabulary._event_log import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioqueue.events import JobEvent
    from aioqueue.vocabulary._event_log import LoggedEvent

__all__ = ["from_log"]


def from_log(logged: LoggedEvent) -> JobEvent:
    """The event that a row of the log stands for. What is odd in its body is left out: a strange row stops nobody."""
    make, read = _KINDS[logged.kind]
    fields = read(_body(logged.body))
    return make(
        at=logged.at,
        job_id=logged.job_id,
        chain_id=logged.chain_id,
        job_type=logged.job_type,
        attempt=logged.attempt,
        claims=logged.claims,
        sequence=logged.sequence,
        **fields,
    )


def _body(text: bytes) -> Mapping[str, Any]:
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _id(value: object) -> UUID | None:
    try:
        return UUID(_text(value))
    except (TypeError, ValueError):
        return None


def _error(body: Mapping[str, Any]) -> dict[str, Any]:
    error = body.get("error")
    found = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    return {"error_type": _text(found.get("type")), "error_message": _text(found.get("message"))}


def _nothing(_: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _status(body: Mapping[str, Any]) -> dict[str, Any]:
    status = body.get("status")
    return {"status": status if isinstance(status, int) else None}


def _phase(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"phase": _text(body.get("phase")) or ""}


def _progress(body: Mapping[str, Any]) -> dict[str, Any]:
    message, phase = _text(body.get("message")), _text(body.get("phase"))
    return {"percent": _number(body.get("percent")), "message": message, "phase": phase}


def _delay(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"delay": _number(body.get("delay"))}


def _retrying(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**_delay(body), **_error(body)}


def _outcome(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": _text(body.get("outcome"))}


def _continued(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**_outcome(body), "next_id": _id(body.get("next_id"))}


_KINDS: dict[EventKind, tuple[type[JobEvent], Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    EventKind.ENQUEUED: (JobEnqueued, _nothing),
    EventKind.BLOCKED: (JobBlocked, _nothing),
    EventKind.UNBLOCKED: (JobUnblocked, _nothing),
    EventKind.STARTED: (JobStarted, _nothing),
    EventKind.PROGRESS: (JobProgress, _progress),
    EventKind.PHASE_STARTED: (PhaseStarted, _phase),
    EventKind.PHASE_COMPLETED: (PhaseCompleted, _phase),
    EventKind.RETRYING: (JobRetrying, _retrying),
    EventKind.RESCHEDULED: (JobRescheduled, _delay),
    EventKind.COMPLETED: (JobCompleted, _outcome),
    EventKind.CONTINUED: (JobContinued, _continued),
    EventKind.FAILED: (JobFailed, _error),
    EventKind.CANCELLED: (JobCancelled, _error),
    EventKind.REAPED: (JobReaped, _nothing),
    EventKind.DELETED: (JobDeleted, _nothing),
    EventKind.DELIVERED: (WebhookDelivered, _status),
    EventKind.UNDELIVERED: (WebhookUndelivered, _status),
}
