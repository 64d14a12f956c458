"""Lanes: one type at one priority each, which is a range of the index of pending jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["lanes_of"]

_PRIORITIES = (1, 2, 3, 4)


def lanes_of(types: Sequence[str]) -> tuple[list[str], list[int]]:
    """The lanes of these types as two arrays."""
    names = sorted(set(types))
    return [name for _ in _PRIORITIES for name in names], [priority for priority in _PRIORITIES for _ in names]
