"""Lanes: one type at one priority each, which is a range of the index of pending jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["READY", "Floor", "Lane", "lanes_of"]

Lane: TypeAlias = tuple[str, int]
"""A type and a priority."""

Floor: TypeAlias = tuple[datetime, UUID]
"""The due time and the id of a job, behind which a claim begins in its lane."""

_PRIORITIES = (1, 2, 3, 4)

READY = """@schema@.job j
        WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority AND j.run_at <= now()
          AND (j.run_at, j.id) > (lane.floor_at, lane.floor_id)
        ORDER BY j.run_at, j.id"""
"""The due jobs of one `lane`, behind its floor."""


def lanes_of(types: Sequence[str]) -> tuple[list[str], list[int]]:
    """The lanes of these types as two arrays."""
    names = sorted(set(types))
    return [name for _ in _PRIORITIES for name in names], [priority for priority in _PRIORITIES for _ in names]
