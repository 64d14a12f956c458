"""A filter as conditions on rows, for those parts of it to which no index leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.postgres._listing_parts import Parts, Way
    from aioqueue.vocabulary._listing import JobFilter

__all__ = [
    "ARCHIVED_STATES",
    "ERROR_TYPE",
    "LIVE_STATES",
    "OUTCOME",
    "NOW",
    "Conditions",
    "error_prefix",
    "ids_between",
    "outcome_prefix",
]

ARCHIVED_STATES = {JobState.COMPLETED: 4, JobState.CONTINUED: 5, JobState.FAILED: 6, JobState.CANCELLED: 7}
NOW = "statement_timestamp()"
LIVE_STATES = {
    JobState.BLOCKED: "(j.state = 0 AND j.open_blockers > 0)",
    JobState.HELD: "(j.state = 0 AND j.open_blockers <= 0)",
    JobState.SCHEDULED: f"(j.state = 1 AND j.run_at > {NOW})",
    JobState.READY: f"(j.state = 1 AND j.run_at <= {NOW})",
    JobState.RUNNING: "j.state = 2",
}

_INDEXED_CHARACTERS = 200
OUTCOME = f"left(j.outcome, {_INDEXED_CHARACTERS})"
_ERROR = "j.errors[array_upper(j.errors, 1)]::text"
_ERROR_TYPE = rf"""substring({_ERROR} FROM '"type"\s*:\s*"((?:[^"\\]|\\.)*)"')"""
ERROR_TYPE = f"left({_ERROR_TYPE}, {_INDEXED_CHARACTERS})"
"""As in the index. The text of JSON, and not its value: taking that raises where anything in it is "\\u0000"."""


class Conditions:
    """Makes conditions of a filter.

    Arguments:
        parts: Of the statement.
        way: The page's order.
        where: The filter.
    """

    def __init__(self, parts: Parts, way: Way, where: JobFilter) -> None:
        self._where = where
        add = parts.add
        common: dict[str, str] = {}
        if where.types:
            common["types"] = f"j.type = ANY({add(sorted(where.types), 'text[]')})"
        if where.key is not None:
            common["key"] = f"j.key = {add(where.key, 'text')}"
        if where.tag is not None:
            common["tag"] = f"{add(where.tag, 'text')} = ANY(j.tags)"
        if where.chain_id is not None:
            chain = add(where.chain_id, "uuid")
            common["chain"] = f"(j.chain_id = {chain} OR (j.id = {chain} AND j.chain_id IS NULL))"
        if where.error_type is not None:
            # What doesn't have it anywhere is seen to at once.
            written = add(_written(where.error_type), "text")
            common[_known_by("error", _written(where.error_type))] = (
                f"(cardinality(j.errors) > 0 AND strpos({_ERROR}, {written}) > 0 AND {_ERROR_TYPE} = {written})"
            )
        common["created"] = _within(parts, "j.created_at", where.created_after, where.created_before)
        if way.by_time:
            common["ids"] = ids_between(parts, where)
        self._live = {**common}
        self._archived = {**common}
        if live := [text for state, text in LIVE_STATES.items() if state in where.states]:
            self._live["states"] = f"({' OR '.join(live)})"
        if where.states:
            states = [ARCHIVED_STATES[state] for state in where.states if state in ARCHIVED_STATES]
            self._archived["states"] = f"j.state = ANY({add(sorted(states), 'smallint[]')})"
        if where.ends:
            self._archived["ends"] = "j.state <> 5"
        if where.outcome is not None:
            self._archived[_known_by("outcome", where.outcome)] = f"j.outcome = {add(where.outcome, 'text')}"
        self._archived["finished"] = _within(parts, "j.finished_at", where.finished_after, where.finished_before)

    def live(self, *without: str) -> list[str]:
        """What live rows must fulfil.

        Arguments:
            without: What they fulfil as they were found by it.
        """
        return _all_but(self._live, without)

    def archived(self, *without: str) -> list[str]:
        """The same of archived ones."""
        return _all_but(self._archived, without)


def _all_but(conditions: dict[str, str], without: Collection[str]) -> list[str]:
    return [text for name, text in conditions.items() if text and name not in without]


def _within(parts: Parts, column: str, after: object, before: object) -> str:
    conditions: list[str] = []
    if after is not None:
        conditions.append(f"{column} >= {parts.add(after, 'timestamptz')}")
    if before is not None:
        conditions.append(f"{column} < {parts.add(before, 'timestamptz')}")
    return " AND ".join(conditions)


def ids_between(parts: Parts, where: JobFilter) -> str:
    """That an id is in the range that is asked for; empty if there's none."""
    bounds = ((">=", where.first_id), ("<=", where.last_id))
    return " AND ".join(f"j.id {operator} {parts.add(bound, 'uuid')}" for operator, bound in bounds if bound is not None)


def _known_by(name: str, value: str) -> str:
    """What a condition is called: one about more than the index has isn't fulfilled by being found there."""
    return name if len(value) < _INDEXED_CHARACTERS else f"all of {name}"


def _written(error_type: str) -> str:
    """An error's type as JSON has it, without the quotes."""
    return orjson.dumps(error_type)[1:-1].decode()


def error_prefix(error_type: str) -> str:
    """What the index has of an error's type."""
    return _written(error_type)[:_INDEXED_CHARACTERS]


def outcome_prefix(outcome: str) -> str:
    """What the index has of a label for statistics."""
    return outcome[:_INDEXED_CHARACTERS]
