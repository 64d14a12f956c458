"""Where the unfinished jobs of a page come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._listing_conditions import LIVE_STATES, NOW, ids_between
from aioqueue.postgres._listing_parts import FEW, LOOK, WALK
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from aioqueue.postgres._listing_conditions import Conditions
    from aioqueue.postgres._listing_parts import Parts, Way
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["live_sources"]

# The types of which there are jobs in a state, as found along its index.
_TYPES = """(SELECT j.type FROM @schema@.job j WHERE j.state = @state@ ORDER BY j.type LIMIT 1)
    UNION ALL
    SELECT (SELECT j.type FROM @schema@.job j WHERE j.state = @state@ AND j.type > t.type ORDER BY j.type LIMIT 1)
    FROM @name@ t WHERE t.type IS NOT NULL"""
_PRIORITIES = "(VALUES (1::smallint), (2::smallint), (3::smallint), (4::smallint)) AS p(priority)"
_PENDING = frozenset({JobState.READY, JobState.SCHEDULED})
_HELD = frozenset({JobState.BLOCKED, JobState.HELD})
_GATES = """(SELECT j.gate FROM @schema@.job j WHERE j.state = 0 AND j.gate > '' ORDER BY j.gate LIMIT 1)
    UNION ALL
    SELECT (SELECT j.gate FROM @schema@.job j WHERE j.state = 0 AND j.gate > g.gate ORDER BY j.gate LIMIT 1)
    FROM held_gate g WHERE g.gate IS NOT NULL"""


def live_sources(parts: Parts, way: Way, where: JobFilter, conditions: Conditions) -> list[str]:
    """Give what a page of this order reads of unfinished jobs; nothing if the filter is about finished ones."""
    if (where.states and where.states.isdisjoint(LIVE_STATES)) or where.outcome is not None:
        return []
    if where.finished_after is not None or where.finished_before is not None:
        return []
    return _Live(parts, way, where, conditions).sources()


class _Live:
    """Makes the sources: see `live_sources`."""

    def __init__(self, parts: Parts, way: Way, where: JobFilter, conditions: Conditions) -> None:
        self._parts = parts
        self._way = way
        self._where = where
        self._conditions = conditions

    def sources(self) -> list[str]:
        where, way, conditions = self._where, self._way, self._conditions
        if where.chain_id is not None:
            chain, passes = self._parts.add(where.chain_id, "uuid"), conditions.live("chain")
            return [self._all(f"j.chain_id = {chain}", passes), self._all(f"j.id = {chain} AND j.chain_id IS NULL", passes)]
        if where.worker is not None:
            leases = f"SELECT l.id FROM @schema@.lease l WHERE l.worker = {self._parts.add(where.worker, 'text')}"
            return [self._all(f"j.state = 2 AND j.lease_id = ANY(ARRAY({leases}))", conditions.live())]
        if where.key is not None:
            return [self._by_key()]
        if way.by_time and where.first_id is not None and where.last_id is not None:
            few = way.all_of("job", given=ids_between(self._parts, where), passes=conditions.live("ids"))
            return [self._in_due_order_unless(few)]
        if way.by_time:
            return self._in_due_order(WALK)
        if where.states and where.states.isdisjoint(_PENDING):
            return self._running_and_held(WALK)
        if where.states or where.types:
            return [self._parts.choose("live", way, first=self._walk(LOOK), few=self._few(), otherwise=self._walk(WALK))]
        return [self._walk(WALK)]

    def _walk(self, total: int) -> str:
        return self._way.range("job", bound=self._way.bound(total), passes=self._conditions.live())

    def _all(self, given: str, passes: list[str]) -> str:
        """All rows that fulfil this, of which there are never many."""
        found = self._way.rows_of("job", given=given, passes=passes)
        # Kept apart, or the planner walks along the ids.
        return (
            f"SELECT id, at, live, passes, false AS last FROM ({found} OFFSET 0) AS found WHERE passes AND {self._way.behind}"
        )

    def _by_key(self) -> str:
        key, passes = self._parts.add(self._where.key, "text"), self._conditions.live("key")
        if not self._way.by_time:
            bound = self._way.bound(WALK)
            return self._way.range("job", ["j.key"], [key], bound=bound, passes=passes, given="j.key IS NOT NULL")
        return self._in_due_order_unless(self._way.all_of("job", given=f"j.key = {key}", passes=passes))

    def _is_asked(self, *states: JobState) -> bool:
        return not self._where.states or not self._where.states.isdisjoint(states)

    # -- by states and types ------------------------------------------------------------------------------------------

    def _types(self, name: str, state: int) -> str:
        """The types that are asked for, or of which there are jobs in this state."""
        if self._where.types:
            return f"unnest({self._parts.add(sorted(self._where.types), 'text[]')}) AS t(type)"
        self._parts.name(name, _TYPES.replace("@name@", name).replace("@state@", str(state)))
        return f"(SELECT type FROM {name} WHERE type IS NOT NULL) AS t"

    def _held_passes(self) -> list[str]:
        """What those must fulfil that are found as held: the two states are one stored state."""
        asked = _HELD & self._where.states if self._where.states else _HELD
        return [] if asked == _HELD else [LIVE_STATES[state] for state in asked]

    def _lanes(self) -> tuple[str, str]:
        """Types and priorities: each pair is one range of the index by which jobs are claimed; and how many there are."""
        lanes = f"SELECT t.type, p.priority FROM {self._types('pending_type', 1)} CROSS JOIN {_PRIORITIES}"
        name = self._parts.name("live_lane", lanes)
        return name, self._parts.name("live_lanes", f"SELECT count(*) AS n FROM {name}")

    def _due(self) -> tuple[str | None, str | None]:
        """Since and until when pending jobs are due that are asked for."""
        if not self._where.states or self._where.states >= _PENDING:
            return None, None
        return (None, NOW) if JobState.READY in self._where.states else (NOW, None)

    def _few(self) -> str:
        """Live jobs by their types and states, in no order."""
        lanes, _ = self._lanes()
        since, until = self._due()
        given = "j.state = 1 AND j.type = lane.type AND j.priority = lane.priority"
        given += f" AND j.run_at > {since}" if since else f" AND j.run_at <= {until}" if until else ""
        lane = self._way.all_of("job", given=given, passes=self._conditions.live("types", "states"))
        found = [f"(SELECT each.* FROM {lanes} lane CROSS JOIN LATERAL ({lane}) AS each LIMIT {FEW + 1})"]
        if self._is_asked(*_HELD):
            types = self._parts.name("few_held", f"SELECT t.type FROM {self._types('held_type', 0)}")
            passes = [*self._conditions.live("types", "states"), *self._held_passes()]
            held = self._way.all_of("job", given="j.state = 0 AND j.type = t.type", passes=passes)
            found.append(f"(SELECT each.* FROM {types} t CROSS JOIN LATERAL ({held}) AS each LIMIT {FEW + 1})")
        if self._is_asked(JobState.RUNNING):
            running = self._way.rows_of("job", given="j.state = 2", passes=self._conditions.live("states"))
            found.append(f"(SELECT * FROM ({running}) AS running WHERE passes)")
        return " UNION ALL ".join(found)

    def _running_and_held(self, total: int) -> list[str]:
        sources: list[str] = []
        if JobState.RUNNING in self._where.states:
            sources.append(self._all("j.state = 2", self._conditions.live("states")))
        if not self._where.states.isdisjoint(_HELD):
            types = self._parts.name("all_held", f"SELECT t.type FROM {self._types('held_type', 0)}")
            count = self._parts.name("held_types", f"SELECT count(*) AS n FROM {types}")
            passes = [*self._conditions.live("types", "states"), *self._held_passes()]
            held = self._way.range(
                "job",
                ["j.type"],
                ["t.type"],
                bound=self._way.bound(total, count, filtered=bool(passes)),
                passes=passes,
                given="j.state = 0",
            )
            sources.append(f"SELECT each.* FROM {types} t CROSS JOIN LATERAL ({held}) AS each")
        return sources

    # -- by due times -------------------------------------------------------------------------------------------------

    def _in_due_order_unless(self, few: str) -> str:
        otherwise = " UNION ALL ".join(self._in_due_order(WALK))
        return self._parts.choose("live", self._way, first=None, few=few, otherwise=otherwise)

    def _in_due_order(self, total: int) -> list[str]:
        sources: list[str] = []
        if self._is_asked(*_PENDING):
            lanes, count = self._lanes()
            since, until = self._due()
            passes = self._conditions.live("types", "states")
            lane = self._way.range(
                "job",
                ["j.type", "j.priority"],
                ["lane.type", "lane.priority"],
                bound=self._way.bound(total, count, filtered=bool(passes)),
                passes=passes,
                given="j.state = 1",
                since=since,
                until=until,
            )
            sources.append(f"SELECT each.* FROM {lanes} lane CROSS JOIN LATERAL ({lane}) AS each")
        if self._is_asked(JobState.RUNNING):
            # By no index, but there are no more of them than slots.
            sources.append(self._all("j.state = 2", self._conditions.live("states")))
        passes = self._conditions.live("states")
        if self._is_asked(JobState.BLOCKED):
            blocked = self._way.range(
                "job",
                ["j.priority"],
                ["p.priority"],
                bound=self._way.bound(total, 4),
                passes=[*passes, *self._held_passes()],
                given="j.state = 0 AND j.gate IS NULL",
                before="j.gate",
            )
            sources.append(f"SELECT each.* FROM {_PRIORITIES} CROSS JOIN LATERAL ({blocked}) AS each")
        if self._is_asked(JobState.HELD):
            self._parts.name("held_gate", _GATES)
            gates = self._parts.name(
                "gate_lane", f"SELECT g.gate, p.priority FROM held_gate g CROSS JOIN {_PRIORITIES} WHERE g.gate IS NOT NULL"
            )
            count = self._parts.name("gate_lanes", f"SELECT count(*) AS n FROM {gates}")
            parked = self._way.range(
                "job",
                ["j.gate", "j.priority"],
                ["g.gate", "g.priority"],
                bound=self._way.bound(total, count, filtered=bool(passes)),
                passes=passes,
                given="j.state = 0",
            )
            sources.append(f"SELECT each.* FROM {gates} g CROSS JOIN LATERAL ({parked}) AS each")
        return sources
