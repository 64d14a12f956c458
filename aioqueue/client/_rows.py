"""What is handed to a batcher of enqueues, with unique keys or without."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import NewJob

__all__ = ["PATIENCE_SECONDS", "Row", "row_size"]

Row = tuple["NewJob", bool]
"""A job, and whether an earlier try may have stored it."""

PATIENCE_SECONDS = 1.0
"""Seconds after which an enqueue that gets no answer holds up none that come later."""


def row_size(row: Row) -> int:
    """Bytes of JSON, for a batch's bound."""
    return row[0].size
