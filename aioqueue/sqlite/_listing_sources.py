"""Which ranges of which indexes a page is read from.

Where an index has the rows that fit in the order of the listing, they're read along it. Where one has few rows for the filter,
in whatever order, all of these are looked at. Otherwise the page walks along the order, and looks at each row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.sqlite._listing_filters import (
    ERROR_TYPE,
    archived_conditions,
    archived_states,
    filter_parameters,
    live_conditions,
    meets_archived,
    meets_live,
)
from aioqueue.sqlite._listing_lanes import Lane
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_places import AFTER_ALL, NO_VALUE, Place
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["lanes_of"]

FEW_ROWS = 1_000
"""So many rows that an index has for a filter are looked at and sorted, for each page."""

_MOST_LANES = 1_000
"""Pairs of type and state, or of type and priority, beyond which rows aren't read along their indexes."""

_UNSUCCESSFUL = frozenset({StoredState.FAILED, StoredState.CANCELLED})

_DUE = "job INDEXED BY job_due WHERE state = 1"
_BLOCKED = "job INDEXED BY job_blocked WHERE state = 0"
"""By type, also those that wait for nothing."""
_PARKED = "job INDEXED BY job_parked WHERE state = 0 AND open_blockers = 0"

_KINDS = """
kind(type) AS (
    SELECT value FROM json_each(:types) UNION ALL SELECT next FROM (SELECT ({first}) AS next) WHERE :types = '[]'
    UNION ALL SELECT ({following}) FROM kind WHERE kind.type IS NOT NULL AND :types = '[]')"""
"""The types that are asked for, or all that there are: from one to the next in the index, not over the rows between."""


def _kinds_of(source: str) -> str:
    return _KINDS.format(
        first=f"SELECT min(type) FROM {source}", following=f"SELECT min(type) FROM {source} AND type > kind.type"
    )


_PENDING_KINDS = _kinds_of(_DUE)


def _live_lanes(kinds: str, source: str) -> str:
    """The pairs of type and priority that there are in an index by these, beginning with its name."""
    return f"""
WITH RECURSIVE {kinds},
lane(type, priority) AS (
    SELECT type, (SELECT min(priority) FROM {source} AND type = kind.type)
    FROM kind WHERE type IS NOT NULL
    UNION ALL
    SELECT type, (SELECT min(priority) FROM {source} AND type = lane.type AND priority > lane.priority)
    FROM lane WHERE priority IS NOT NULL)
SELECT typeof(type) = 'blob', CAST(type AS BLOB), priority FROM lane WHERE priority IS NOT NULL
"""


_PENDING_LANES = _live_lanes(_PENDING_KINDS, _DUE)
_HELD_LANES = _live_lanes(_kinds_of(_BLOCKED), _BLOCKED)
_PARKED_LANES = _live_lanes(_kinds_of(_PARKED), _PARKED)

_ARCHIVED_KINDS = _KINDS.format(
    first="SELECT min(type) FROM archive INDEXED BY archive_type",
    following="SELECT min(type) FROM archive INDEXED BY archive_type WHERE type > kind.type",
)

_ARCHIVED_LANES = f"""
WITH RECURSIVE {_ARCHIVED_KINDS},
lane(type, state) AS (
    SELECT type, (SELECT min(state) FROM archive INDEXED BY archive_type WHERE type = kind.type)
    FROM kind WHERE type IS NOT NULL
    UNION ALL
    SELECT type, (SELECT min(state) FROM archive INDEXED BY archive_type WHERE type = lane.type AND state > lane.state)
    FROM lane WHERE state IS NOT NULL)
SELECT typeof(type) = 'blob', CAST(type AS BLOB), state FROM lane WHERE state IS NOT NULL
"""

_SOME_KINDS = f"WITH RECURSIVE {_PENDING_KINDS} SELECT type FROM kind WHERE type IS NOT NULL"

_FINISHED_STATES = """
WITH RECURSIVE lane(state) AS (
    SELECT (SELECT min(state) FROM archive INDEXED BY archive_finished)
    UNION ALL SELECT (SELECT min(state) FROM archive INDEXED BY archive_finished WHERE state > lane.state)
    FROM lane WHERE state IS NOT NULL)
SELECT state FROM lane WHERE state IS NOT NULL LIMIT 100
"""

