"""Numbers by type and state: counted along the indexes, up to a bound each. Runs in a reader's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._lease_clock import LEASE_VALID, clock_parameters
from aioqueue.sqlite._rows import load, text_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._gates import FAIR
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._stats import Stats, TypeStats

if TYPE_CHECKING:
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["ARCHIVED_TYPES", "read_stats"]

ARCHIVED_TYPES = """
WITH RECURSIVE kind(type) AS (
    SELECT min(type) FROM archive
    UNION ALL SELECT (SELECT min(type) FROM archive WHERE type > kind.type) FROM kind WHERE kind.type IS NOT NULL)
SELECT json_group_array(type) FROM kind WHERE typeof(type) = 'text'
"""
"""From one type to the next in the index, not over the rows between."""

_PENDING = f"""
WITH RECURSIVE kind(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_due WHERE state = 1)
    UNION ALL SELECT (SELECT min(type) FROM job INDEXED BY job_due WHERE state = 1 AND type > kind.type)
    FROM kind WHERE kind.type IS NOT NULL)
SELECT type,
    (SELECT json_group_array((SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_due
        WHERE state = 1 AND type = kind.type AND priority = p.value AND run_at <= {NOW} LIMIT :cap)))
     FROM json_each('[1,2,3,4]') AS p),
    (SELECT json_group_array((SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_due
        WHERE state = 1 AND type = kind.type AND priority = p.value AND run_at > {NOW} LIMIT :cap)))
     FROM json_each('[1,2,3,4]') AS p),
    (SELECT {NOW} - min((SELECT max(0, min(run_at)) FROM job INDEXED BY job_due
        WHERE state = 1 AND type = kind.type AND priority = p.value))
     FROM json_each('[1,2,3,4]') AS p)
FROM kind WHERE type IS NOT NULL
"""

# Jobs that wait for their turn in lanes are held, and due all the same: nothing but a slot keeps them. They're looked for among
# the oldest that are held of each type.
_TURNS = f"""
WITH RECURSIVE kind(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0)
    WHERE EXISTS (SELECT 1 FROM job INDEXED BY job_held WHERE state = 0 AND gate >= '{FAIR}' AND gate < '{FAIR[:-1]};')
    UNION ALL SELECT (
        SELECT min(type) FROM job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0 AND type > kind.type)
    FROM kind WHERE kind.type IS NOT NULL)
SELECT type,
    (SELECT {NOW} - min((SELECT max(0, run_at) FROM (
        SELECT run_at, gate FROM job INDEXED BY job_parked
        WHERE state = 0 AND open_blockers = 0 AND type = kind.type AND priority = p.value ORDER BY run_at LIMIT 1000)
        WHERE gate >= '{FAIR}' AND gate < '{FAIR[:-1]};' LIMIT 1))
     FROM json_each('[1,2,3,4]') AS p)
FROM kind WHERE type IS NOT NULL
"""

_BUSY = """
SELECT type, 2, 0, count(*) FROM (SELECT type FROM job INDEXED BY job_running WHERE state = 2) GROUP BY type
UNION ALL
SELECT type, 0, 0, count(*) FROM (SELECT type FROM job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0 LIMIT :cap)
GROUP BY type
UNION ALL
SELECT type, 0, 1, count(*) FROM (
    SELECT type FROM job INDEXED BY job_held WHERE state = 0 AND gate IS NULL AND open_blockers <> 0 LIMIT :cap)
GROUP BY type
"""

_FINISHED = """
SELECT lane.value, state.value, (SELECT count(*) FROM (
    SELECT 1 FROM archive INDEXED BY archive_type WHERE type = lane.value AND state = state.value LIMIT :cap))
FROM json_each(:types) AS lane, json_each('[4,5,6,7]') AS state
"""

_WORKERS = f"SELECT worker FROM lease WHERE {LEASE_VALID} AND NOT extra ORDER BY worker, id"


def read_stats(connection: Statements) -> Stats:
    """Numbers by type and state, counted up to a bound."""
    cap = {"cap": MOST_COUNTED_JOBS + 1}
    counts: dict[str, dict[JobState, int]] = {}
    oldest: dict[str, float] = {}
    for job_type, ready, scheduled, due in connection.execute(_PENDING, cap).fetchall():
        of_type = counts.setdefault(text_of(job_type), {})
        of_type[JobState.READY] = sum(load(ready))
        of_type[JobState.SCHEDULED] = sum(load(scheduled))
        if of_type[JobState.READY]:
            oldest[text_of(job_type)] = max(0.0, due / 1e6)
    for job_type, due in connection.execute(_TURNS).fetchall():
        if due is not None:
            oldest[text_of(job_type)] = max(due / 1e6, oldest.get(text_of(job_type), 0.0))
    for job_type, state, blocked, number in connection.execute(_BUSY, cap).fetchall():
        counts.setdefault(text_of(job_type), {})[StoredState(state).shown(due=True, blocked=bool(blocked))] = number
    types = connection.execute(ARCHIVED_TYPES).fetchone()[0]
    for job_type, state, number in connection.execute(_FINISHED, {**cap, "types": types}).fetchall():
        if number:
            counts.setdefault(text_of(job_type), {})[StoredState(state).shown(due=True)] = number
    workers = connection.execute(_WORKERS, clock_parameters()).fetchall()
    return Stats(
        types={
            job_type: TypeStats(
                counts={state: min(number, MOST_COUNTED_JOBS) for state, number in of_type.items() if number},
                capped=frozenset(state for state, number in of_type.items() if number > MOST_COUNTED_JOBS),
                oldest_ready=oldest.get(job_type),
            )
            for job_type, of_type in sorted(counts.items())
        },
        workers=tuple(text_of(row[0]) for row in workers),
    )
