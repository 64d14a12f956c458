"""What all stores agree on about schedules."""

from __future__ import annotations

__all__ = ["KEPT_TICKS", "OVERLAPPED"]

KEPT_TICKS = 20
"""Of each schedule: what became of its newest ticks."""

OVERLAPPED = "the chain of the tick before it hasn't ended"
"""Why a tick is skipped with `overlap="skip"`."""