_RUNNING = "job INDEXED BY job_running WHERE state = 2"
_HELD = "job INDEXED BY job_held WHERE state = 0"
_ODD = "job INDEXED BY job_odd WHERE state NOT IN (0, 1, 2)"
_OF_TYPES = "type IN (SELECT value FROM json_each(:types))"
_OF_TYPE = f"type = {any_id('lane_type')}"


def lanes_of(connection: Statements, where: JobFilter, order: ListOrder, now: int) -> list[Lane]:
    """The lanes of a listing.

    Arguments:
        connection: Where it's looked how many rows there are, and of which types.
        where: What is asked for.
        order: In which order each lane has its rows.
        now: What counts as due.
    """
    lanes: list[Lane] = []
    parameters = filter_parameters(where, now)
    if order is not ListOrder.FINISHED and meets_live(where):
        lanes += _Live(connection, where, parameters).lanes(order)
    if order is not ListOrder.DUE and meets_archived(where):
        lanes += _Archived(connection, where, parameters).lanes(order)
    return lanes


def _next_to(job_id: UUID | None, step: int) -> UUID | None:
    return UUID(int=job_id.int + step) if job_id is not None and 0 <= job_id.int + step < 2**128 else None


def _place_of(job_id: UUID | None) -> Place | None:
    if job_id is None:
        return None
    return Place(is_odd=False, number=0, odd=NO_VALUE, id=RowId(blob=False, raw=str(job_id).encode()))


class _Table:
    """One of the two tables of jobs, for one filter.

    Arguments:
        connection: Where it is.
        where: The filter.
        parameters: Of the filter.
        conditions: What it asks of each row, by its fields.
        archived: Whether it's the archive.
    """

    def __init__(
        self,
        connection: Statements,
        where: JobFilter,
        parameters: dict[str, Any],
        conditions: dict[str, str],
        *,
        archived: bool,
    ) -> None:
        self._connection = connection
        self._where = where
        self._parameters = parameters
        self._conditions = conditions
        self._archived = archived
        self._name = "archive" if archived else "job"

    def _lane(self, source: str, *met: str, few: bool = False, **of_lane: Any) -> Lane:
        """A lane; its rows meet the conditions of these fields anyway."""
        conditions = [condition for name, condition in self._conditions.items() if name not in met]
        return Lane(source, self._parameters | of_lane, conditions, archived=self._archived, few=few)

    def _by_ids(self, order: ListOrder) -> Lane:
        """The whole table, or the range of ids that is asked for."""
        lane, where = self._lane(f"{self._name} WHERE true", "first_id", "last_id"), self._where
        if order is ListOrder.NEWEST:
            begin, end = _next_to(where.last_id, 1), where.first_id
        else:
            begin, end = _next_to(where.first_id, -1), where.last_id
        return replace(lane, cost=1, begin=_place_of(begin), end=_place_of(end))

    def _few(self, *sources: str) -> list[Lane] | None:
        """These ranges, if they have few rows; None otherwise."""
        left = FEW_ROWS
        for source in sources:
            statement = f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT :left + 1)"
            left -= self._connection.execute(statement, self._parameters | {"left": left}).fetchone()[0]
            if left < 0:
                return None
        return [self._lane(source, few=True) for source in sources]

    def _of_one_chain(self) -> list[Lane] | None:
        return self._few(
            f"{self._name} INDEXED BY {self._name}_chain WHERE chain_id = :chain_id",
            f"{self._name} WHERE id = :chain_id AND chain_id IS NULL",
        )

    def _several(self, statement: str) -> Sequence[Sequence[Any]]:
        return self._connection.execute(statement, self._parameters).fetchall()

    def _few_by_a_value(self) -> list[Lane] | None:
        """The few rows that have one of the values that are asked for, if there is an index by it."""
        where = self._where
        few: list[Lane] | None = None
        if where.chain_id is not None:
            few = self._of_one_chain()
        if few is None and where.key is not None:
            few = self._few(f"{self._name} INDEXED BY {self._name}_key WHERE key = :key")
        if few is None and where.error_type is not None:
            few = self._few(f"{self._name} INDEXED BY {self._name}_error WHERE errors <> '[]' AND {ERROR_TYPE} = :error_type")
        if few is None and where.first_id is not None and where.last_id is not None:
            few = self._few(f"{self._name} WHERE id >= :first_id AND id <= :last_id")
        return few

    def _along_a_value(self) -> list[Lane] | None:
        """All rows that have one of the values that are asked for, by their ids, if there is an index by it."""
        where = self._where
        if where.key is not None:
            return [self._lane(f"{self._name} INDEXED BY {self._name}_key WHERE key = :key", "key")]
        if where.error_type is not None:
            source = f"{self._name} INDEXED BY {self._name}_error WHERE errors <> '[]' AND {ERROR_TYPE} = :error_type"
            return [self._lane(source, "error_type")]
        return None


