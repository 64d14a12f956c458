"""What is sent when a chain has ended whose job has a webhook: the same from every store.

The body is that of Standard Webhooks (https://www.standardwebhooks.com). Whoever ends a chain makes the delivery in the
transaction that ends it, with `delivery_of`; all that a store has to know is in `ChainEnding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._webhooks import Delivery, DeliveryState

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import AttemptError
    from aioqueue.vocabulary._origin import Origin

__all__ = ["FINISHED_KEPT_SECONDS", "LARGEST_OUTPUT_BYTES", "LONGEST_RESPONSE_CHARACTERS", "ChainEnding", "delivery_of"]

FINISHED_KEPT_SECONDS = 30 * 24 * 3600.0
"""How long deliveries are kept that were delivered or have failed, if their chain is kept as long."""

LARGEST_OUTPUT_BYTES = 256 * 1024
"""A larger output isn't sent: the message says so, and has its id."""

LONGEST_RESPONSE_CHARACTERS = 1_000
"""Of what a receiver has answered, no more is kept."""

_LONGEST_MESSAGE_CHARACTERS = 2_000

_EVENTS = {
    StoredState.COMPLETED: "job.completed",
    StoredState.FAILED: "job.failed",
    StoredState.CANCELLED: "job.cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnding:
    """How a chain has ended: by which job, as it's stored then.

    Attributes:
        job_id: The job that ended it.
        chain_id: Of its first job.
        job_type: The full name of the type.
        state: `COMPLETED`, `FAILED` or `CANCELLED`. Of any other there is no delivery: a chain that goes on hasn't ended.
        attempt: How many attempts have been started.
        finished_at: When it ended; UTC, by the database's clock.
        webhook: The URL that was given for it.
        key, tags, outcome: As stored.
        output: JSON, of a completed one.
        error: The newest in its history; only of one that didn't complete.
        origin: As stored.
    """

    job_id: UUID
    chain_id: UUID
    job_type: str
    state: int
    attempt: int
    finished_at: datetime
    webhook: str | None
    key: str | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None
    output: bytes | None = None
    error: AttemptError | None = None
    origin: Origin | None = None


def delivery_of(ending: ChainEnding) -> Delivery | None:
    """The delivery that is to be stored in the transaction that ends a chain; None if nobody is to be told.

    It's due at once. Raises nothing, whatever is stored of the job: what can't be sent is left out.
    """
    event = _EVENTS.get(StoredState(ending.state)) if ending.state in _EVENTS else None
    if event is None or not ending.webhook:
        return None
    return Delivery(
        id=new_id(),
        job_id=ending.job_id,
        chain_id=ending.chain_id,
        job_type=ending.job_type,
        event=event,
        url=ending.webhook,
        body=_body(event, ending),
        state=DeliveryState.PENDING,
        tries=0,
        created_at=ending.finished_at,
        next_at=ending.finished_at,
    )


def _body(event: str, ending: ChainEnding) -> bytes:
    completed = ending.state == StoredState.COMPLETED
    data: dict[str, Any] = {
        "id": str(ending.job_id),
        "chain_id": str(ending.chain_id),
        "job_type": _sent(ending.job_type),
        "state": event.removeprefix("job."),
        "attempt": ending.attempt,
        "key": None if ending.key is None else _sent(ending.key),
        "tags": [_sent(each) for each in ending.tags],
        "outcome": None if ending.outcome is None else _sent(ending.outcome),
        "finished_at": _time(ending.finished_at),
    }
    if ending.origin is not None and ending.origin.dry_run:
        data["dry_run"] = True
    if completed:
        data |= _output(ending.output)
    elif ending.error is not None:
        message = _sent(ending.error.message)[:_LONGEST_MESSAGE_CHARACTERS]
        data["error"] = {"type": _sent(ending.error.type), "message": message}
    else:
        data["error"] = None
    return orjson.dumps({"type": event, "timestamp": _time(ending.finished_at), "data": data})


def _output(output: bytes | None) -> dict[str, Any]:
    if output is None:
        return {"output": None}
    if len(output) > LARGEST_OUTPUT_BYTES:
        return {"output": None, "output_omitted": "too large"}
    try:
        # Looked at, though it's sent as it is stored: what isn't JSON, in a column that takes any value, would spoil the rest.
        orjson.loads(output)
    except orjson.JSONDecodeError:
        return {"output": None, "output_omitted": "not JSON"}
    return {"output": orjson.Fragment(output)}


def _sent(text: object) -> str:
    """Halves of surrogate pairs can't be written as JSON; what an odd row has in place of text is shown as text."""
    return str(text).encode(errors="replace").decode()


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
