"""Numbers by type and state: counted along the indexes, up to a bound each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._gates import FAIR
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._stats import Stats, TypeStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Reader, Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["read_stats", "stats_statements"]

_AGE = "extract(epoch FROM statement_timestamp() - greatest({}, '0001-01-01 00:00:00+00'::timestamptz))::float8"
# Jobs that wait for their turn in lanes are held, and due all the same: nothing but a slot keeps them. 'turn' has their age, of
# which the first of each lane, type and priority says enough.
_HEAD = f"""SELECT j.gate COLLATE "C" AS gate, j.type, j.priority, j.run_at FROM @schema@.job j
    WHERE j.state <= 0 AND {{after}} AND j.gate COLLATE "C" < '{FAIR[:-1]};'
    ORDER BY j.gate COLLATE "C", j.type, j.priority, j.run_at, j.id LIMIT 1"""
_FIRST = f"""j.gate COLLATE "C" >= '{FAIR}'"""
_BEHIND = """(j.gate COLLATE "C", j.type, j.priority) > (h.gate, h.type, h.priority)"""
_STATS = f"""WITH RECURSIVE pending_type AS (
    (SELECT j.type FROM @schema@.job j WHERE j.state = 1 ORDER BY j.type LIMIT 1)
    UNION ALL
    SELECT (SELECT j.type FROM @schema@.job j WHERE j.state = 1 AND j.type > t.type ORDER BY j.type LIMIT 1)
    FROM pending_type t WHERE t.type IS NOT NULL
), archived_type AS (
    (SELECT a.type FROM @schema@.archive a ORDER BY a.type LIMIT 1)
    UNION ALL
    SELECT (SELECT a.type FROM @schema@.archive a WHERE a.type > t.type ORDER BY a.type LIMIT 1)
    FROM archived_type t WHERE t.type IS NOT NULL
), lane_head AS (
    ({_HEAD.format(after=_FIRST)})
    UNION ALL
    SELECT next.* FROM lane_head h CROSS JOIN LATERAL (
        {_HEAD.format(after=_BEHIND)}) AS next
), lane AS (
    SELECT t.type, p.priority FROM pending_type t CROSS JOIN generate_series(1, 4) AS p(priority) WHERE t.type IS NOT NULL
)
SELECT 'ready' AS state, lane.type, sum(found.jobs)::bigint AS jobs,
       {_AGE.format("min(found.first)")} AS oldest
FROM lane CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(r.run_at) AS first FROM (
        SELECT j.run_at FROM @schema@.job j WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority
            AND j.run_at <= statement_timestamp() ORDER BY j.run_at LIMIT {MOST_COUNTED_JOBS + 1}) AS r) AS found
GROUP BY lane.type
UNION ALL
SELECT 'scheduled', lane.type, sum(found.jobs)::bigint, NULL
FROM lane CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM @schema@.job j WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority
            AND j.run_at > statement_timestamp() LIMIT {MOST_COUNTED_JOBS + 1}) AS r) AS found
GROUP BY lane.type
UNION ALL
SELECT 'running', r.type, count(*), NULL
FROM (SELECT j.type FROM @schema@.job j WHERE j.state = 2 LIMIT {MOST_COUNTED_JOBS * 10}) AS r GROUP BY r.type
UNION ALL
SELECT 'blocked', r.type, count(*), NULL
FROM (SELECT j.type FROM @schema@.job j WHERE j.state = 0 AND j.gate IS NULL LIMIT {MOST_COUNTED_JOBS * 10}) AS r
GROUP BY r.type
UNION ALL
SELECT 'held', r.type, count(*), NULL
FROM (SELECT j.type FROM @schema@.job j WHERE j.state = 0 AND j.gate > '' LIMIT {MOST_COUNTED_JOBS * 10}) AS r
GROUP BY r.type
UNION ALL
SELECT 'turn', r.type, 0::bigint, {_AGE.format("min(r.run_at)")}
FROM (SELECT h.type, h.run_at FROM lane_head h LIMIT {MOST_COUNTED_JOBS}) AS r GROUP BY r.type
UNION ALL
SELECT s.name, t.type, found.jobs, NULL
FROM archived_type t CROSS JOIN (VALUES ('completed', 4), ('continued', 5), ('failed', 6), ('cancelled', 7)) AS s(name, state)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM @schema@.archive a
        WHERE (a.type, a.state) >= (t.type, s.state) AND (a.type, a.state) <= (t.type, s.state)
        ORDER BY a.type, a.state, a.id LIMIT {MOST_COUNTED_JOBS + 1}) AS r) AS found
WHERE t.type IS NOT NULL
UNION ALL
SELECT '', l.worker, 0::bigint, NULL::float8 FROM @schema@.lease l WHERE l.expires_at > statement_timestamp() AND NOT l.extra"""


def stats_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"stats": schema.render(_STATS)}


async def read_stats(reader: Reader, schema: Schema) -> Stats:
    """Count, as `aioqueue.abc.Store.stats` says."""
    return _stats(await reader.read(stats_statements(schema)["stats"]))


def _stats(rows: Sequence[Row]) -> Stats:
    """Make the numbers of the statement's rows."""
    counts: dict[str, dict[JobState, int]] = {}
    capped: dict[str, set[JobState]] = {}
    oldest: dict[str, float] = {}
    workers: list[str] = []
    for name, type_name, number, age in rows:
        if not name:
            workers.append(type_name)
        elif name == "turn":
            oldest[type_name] = max(age, oldest.get(type_name, 0.0))
        elif number:
            state = JobState(name)
            counts.setdefault(type_name, {})[state] = min(number, MOST_COUNTED_JOBS)
            if number > MOST_COUNTED_JOBS:
                capped.setdefault(type_name, set()).add(state)
            if age is not None:
                oldest[type_name] = max(age, oldest.get(type_name, 0.0))
    types = {
        name: TypeStats(counts=each, capped=frozenset(capped.get(name, ())), oldest_ready=oldest.get(name))
        for name, each in sorted(counts.items())
    }
    return Stats(types=types, workers=tuple(sorted(workers)))
