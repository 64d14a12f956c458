"""Batches in portions: what one statement carries is bounded in rows and in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["MOST_BYTES", "MOST_ROWS", "in_portions"]

T = TypeVar("T")

MOST_ROWS = 2_000
MOST_BYTES = 32 * 1024 * 1024
"""One message to PostgreSQL may have 1 GiB, but both sides hold it in memory several times over."""


def in_portions(items: Sequence[T], size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Cut a batch so that no portion has more than `MOST_ROWS` items, or `MOST_BYTES` by `size` unless it's one item."""
    start = total = 0
    for index, item in enumerate(items):
        own = size(item)
        if index > start and (total + own > MOST_BYTES or index - start >= MOST_ROWS):
            yield items[start:index]
            start, total = index, 0
        total += own
    if start < len(items):
        yield items[start:]
