"""Where the finished jobs of a page come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._listing_conditions import (
    ARCHIVED_STATES,
    ERROR_TYPE,
    OUTCOME,
    error_prefix,
    ids_between,
    outcome_prefix,
)
from aioqueue.postgres._listing_parts import FEW, LOOK, WALK

if TYPE_CHECKING:
    from aioqueue.postgres._listing_conditions import Conditions
    from aioqueue.postgres._listing_parts import Parts, Way
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["archived_sources"]

# What there is in the archive, as found along its indexes: each has few values.
_TYPES = """(SELECT a.type FROM @schema@.archive a ORDER BY a.type LIMIT 1)
    UNION ALL
    SELECT (SELECT a.type FROM @schema@.archive a WHERE a.type > t.type ORDER BY a.type LIMIT 1)
    FROM archived_type t WHERE t.type IS NOT NULL"""
_STATES = """(SELECT a.state FROM @schema@.archive a ORDER BY a.state LIMIT 1)
    UNION ALL
    SELECT (SELECT a.state FROM @schema@.archive a WHERE a.state > s.state ORDER BY a.state LIMIT 1)
    FROM archived_state s WHERE s.state IS NOT NULL"""
_CONTINUED = 5
_BEFORE_ALL = "'00000000-0000-0000-0000-000000000000'::uuid"
_EVERY = 1_000_000_000


def archived_sources(parts: Parts, way: Way, where: JobFilter, conditions: Conditions) -> list[str]:
    """Give what a page of this order reads of finished jobs; nothing if the filter is about unfinished ones."""
    if (where.states and where.states.isdisjoint(ARCHIVED_STATES)) or where.worker is not None:
        return []
    archived = _Archived(parts, way, where, conditions)
    return archived.by_finish_time() if way.by_time else archived.by_id()


class _Archived:
    """Makes the sources: see `archived_sources`."""

    def __init__(self, parts: Parts, way: Way, where: JobFilter, conditions: Conditions) -> None:
        self._parts = parts
        self._way = way
        self._where = where
        self._conditions = conditions
        self._states = sorted(ARCHIVED_STATES[state] for state in where.states if state in ARCHIVED_STATES)

    # -- by id --------------------------------------------------------------------------------------------------------

    def by_id(self) -> list[str]:
        """The sources for an order by id."""
        if self._where.finished_after is None and self._where.finished_before is None:
            return [self._by_id(WALK)]
        few = self._few_of_finish_times()
        return [self._choose(first=self._by_id(LOOK), few=few, otherwise=self._by_id(WALK))]

    def _by_id(self, total: int) -> str:
        where, parts = self._where, self._parts
        if where.key is not None:
            return self._range("key", "j.key", parts.add(where.key, "text"), "j.key IS NOT NULL", total)
        if where.outcome is not None:
            prefix = parts.add(outcome_prefix(where.outcome), "text")
            return self._range("outcome", OUTCOME, prefix, "j.outcome IS NOT NULL", total)
        if where.error_type is not None:
            prefix = parts.add(error_prefix(where.error_type), "text")
            return self._range("error", ERROR_TYPE, prefix, "cardinality(j.errors) > 0", total)
        if where.chain_id is not None:
            return self._choose(first=self._walk(LOOK), few=self._few_of_chain(), otherwise=self._walk(WALK), name="chain")
        if where.types:
            return self._types_and_states(total)
        if self._states and self._states[0] >= _CONTINUED:
            return self._states_but_completed(total)
        if self._states or where.ends:
            return self._choose(first=self._walk(LOOK), few=None, otherwise=self._types_and_states(total), name="states")
        return self._walk(total)

    def _walk(self, total: int) -> str:
        passes = self._conditions.archived()
        return self._way.range("archive", bound=self._way.bound(total), passes=passes)

    def _range(self, name: str, column: str, value: str, given: str, total: int) -> str:
        """The rows that have this in common."""
        passes = self._conditions.archived(name)
        bound = self._way.bound(total)
        return self._way.range("archive", [column], [value], bound=bound, passes=passes, given=given)

    def _states_but_completed(self, total: int) -> str:
        passes = self._conditions.archived("states")
        states = f"unnest({self._parts.add(self._states, 'smallint[]')}) AS s(state)"
        each = self._way.range(
            "archive",
            ["j.state + 0"],  # which the index of finish times hasn't
            ["s.state"],
            bound=self._way.bound(total, len(self._states)),
            passes=passes,
            given="j.state > 4",
        )
        return f"SELECT each.* FROM {states} CROSS JOIN LATERAL ({each}) AS each"

    def _types_and_states(self, total: int) -> str:
        passes = self._conditions.archived("types", "states", "ends")
        kinds = self._parts.name("archived_kind", f"SELECT t.type, s.state FROM {self._types()} CROSS JOIN {self._states_of()}")
        count = self._parts.name("archived_kinds", f"SELECT count(*) AS n FROM {kinds}")
        each = self._way.range(
            "archive",
            ["j.type", "j.state"],
            ["kind.type", "kind.state"],
            bound=self._way.bound(total, count, filtered=bool(passes)),
            passes=passes,
        )
        return f"SELECT each.* FROM {kinds} kind CROSS JOIN LATERAL ({each}) AS each"

    def _types(self) -> str:
        if self._where.types:
            return f"unnest({self._parts.add(sorted(self._where.types), 'text[]')}) AS t(type)"
        self._parts.name("archived_type", _TYPES)
        return "(SELECT type FROM archived_type WHERE type IS NOT NULL) AS t"

    def _states_of(self) -> str:
        left_out = f" AND state <> {_CONTINUED}" if self._where.ends else ""
        if self._states:
            given = f"unnest({self._parts.add(self._states, 'smallint[]')}) AS s(state)"
            return f"(SELECT state FROM {given} WHERE true{left_out}) AS s"
        self._parts.name("archived_state", _STATES)
        return f"(SELECT state FROM archived_state WHERE state IS NOT NULL{left_out}) AS s"

    # -- by finish time -------------------------------------------------------------------------------------------------

    def by_finish_time(self) -> list[str]:
        """The sources for an order by finish time."""
        few, otherwise = self._few(), self._in_finish_order()
        if few is None:
            return otherwise
        return [self._choose(first=None, few=few, otherwise=" UNION ALL ".join(otherwise))]

    def _in_finish_order(self) -> list[str]:
        """Each state is a range of one index. How far a page looks at row by row is the same time in all of them."""
        parts, where = self._parts, self._where
        passes = self._conditions.archived("states", "ends", "finished")
        states = parts.name("finished_state", f"SELECT s.state FROM {self._states_of()}")
        until = None if where.finished_after is None else parts.add(where.finished_after, "timestamptz")
        sources: list[str] = []
        if passes:
            row = self._way.horizon("archive", "j.state", "state.state", WALK // 2)
            horizon = parts.name("horizon", f"SELECT max(each.at) AS at FROM {states} state CROSS JOIN LATERAL ({row}) AS each")
            end = f"(SELECT coalesce(at, '-infinity') FROM {horizon})"
            until = end if until is None else f"greatest({until}, {end})"
            end_of_page = f"{_BEFORE_ALL} AS id, at, false AS live, false AS passes, true AS last"
            sources.append(f"SELECT {end_of_page} FROM {horizon} WHERE at IS NOT NULL")
        each = self._way.range(
            "archive",
            ["j.state"],
            ["state.state"],
            bound=str(_EVERY if passes else self._way.limit + 1),
            passes=passes,
            since=None if where.finished_before is None else parts.add(where.finished_before, "timestamptz"),
            until=until,
        )
        return [*sources, f"SELECT each.* FROM {states} state CROSS JOIN LATERAL ({each}) AS each"]

    # -- the few that there may be --------------------------------------------------------------------------------------

    def _few(self) -> str | None:
        """Those that fit, by way of whatever leads to the fewest; None where nothing does."""
        where, parts = self._where, self._parts
        if where.key is not None:
            given = f"j.key = {parts.add(where.key, 'text')}"
            return self._way.all_of("archive", given=given, passes=self._conditions.archived("key"))
        if where.chain_id is not None:
            return self._few_of_chain()
        if where.outcome is not None:
            given = f"j.outcome IS NOT NULL AND {OUTCOME} = {parts.add(outcome_prefix(where.outcome), 'text')}"
            return self._way.all_of("archive", given=given, passes=self._conditions.archived("outcome"))
        if where.error_type is not None:
            given = f"cardinality(j.errors) > 0 AND {ERROR_TYPE} = {parts.add(error_prefix(where.error_type), 'text')}"
            return self._way.all_of("archive", given=given, passes=self._conditions.archived("error"))
        if where.first_id is not None and where.last_id is not None:
            return self._way.all_of("archive", given=ids_between(parts, where), passes=self._conditions.archived("ids"))
        if where.types:
            kinds = parts.name("few_kind", f"SELECT t.type, s.state FROM {self._types()} CROSS JOIN {self._states_of()}")
            each = self._way.all_of(
                "archive",
                given="j.type = kind.type AND j.state = kind.state",
                passes=self._conditions.archived("types", "states", "ends"),
            )
            return f"SELECT each.* FROM {kinds} kind CROSS JOIN LATERAL ({each}) AS each LIMIT {FEW + 1}"
        return None

    def _few_of_chain(self) -> str:
        chain, passes = self._parts.add(self._where.chain_id, "uuid"), self._conditions.archived("chain")
        first = self._way.all_of("archive", given=f"j.id = {chain} AND j.chain_id IS NULL", passes=passes)
        steps = self._way.all_of("archive", given=f"j.chain_id = {chain}", passes=passes)
        return f"({first}) UNION ALL ({steps})"

    def _few_of_finish_times(self) -> str:
        where, passes = self._where, self._conditions.archived("finished")
        between = ["j.state = state.state"]
        if where.finished_after is not None:
            between.append(f"j.finished_at >= {self._parts.add(where.finished_after, 'timestamptz')}")
        if where.finished_before is not None:
            between.append(f"j.finished_at < {self._parts.add(where.finished_before, 'timestamptz')}")
        states = self._parts.name("finished_state", f"SELECT s.state FROM {self._states_of()}")
        each = self._way.all_of("archive", given=" AND ".join(between), passes=passes)
        return f"SELECT each.* FROM {states} state CROSS JOIN LATERAL ({each}) AS each LIMIT {FEW + 1}"

    def _choose(self, *, first: str | None, few: str | None, otherwise: str, name: str = "archived") -> str:
        return self._parts.choose(name, self._way, first=first, few=few, otherwise=otherwise)
