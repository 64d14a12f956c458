"""What is paused, and how many jobs wait for that to end. The functions run in one snapshot of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._pauses_conditions import BEFORE_GATES, BEHIND_GATES, GATE_OF, LASTS
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._pauses import Pause, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["list_pauses"]

_PAUSES = f"SELECT target, value, by, reason, until, at FROM pause WHERE {LASTS} ORDER BY target, value, by LIMIT 10000"

_OF_TYPE = f"""
    SELECT 1 FROM json_each('[1,2,3,4]') AS p CROSS JOIN job INDEXED BY job_due
        ON job.state = 1 AND job.type = {{0}} AND job.priority = p.value AND job.run_at <= {NOW}
    UNION ALL
    SELECT 1 FROM json_each('[1,2,3,4]') AS p CROSS JOIN job INDEXED BY job_parked
        ON job.state = 0 AND job.open_blockers = 0 AND job.type = {{0}} AND job.priority = p.value AND job.run_at <= {NOW}
        WHERE job.gate > '{BEFORE_GATES}' AND job.gate < '{BEHIND_GATES}'"""

_COUNT_TYPES = f"""
SELECT kind.value, (SELECT count(*) FROM ({_OF_TYPE.format("kind.value")} LIMIT :cap)) FROM json_each(:types) AS kind
"""

_COUNT_ALL = f"""
WITH RECURSIVE pending(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_due WHERE state = 1)
    UNION ALL SELECT (SELECT min(type) FROM job INDEXED BY job_due WHERE state = 1 AND type > pending.type)
    FROM pending WHERE pending.type IS NOT NULL),
parked(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0)
    UNION ALL
    SELECT (SELECT min(type) FROM job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0 AND type > parked.type)
    FROM parked WHERE parked.type IS NOT NULL),
kind(type) AS (SELECT type FROM pending UNION SELECT type FROM parked)
SELECT sum((SELECT count(*) FROM ({_OF_TYPE.format("kind.type")} LIMIT :cap))) FROM kind WHERE type IS NOT NULL
"""

_LOOKED_AT = 2 * MOST_COUNTED_JOBS
"""Jobs with a key, at which is looked for those that would be due: it may have as many that aren't."""

_COUNT_KEYS = f"""
SELECT asked.value, (SELECT count(*) FROM (
    SELECT 1 FROM json_each('[1,2,3,4]') AS p CROSS JOIN job INDEXED BY job_held
        ON job.state = 0 AND job.gate = {GATE_OF} asked.value AND job.priority = p.value AND job.run_at <= {NOW}
    UNION ALL
    SELECT 1 FROM (SELECT state, run_at FROM job INDEXED BY job_key WHERE key = asked.value LIMIT {_LOOKED_AT})
        WHERE state = 1 AND run_at <= {NOW}
    LIMIT :cap))
FROM json_each(:keys) AS asked
"""


def list_pauses(connection: Statements) -> list[Pause]:
    """All pauses that aren't over, as `aioqueue.abc.SupportsPauses.list_pauses` says."""
    rows = connection.execute(_PAUSES).fetchall()
    named = {target: sorted({row[1] for row in rows if row[0] == target}) for target in PauseTarget}
    cap = {"cap": MOST_COUNTED_JOBS}
    waiting: dict[tuple[str, str], int] = {}
    for target, statement, name in ((PauseTarget.TYPE, _COUNT_TYPES, "types"), (PauseTarget.KEY, _COUNT_KEYS, "keys")):
        if named[target]:
            counts: Sequence[tuple[str, int]] = connection.execute(statement, {**cap, name: dump(named[target])}).fetchall()
            waiting |= {(target, value): count for value, count in counts}
    if named[PauseTarget.ALL]:
        everything = connection.execute(_COUNT_ALL, cap).fetchone()[0] or 0
        waiting |= {(PauseTarget.ALL, value): min(everything, MOST_COUNTED_JOBS) for value in named[PauseTarget.ALL]}
    return [
        Pause(
            target=PauseTarget(target),
            value=value,
            by=by,
            reason=reason,
            until=None if until is None else moment(until),
            at=moment(at),
            waiting=waiting.get((target, value), 0),
        )
        for target, value, by, reason, until, at in rows
    ]
