"""What a store tells its listeners: that something has happened to jobs or leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["Notification"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A hint that something has happened. It may be lost, repeated, or about nothing.

    Attributes:
        types: Type names with jobs that became pending; None when the store can't tell which (then: maybe all).
        delay: Seconds from now until the first of them is due; 0 for at once.
        finished: Ids of jobs that have finished; None when the store can't tell which.
        events: Whether events were logged that somebody reads.
        deliveries: Whether deliveries of webhooks became due: whoever sends them looks at once.
        schedules: Whether a schedule was stored or changed: whoever decides ticks looks at once.
        gates: Whether something has left a gate, or a limit was changed: whoever claims jobs that wait at gates looks at once.
        leases: Ids of leases of which a claim was lost, or which ended: their owner should renew at once.
    """

    types: frozenset[str] | None = frozenset()
    delay: float = 0.0
    finished: frozenset[UUID] | None = frozenset()
    leases: frozenset[int] = frozenset()
    events: bool = False
    deliveries: bool = False
    schedules: bool = False
    gates: bool = False
