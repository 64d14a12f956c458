"""When gates are to be looked at: marks at once, and rates when they allow the next start to somebody who waits."""

from __future__ import annotations

from aioqueue.postgres._gates_fair import FAIR_DUE

__all__ = ["GATES_DUE"]

GATES_DUE = f"""CASE WHEN EXISTS (SELECT FROM @schema@.gate_mark) THEN 0
            WHEN {FAIR_DUE} THEN 0
            ELSE (SELECT greatest(0, extract(epoch FROM r.wake_at - now())) FROM @schema@.gate_rate r
                  WHERE r.wake_at IS NOT NULL ORDER BY r.wake_at LIMIT 1) END::float8"""
"""An expression: seconds until then; NULL where nothing is. For `@types@` stand those whose values take turns."""
