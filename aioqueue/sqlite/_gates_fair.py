"""Fair lanes: the due jobs of types whose values take turns are held apart, and come before claims in rounds over the lanes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aioqueue.sqlite._claim_paused import open_types
from aioqueue.sqlite._gates_each import let_come_from_lanes
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._gates import fair_gate_of, gates_behind_turns
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_news import PassedOver
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["SORTED_AT_ONCE", "FairLanes", "wait_in_lanes"]

SORTED_AT_ONCE = 5000
"""Jobs that one transaction puts into their lanes: some fifty milliseconds."""

_UNSORTED = f"""
SELECT job.id, CAST(job.type AS TEXT), CAST(job.payload AS TEXT), CAST(job.metadata AS TEXT)
FROM json_each(:types) AS kind, json_each('[1,2,3,4]') AS urgency
CROSS JOIN job INDEXED BY job_due ON job.state = 1 AND job.type = kind.value AND job.priority = urgency.value
    AND job.run_at <= {NOW}
WHERE job.gate IS NULL AND typeof(job.id) = 'text' LIMIT {SORTED_AT_ONCE}
"""

_INTO_LANES = """
UPDATE job SET state = 0, gate = n.value ->> 1 FROM json_each(:rows) AS n WHERE job.id = n.value ->> 0 AND job.state = 1
"""

_DUE_HERE = f"""
SELECT EXISTS (SELECT 1 FROM json_each(:types) AS kind, json_each('[1,2,3,4]') AS urgency
    CROSS JOIN job INDEXED BY job_due ON job.state = 1 AND job.type = kind.value AND job.priority = urgency.value
        AND job.run_at <= {NOW})
"""

_NEXT = """(SELECT min(gate) FROM job INDEXED BY job_at_gate
    WHERE state = 0 AND open_blockers = 0 AND gate > {0} AND gate < :behind)"""

_FULL = """
SELECT behind.value ->> 0 FROM json_each(:gates) AS behind WHERE EXISTS (
    SELECT 1 FROM job INDEXED BY job_at_gate
    WHERE state = 0 AND open_blockers = 0 AND gate = behind.value ->> 1 AND type = behind.value ->> 0 AND typeof(id) = 'text')
"""

_LANES = f"""
WITH RECURSIVE lane(gate, place) AS (
    SELECT {_NEXT.format(":after")}, 1
    UNION ALL SELECT {_NEXT.format("lane.gate")}, place + 1 FROM lane WHERE gate IS NOT NULL AND place < :limit)
SELECT gate FROM lane WHERE gate IS NOT NULL
"""
"""From one lane to the next in the index, not over the jobs between."""

_HEADS = """
SELECT (SELECT json_group_array(id) FROM (
    SELECT id FROM job INDEXED BY job_held
    WHERE state = 0 AND gate = lane.value AND open_blockers = 0 AND typeof(id) = 'text'
        AND type IN (SELECT value FROM json_each(:types)) AND id NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY priority, run_at, id LIMIT :share))
FROM json_each(:lanes) AS lane
"""

_ANY_WAITS = """
SELECT EXISTS (SELECT 1 FROM json_each(:names) AS named CROSS JOIN job INDEXED BY job_at_gate
    ON job.state = 0 AND job.open_blockers = 0 AND job.gate = named.value
        AND job.id NOT IN (SELECT value FROM json_each(:skip)))
    OR EXISTS (SELECT 1 FROM json_each(:names) AS named CROSS JOIN job INDEXED BY job_at_gate
    ON job.state = 0 AND job.open_blockers = 0 AND job.gate > named.value || '=' AND job.gate < named.value || '>'
        AND job.id NOT IN (SELECT value FROM json_each(:skip)))
"""
"""The lane of those without a value, or another one."""


def _with_turns(connection: Statements, fair: Mapping[str, GateRules]) -> list[str]:
    """Those of the types that aren't paused, and of which none wait at a gate of all their jobs."""
    left: list[str] = load(open_types(connection, dump(list(fair)))[0])
    behind = [[each, gate] for each in left for gate in gates_behind_turns(fair[each])]
    if not behind:
        return left
    full = {fair[row[0]].type for row in connection.execute(_FULL, {"gates": dump(behind)}).fetchall()}
    return [each for each in left if fair[each].type not in full]