class _Live(_Table):
    """The table of live jobs, for one filter."""

    def __init__(self, connection: Statements, where: JobFilter, parameters: dict[str, Any]) -> None:
        super().__init__(connection, where, parameters, live_conditions(where), archived=False)
        self._pending = where.states & {JobState.READY, JobState.SCHEDULED}
        self._any = not where.states

    def lanes(self, order: ListOrder) -> list[Lane]:
        """The lanes of a listing."""
        if self._where.worker is not None:
            # At most as many as there are slots.
            return [self._lane(f"{_RUNNING} AND lease_id IN (SELECT id FROM lease WHERE worker = :worker)", few=True)]
        if order is ListOrder.DUE:
            return self._few_rows() or self._by_due_time()
        if self._conditions.keys() <= {"first_id", "last_id"}:
            return [self._by_ids(order)]
        few = self._of_one_chain() if self._where.chain_id is not None else None
        return few or self._along_a_value() or self._few_rows() or [self._by_ids(order)]

    def _few_rows(self) -> list[Lane] | None:
        return self._few_by_a_value() or self._few_by_state()

    def _few_by_state(self) -> list[Lane] | None:
        """The few rows in the states that are asked for, and of the types, by the partial indexes."""
        if self._any and not self._where.types:
            return None
        sources = [_RUNNING] if self._any or JobState.RUNNING in self._where.states else []
        if self._any or JobState.BLOCKED in self._where.states:
            sources.append(f"{_BLOCKED} AND {_OF_TYPES}" if self._where.types else _HELD)
        elif JobState.HELD in self._where.states:
            sources.append(f"{_PARKED} AND {_OF_TYPES}" if self._where.types else _PARKED)
        sources += [_ODD] if self._any else []
        if self._any or len(self._pending) == 2:
            sources.append(f"{_DUE} AND {_OF_TYPES}" if self._where.types else _DUE)
        elif self._pending:
            kinds = f"type IN (SELECT type FROM ({_SOME_KINDS}))"
            sources.append(f"{_DUE} AND {kinds} AND priority IN (1, 2, 3, 4) AND {self._due_condition()}")
        return self._few(*sources)

    def _due_condition(self) -> str:
        """What ready ones, or else scheduled ones, have in common."""
        return "run_at <= :now" if JobState.READY in self._pending else "run_at > :now"

    def _by_due_time(self) -> list[Lane]:
        lanes: list[Lane] = []
        if self._any or self._pending:
            source = f"{_DUE} AND {_OF_TYPE} AND priority = :lane_priority"
            now = Place(is_odd=False, number=self._parameters["now"], odd=NO_VALUE, id=AFTER_ALL.id)
            begin = now if self._pending == {JobState.SCHEDULED} else None
            end = now if self._pending == {JobState.READY} else None
            lanes += [
                replace(self._typed(source, raw, "states", blob=blob, lane_priority=priority), begin=begin, end=end)
                for blob, raw, priority in self._several(_PENDING_LANES)
            ]
        if self._any or JobState.BLOCKED in self._where.states:
            both = self._any or JobState.HELD in self._where.states
            lanes += self._held_by_due_time(_BLOCKED, _HELD_LANES, *(("states",) if both else ()))
        elif JobState.HELD in self._where.states:
            lanes += self._held_by_due_time(_PARKED, _PARKED_LANES, "states")
        if self._any or JobState.RUNNING in self._where.states:
            lanes.append(self._lane(_RUNNING, few=True))
        if self._any:
            lanes.append(self._lane(_ODD, few=True))
        return lanes

    def _held_by_due_time(self, index: str, pairs: str, *met: str) -> list[Lane]:
        source = f"{index} AND {_OF_TYPE} AND priority = :lane_priority"
        return [
            self._typed(source, raw, *met, blob=blob, lane_priority=priority) for blob, raw, priority in self._several(pairs)
        ]

    def _typed(self, source: str, raw: bytes, *met: str, blob: bool, lane_priority: Any) -> Lane:
        kind = RowId.read(blob, raw).parameters("lane_type")
        return self._lane(source, "types", *met, **kind, lane_priority=lane_priority)


