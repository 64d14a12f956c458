"""How much of a job's history is kept."""

from __future__ import annotations

__all__ = ["KEPT_ERRORS"]

KEPT_ERRORS = 20
"""How many errors a job's history keeps: the newest."""