def wait_in_lanes(connection: Statements, fair: Mapping[str, GateRules], passed_over: PassedOver) -> bool:
    """Whether somebody waits in the lanes of these types, of those of which somebody may come, and who isn't passed over."""
    if not fair:
        return False
    left = _with_turns(connection, fair)
    asked = {"names": dump(sorted({FAIR + fair[each].type for each in left})), "skip": dump(passed_over.ids)}
    return bool(left and connection.execute(_ANY_WAITS, asked).fetchone()[0])


class FairLanes:
    """The lanes of one open store. Whose turn it was is remembered in this process only.

    Arguments:
        passed_over: Jobs that refuse to be let come.
    """

    def __init__(self, passed_over: PassedOver) -> None:
        self._after: dict[str, str] = {}
        self._passed_over = passed_over

    def sort(self, connection: Statements, fair: Mapping[str, GateRules]) -> int:
        """Put due jobs into their lanes, one portion; in a write transaction. Returns how many."""
        types = open_types(connection, dump(list(fair)))[0]
        rows: list[list[object]] = []
        for job_id, job_type, payload, metadata in connection.execute(_UNSORTED, {"types": types}).fetchall():
            rows.append([job_id, fair_gate_of(fair[job_type], payload.encode(), metadata.encode())])
        if rows:
            connection.execute(_INTO_LANES, {"rows": dump(rows)})
        return len(rows)

    def let_come(self, connection: Statements, fair: Mapping[str, GateRules], limit: int, *, some_are_stuck: bool) -> None:
        """Let jobs come to the claim, so many at most of each type: of each lane one before the second of any.

        Those that came before and haven't been taken come first: of their types nobody else comes now.

        Arguments:
            connection: In a write transaction.
            fair: The rules of the types.
            limit: Jobs.
            some_are_stuck: Whether some that came can't be taken at all, and aren't waited for.
        """
        by_name: dict[str, list[str]] = {}
        for each in _with_turns(connection, fair):
            by_name.setdefault(fair[each].type, []).append(each)
        for name, types in by_name.items():
            given, left = dump(types), limit
            if not some_are_stuck and connection.execute(_DUE_HERE, {"types": given}).fetchone()[0]:
                continue
            while left > 0 and (came := self._round(connection, FAIR + name, given, left)):
                left -= came

    def _round(self, connection: Statements, name: str, types: str, limit: int) -> int:
        lanes = self._lanes(connection, name, limit)
        if not lanes:
            return 0
        skip = dump(self._passed_over.ids)
        asked = {"lanes": dump(lanes), "types": types, "share": -(-limit // len(lanes)), "skip": skip}
        heads: list[list[str]] = [load(row[0]) for row in connection.execute(_HEADS, asked).fetchall()]
        turns = [
            (lane, each)
            for turn in itertools.zip_longest(*heads)
            for lane, each in zip(lanes, turn, strict=True)
            if each is not None
        ]
        turns = turns[:limit]
        if turns:
            self._after[name] = turns[-1][0]
        return let_come_from_lanes(connection, [each for _, each in turns], self._passed_over)

    def _lanes(self, connection: Statements, name: str, limit: int) -> list[str]:
        """The next lanes after the one whose turn was last, and then those from the first on, each once."""
        first, behind = f"{name}=", f"{name}>"
        after = self._after.get(name, "")
        found: list[str] = []
        for begin in (after, ""):
            if not begin:
                # The lane of those without a value comes before all others.
                found += self._walk(connection, f"{name[:-1]}{chr(ord(name[-1]) - 1)}\U0010ffff", f"{name}\x01", 1)
            found += self._walk(connection, max(begin, first), behind, limit)
            if not after or len(found) >= limit:
                break
        return list(dict.fromkeys(found))[:limit]

    def _walk(self, connection: Statements, after: str, behind: str, limit: int) -> list[str]:
        rows = connection.execute(_LANES, {"after": after, "behind": behind, "limit": limit}).fetchall()
        return [row[0] for row in rows]