class _Archived(_Table):
    """The table of finished jobs, for one filter."""

    def __init__(self, connection: Statements, where: JobFilter, parameters: dict[str, Any]) -> None:
        super().__init__(connection, where, parameters, archived_conditions(where), archived=True)
        self._states = archived_states(where)

    def lanes(self, order: ListOrder) -> list[Lane]:
        """The lanes of a listing."""
        if order is ListOrder.FINISHED:
            return self._few_rows() or self._by_finish_time()
        if self._conditions.keys() <= {"first_id", "last_id"}:
            return [self._by_ids(order)]
        few = self._of_one_chain() if self._where.chain_id is not None else None
        few = few or self._along_a_value() or self._few_by_time()
        if few is None and (self._where.types or self._states is not None):
            few = self._along_types()
        return [self._by_ids(order)] if few is None else few

    def _along_a_value(self) -> list[Lane] | None:
        if self._where.outcome is not None:
            return [self._lane("archive INDEXED BY archive_outcome WHERE outcome = :outcome", "outcome")]
        return super()._along_a_value()

    def _few_rows(self) -> list[Lane] | None:
        few = self._few_by_a_value()
        if few is None and self._where.outcome is not None:
            few = self._few("archive INDEXED BY archive_outcome WHERE outcome = :outcome")
        if few is None and self._where.types:
            states = "" if self._states is None else " AND state IN (SELECT value FROM json_each(:states))"
            few = self._few(f"archive INDEXED BY archive_type WHERE {_OF_TYPES}{states}")
        return few

    def _few_by_time(self) -> list[Lane] | None:
        if self._where.finished_after is None and self._where.finished_before is None:
            return None
        self._parameters["lanes"] = dump(list(self._stored_states()))
        source = "archive INDEXED BY archive_finished WHERE state IN (SELECT value FROM json_each(:lanes))"
        after = " AND finished_at >= :finished_after" if self._where.finished_after is not None else ""
        before = " AND finished_at < :finished_before" if self._where.finished_before is not None else ""
        return self._few(source + after + before)

    def _stored_states(self) -> Iterable[Any]:
        found = self._states if self._states is not None else [row[0] for row in self._several(_FINISHED_STATES)]
        return [each for each in found if not self._where.ends or each != StoredState.CONTINUED]

    def _along_types(self) -> list[Lane] | None:
        """Lanes of a type and a state each, where these leave rows out."""
        pairs = [
            (RowId.read(blob, raw), state)
            for blob, raw, state in self._several(_ARCHIVED_LANES)
            if (self._states is None or state in self._states) and not (self._where.ends and state == StoredState.CONTINUED)
        ]
        if len(pairs) > _MOST_LANES:
            return None
        source = f"archive INDEXED BY archive_type WHERE {_OF_TYPE} AND state = :lane_state"
        return [
            self._lane(source, "types", "states", "ends", **kind.parameters("lane_type"), lane_state=state)
            for kind, state in pairs
        ]

    def _by_finish_time(self) -> list[Lane]:
        met, states = ("states", "ends", "finished_after", "finished_before"), self._stored_states()
        if self._where.types and self._states is not None and _UNSUCCESSFUL.issuperset(self._states):
            source = f"archive INDEXED BY archive_unsuccessful WHERE state IN (6, 7) AND {_OF_TYPE} AND state = :lane_state"
            kinds = [RowId(blob=False, raw=name.encode()).parameters("lane_type") for name in sorted(self._where.types)]
            lanes = [self._lane(source, *met, "types", **kind, lane_state=state) for kind in kinds for state in states]
        else:
            source = "archive INDEXED BY archive_finished WHERE state = :lane_state"
            lanes = [self._lane(source, *met, lane_state=state) for state in states]
        begin, end = (
            None if time is None else Place(is_odd=False, number=time, odd=NO_VALUE, id=NO_VALUE)
            for time in (self._parameters["finished_before"], self._parameters["finished_after"])
        )
        return [replace(lane, begin=begin, end=end) for lane in lanes]
