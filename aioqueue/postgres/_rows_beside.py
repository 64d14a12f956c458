"""What is kept of a job in tables of their own, and goes with its row."""

from __future__ import annotations

__all__ = ["without_beside"]

_TABLES = ("phase", "progress", "job_log")


def without_beside(ids: str) -> str:
    """Give parts of a `WITH` that remove what is kept beside jobs.

    Arguments:
        ids: A query for their ids.
    """
    return ", ".join(f"no_{table} AS (DELETE FROM @schema@.{table} b WHERE b.job_id = ANY(ARRAY({ids})))" for table in _TABLES)
