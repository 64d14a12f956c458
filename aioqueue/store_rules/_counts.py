"""How far jobs are counted: looking at the numbers mustn't cost more the more jobs there are."""

from __future__ import annotations

__all__ = ["MOST_COUNTED_JOBS"]

MOST_COUNTED_JOBS = 10_000
"""Of one type in one state. From there on `TypeStats.capped` says that there are more."""
