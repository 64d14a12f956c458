"""When gates are to be looked at: marks at once, and rates when they allow the next start to somebody who waits."""

from __future__ import annotations

from aioqueue.postgres._gates_fair import FAIR_DUE
from aioqueue.postgres._gates_promote import ALL_GATES

__all__ = ["GATES_DUE"]

_IS_LEFT = "'{all}' = ANY(@left@::text[]) OR {gate} = ANY(@left@::text[])"
GATES_DUE = f"""CASE WHEN EXISTS (SELECT FROM @schema@.gate_mark m
                              WHERE m.id > @floor@::bigint AND NOT ({_IS_LEFT.format(all=ALL_GATES, gate="m.gate")})) THEN 0
            WHEN {FAIR_DUE} THEN 0
            ELSE (SELECT greatest(0, extract(epoch FROM r.wake_at - now())) FROM @schema@.gate_rate r
                  WHERE r.wake_at IS NOT NULL AND NOT ({_IS_LEFT.format(all=ALL_GATES, gate="r.gate")})
                  ORDER BY r.wake_at LIMIT 1) END::float8"""
"""An expression: seconds until then; NULL where nothing is. For `@types@` stand those whose values take turns, for `@left@` the
gates that are left alone for the moment, and for `@floor@` the mark behind which it looks."""
