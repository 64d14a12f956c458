"""Who works, and where a job stands in line: what `Store.leases` and `Store.standing` give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["LeaseFacts", "Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """One lease as it is stored. A worker has one, and another for each other duration that its types ask for.

    Attributes:
        id: The lease's id.
        worker: The worker's name; others may have the same.
        opened_at: When it was opened, in UTC; None if it was by older code.
        ends_in: Seconds until it runs out unless it's renewed; 0 or less when it has run out.
        extra: Whether the worker has another lease that counts.
        types: The job types that are claimed for it; None if it was opened by older code, which didn't say.
        slots: How many jobs the worker runs at once; None if it was opened by older code.
        running: How many jobs it holds, counted up to 10,000.
        singleton: The name under which its worker is the only one; None for most.
    """

    id: int
    worker: str
    opened_at: datetime | None = None
    ends_in: float
    extra: bool = False
    types: tuple[str, ...] | None = None
    slots: int | None = None
    running: int = 0
    singleton: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a job that hasn't finished stands.

    Attributes:
        now: The database's clock, in UTC.
        lease_id: The lease that holds it while it's running, whether that lease still has a row or not.
        before: How many due jobs come before it if it's pending, counted up to 10,000.
    """

    now: datetime
    lease_id: int | None = None
    before: int = 0
