"""What all stores agree on about schedules."""

from __future__ import annotations

__all__ = ["ENQUEUED_BEFORE", "KEPT_TICKS", "OVERLAPPED"]

ENQUEUED_BEFORE = "it was enqueued before"
"""Why a tick is skipped that was enqueued, or had found its duplicate, before: what is kept of it stays as it is."""

KEPT_TICKS = 20
"""Of each schedule: what became of its newest ticks."""

OVERLAPPED = "the chain of the tick before it hasn't ended"
"""Why a tick is skipped with `overlap="skip"`."""
