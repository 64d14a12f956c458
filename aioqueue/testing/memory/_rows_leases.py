"""The rows beside those of jobs: leases, duties, and the windows of unique keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["Duties", "Lease", "Window"]


@dataclass(slots=True)
class Lease:
    """One worker's right to what it holds.

    Attributes:
        extra: Whether its worker has another one that counts.
        opened_at, types, slots, singleton: As shown by `Store.leases`.
    """

    worker: str
    expires_at: datetime
    extra: bool = False
    opened_at: datetime | None = None
    types: tuple[str, ...] | None = None
    slots: int | None = None
    singleton: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Until when a unique key is kept by a chain that has completed."""

    chain_id: UUID
    expires_at: datetime


class Duties:
    """What one process at a time does: who has which duty until when."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, datetime]] = {}

    def take(self, name: str, holder: str, duration: float, now: datetime) -> bool:
        """Take a duty, keep it, or give it up. See `SupportsRetention.take_duty`."""
        has, until = self._held.get(name, ("", now))
        if until > now and has != holder:
            return False
        if duration <= 0:
            self._held.pop(name, None)
            return False
        self._held[name] = (holder, now + timedelta(seconds=duration))
        return True
