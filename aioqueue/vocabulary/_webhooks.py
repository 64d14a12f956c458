"""Deliveries of webhooks: what a store keeps of them, and what whoever sends them says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["Delivery", "DeliveryPage", "DeliveryState", "DeliveryTry"]


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    """It's tried, now or at `next_at`."""
    DELIVERED = "delivered"
    """The receiver has answered with a status of 200 to 299."""
    FAILED = "failed"
    """It has been tried as often as it may, or the receiver doesn't want it any more (410)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message to one receiver, about the end of one chain. Its id and its body are the same at every try.

    Attributes:
        id: The message's id, `webhook-id` for receivers.
        job_id: The job that ended the chain.
        chain_id: The chain's id.
        job_type: The full name of the job's type.
        event: `job.completed`, `job.failed` or `job.cancelled`.
        url: Where it goes.
        body: Exactly what is sent.
        state: See `DeliveryState`.
        tries: How often it was tried; counted when it's taken.
        created_at: When the chain ended; UTC.
        next_at: When it's due, while it's pending; of one that is being tried, when somebody else may try it. UTC.
        status: The receiver's newest HTTP status; None without an answer.
        response: The beginning of the receiver's newest answer, or what went wrong, as text.
        finished_at: When it was delivered, or has failed; UTC.
    """

    id: UUID
    job_id: UUID
    chain_id: UUID
    job_type: str
    event: str
    url: str
    body: bytes
    state: DeliveryState
    tries: int
    created_at: datetime
    next_at: datetime | None = None
    status: int | None = None
    response: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTry:
    """What became of one try, for the store to keep.

    Attributes:
        id: The delivery's.
        tries: Its number, as of `Delivery.tries` when it was taken: the fence against who was slower than `next_at`.
        state: `PENDING` for another try after `delay`.
        delay: Seconds from the database's now.
        status, response: As of `Delivery`.
    """

    id: UUID
    tries: int
    state: DeliveryState
    delay: float = 0.0
    status: int | None = None
    response: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """One page of a listing of deliveries.

    Attributes:
        deliveries: Of this page.
        cursor: For the next page; None at the end.
    """

    deliveries: tuple[Delivery, ...]
    cursor: str | None
