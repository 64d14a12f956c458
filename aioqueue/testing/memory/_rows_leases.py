"""The rows beside those of jobs: leases, and the windows of unique keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["Lease", "Window"]


@dataclass(slots=True)
class Lease:
    """One worker's right to what it holds.

    Attributes:
        extra: Whether its worker has another one that counts.
        opened_at, types, slots: As shown by `Store.leases`.
    """

    worker: str
    expires_at: datetime
    extra: bool = False
    opened_at: datetime | None = None
    types: tuple[str, ...] | None = None
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Until when a unique key is kept by a chain that has completed."""

    chain_id: UUID
    expires_at: datetime
