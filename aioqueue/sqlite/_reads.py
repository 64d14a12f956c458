"""Looking, without the write lock. Each function runs in a reader's thread."""

from __future__ import annotations

import math
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aioqueue.abc import Due, JobFilter, Page, Stats, TypeStats
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._connections import classify, rollback
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._rows import dump, job_of_row, load
from aioqueue.vocabulary._job import JobState, StoredState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.vocabulary._job import Job

__all__ = ["fetch", "in_snapshot", "list_jobs", "next_due", "stats"]

T = TypeVar("T")

_WALK = 5000
"""How many rows of the live table one page looks at, at most, when a filter leaves rows out."""

_CAP = 10_000

Place = tuple[bool, bytes]
"""Where an id stands in SQLite's order, whatever it is: whether it's a blob, and its bytes."""

_FIRST: Place = (False, b"")
_LAST_TEXT = chr(sys.maxunicode) * 16
_LAST: Place = (True, b"\xff" * 64)
_PLACE = "typeof(id) = 'blob', CAST(id AS BLOB)"
_BEFORE = "id < iif(:before_blob, :before, CAST(:before AS TEXT))"
_FROM_FLOOR = "id >= iif(:floor_blob, :floor, CAST(:floor AS TEXT))"


def in_snapshot(connection: sqlite3.Connection, body: Callable[[sqlite3.Connection], T]) -> T:
    """Run the body in one snapshot of the file, which doesn't outlive it.

    Raises:
        StoreError: What the database said.
    """
    try:
        connection.execute("BEGIN")
        try:
            return body(connection)
        finally:
            rollback(connection)
    except sqlite3.Error as error:
        raise classify(error) from error


def fetch(connection: sqlite3.Connection, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots in the order of the ids, from one statement and so from one snapshot of the file."""
    rows = connection.execute(sql.FETCH, {"ids": dump([str(each) for each in ids])}).fetchall()
    found = {row[0]: job_of_row(row, row[-1]) for row in rows}
    return [found.get(str(each)) for each in ids]


def next_due(connection: sqlite3.Connection, types: Sequence[str], own: Collection[int]) -> Due:
    """When the first pending job is due, and when the first lease of somebody else runs out."""
    parameters = {"types": dump(list(types)), "own": dump(list(own)), **clock_parameters()}
    job, lease, orphans = connection.execute(sql.NEXT_DUE, parameters).fetchone()
    return Due(job=_seconds(job), lease=0.0 if orphans else _seconds(lease))


def _seconds(wait: float | None) -> float | None:
    return None if wait is None or wait == math.inf else max(0.0, wait / 1e6)


# -- listing ------------------------------------------------------------------------------------------------------

_LIVE_STATES = {
    JobState.BLOCKED: "state = 0",
    JobState.SCHEDULED: f"(state = 1 AND run_at > {sql.NOW})",
    JobState.READY: f"(state = 1 AND run_at <= {sql.NOW})",
    JobState.RUNNING: "state = 2",
}

_ARCHIVED_STATES = {
    JobState.COMPLETED: StoredState.COMPLETED,
    JobState.CONTINUED: StoredState.CONTINUED,
    JobState.FAILED: StoredState.FAILED,
    JobState.CANCELLED: StoredState.CANCELLED,
}

_TAGGED = """EXISTS (SELECT 1 FROM json_each(iif(json_valid({table}.tags), {table}.tags, '[]')) AS tag
             WHERE tag.value = :tag)"""

_ARCHIVE_TYPES = """
WITH RECURSIVE kind(type) AS (
    SELECT min(type) FROM archive
    UNION ALL SELECT (SELECT min(type) FROM archive WHERE type > kind.type) FROM kind WHERE kind.type IS NOT NULL)
SELECT json_group_array(type) FROM kind WHERE typeof(type) = 'text'
"""
"""From one type to the next in the index, not over the rows between."""

_ARCHIVE_LANES = """
SELECT head.value AS id FROM json_each(:types) AS lane, json_each(:states) AS state, json_each((
    SELECT json_group_array(id) FROM (
        SELECT id FROM archive INDEXED BY archive_type
        WHERE type = lane.value AND state = state.value AND id < :before ORDER BY id DESC LIMIT :look))) AS head
"""
"""Among ids that are text: others can't be put into JSON."""


def list_jobs(connection: sqlite3.Connection, where: JobFilter, limit: int, cursor: str | None) -> Page:
    """One page, newest id first.

    A page may come out short, or empty, and have a cursor all the same: where no index fits the filter it looks at
    a bounded number of rows and then says where to go on.

    Raises:
        ValueError: The cursor isn't one of ours, or the limit isn't positive.
    """
    if limit < 1:
        raise ValueError(f"limit must be positive, not {limit!r}")
    parameters: dict[str, Any] = {
        **_parameters("before", _LAST if cursor is None else _read_cursor(cursor)),
        **_parameters("floor", _FIRST),
        "limit": limit + 1,
        "look": limit + 1,
        "walk": _WALK - 1,
        "types": dump(sorted(where.types)),
        "key": where.key,
        "tag": where.tag,
    }
    now = connection.execute(f"SELECT {sql.NOW}").fetchone()[0]
    rows: list[Any] = []
    floors: list[Place] = []
    live_states = [_LIVE_STATES[state] for state in sorted(where.states) if state in _LIVE_STATES]
    if live_states or not where.states:
        rows += _live_page(connection, where, live_states, parameters, floors)
    archived_states = [int(_ARCHIVED_STATES[state]) for state in sorted(where.states) if state in _ARCHIVED_STATES]
    if archived_states or not where.states:
        rows += _archived_page(connection, where, archived_states, parameters, floors)
    floor = max(floors, default=_FIRST)
    # What lies beyond a bound that one table has reached comes with the next page, of both tables.
    rows = sorted((row for row in rows if _place(row) >= floor), key=_place, reverse=True)
    page = rows[:limit]
    following: Place | None = floor if floor != _FIRST else None
    if len(rows) > limit:
        following = _place(page[-1])
    return Page(tuple(job_of_row(row, now) for row in page), None if following is None else _cursor(following))


def _place(row: Sequence[Any]) -> Place:
    return bool(row[-2]), row[-1]


def _parameters(name: str, place: Place) -> dict[str, Any]:
    return {f"{name}_blob": place[0], name: place[1]}


def _cursor(place: Place) -> str:
    try:
        text = place[1].decode()
        if not place[0] and str(UUID(text)) == text:
            return f"1.{text}"
    except ValueError:
        pass
    return f"2.{'b' if place[0] else 't'}{place[1].hex()}"  # an odd id


def _read_cursor(cursor: str) -> Place:
    version, _, text = cursor.partition(".")
    try:
        if version == "1" and len(text) <= 36:
            return False, str(UUID(text)).encode()
        if version == "2" and text[:1] in {"b", "t"}:
            return text[0] == "b", bytes.fromhex(text[1:])
    except ValueError:
        pass
    raise ValueError(f"not a cursor of a listing: {cursor[:60]!r}")


def _floor(connection: sqlite3.Connection, walk: str, parameters: dict[str, Any], floors: list[Place]) -> dict[str, Any]:
    # The id at which a bounded walk ends: the table's end at most.
    statement = f"SELECT {_PLACE} FROM {walk} AND {_BEFORE} ORDER BY id DESC LIMIT 1 OFFSET :walk"
    found = connection.execute(statement, parameters).fetchone()
    if found is None:
        return parameters
    floors.append(_place(found))
    return parameters | _parameters("floor", _place(found))


def _live_page(
    connection: sqlite3.Connection, where: JobFilter, states: list[str], parameters: dict[str, Any], floors: list[Place]
) -> list[Any]:
    conditions: list[str] = []
    table, walk = "job", "job WHERE true"
    if states:
        conditions.append(f"({' OR '.join(states)})")
        if states == ["state = 2"]:
            # As many as there are slots: few.
            table, walk = "job INDEXED BY job_running", ""
    if where.key is not None:
        conditions.append("key = :key")
        if walk:
            table = "job INDEXED BY job_key"
            walk = f"{table} WHERE key = :key"
    if where.types:
        conditions.append("type IN (SELECT value FROM json_each(:types))")
    if where.tag is not None:
        conditions.append(_TAGGED.format(table="job"))
    if conditions and walk:
        parameters = _floor(connection, walk, parameters, floors)
    condition = "".join(f" AND {each}" for each in conditions)
    return connection.execute(
        f"{sql.LIVE}, {_PLACE} FROM {table} WHERE {_BEFORE} AND {_FROM_FLOOR}{condition} ORDER BY id DESC LIMIT :limit",
        parameters,
    ).fetchall()


def _archived_page(
    connection: sqlite3.Connection, where: JobFilter, states: list[int], parameters: dict[str, Any], floors: list[Place]
) -> list[Any]:
    conditions: list[str] = []
    if states:
        conditions.append(f"state IN ({', '.join(map(str, states))})")
    if where.types:
        conditions.append("type IN (SELECT value FROM json_each(:types))")
    if where.tag is not None:
        conditions.append(_TAGGED.format(table="archive"))
    if where.key is None and where.tag is None and conditions:
        types = parameters["types"] if where.types else connection.execute(_ARCHIVE_TYPES).fetchone()[0]
        before = _LAST_TEXT if parameters["before_blob"] else parameters["before"].decode("utf-8", "replace")
        lanes = {**parameters, "before": before, "types": types, "states": dump(states or [4, 5, 6, 7])}
        heads = f"SELECT id FROM ({_ARCHIVE_LANES}) ORDER BY id DESC LIMIT :limit"
        page = f"{sql.ARCHIVED}, {_PLACE} FROM archive WHERE id IN ({heads}) ORDER BY id DESC"
        return connection.execute(page, lanes).fetchall()
    table, walk = "archive", "archive WHERE true"
    if where.key is not None:
        conditions.append("key = :key")
        table = "archive INDEXED BY archive_key"
        walk = f"{table} WHERE key = :key"
    if conditions:
        parameters = _floor(connection, walk, parameters, floors)
    condition = "".join(f" AND {each}" for each in conditions)
    return connection.execute(
        f"{sql.ARCHIVED}, {_PLACE} FROM {table} WHERE {_BEFORE} AND {_FROM_FLOOR}{condition} ORDER BY id DESC LIMIT :limit",
        parameters,
    ).fetchall()


# -- numbers ------------------------------------------------------------------------------------------------------

_PENDING = f"""
WITH RECURSIVE kind(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_ready WHERE state = 1)
    UNION ALL SELECT (SELECT min(type) FROM job INDEXED BY job_ready WHERE state = 1 AND type > kind.type)
    FROM kind WHERE kind.type IS NOT NULL)
SELECT type,
    (SELECT json_group_array((SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_ready
        WHERE state = 1 AND type = kind.type AND priority = p.value AND run_at <= {sql.NOW} LIMIT :cap)))
     FROM json_each('[1,2,3,4]') AS p),
    (SELECT json_group_array((SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_ready
        WHERE state = 1 AND type = kind.type AND priority = p.value AND run_at > {sql.NOW} LIMIT :cap)))
     FROM json_each('[1,2,3,4]') AS p),
    (SELECT {sql.NOW} - min((SELECT max(0, min(run_at)) FROM job INDEXED BY job_ready
        WHERE state = 1 AND type = kind.type AND priority = p.value))
     FROM json_each('[1,2,3,4]') AS p)
FROM kind WHERE type IS NOT NULL
"""

_BUSY = """
SELECT type, state, count(*) FROM (SELECT type, state FROM job INDEXED BY job_running WHERE state = 2) GROUP BY type, state
UNION ALL
SELECT type, state, count(*) FROM (SELECT type, state FROM job INDEXED BY job_held WHERE state = 0 LIMIT :cap)
GROUP BY type, state
"""

_FINISHED = """
SELECT lane.value, state.value, (SELECT count(*) FROM (
    SELECT 1 FROM archive INDEXED BY archive_type WHERE type = lane.value AND state = state.value LIMIT :cap))
FROM json_each(:types) AS lane, json_each('[4,5,6,7]') AS state
"""

_WORKERS = f"SELECT worker FROM lease WHERE {sql.LEASE_VALID} AND NOT extra ORDER BY worker, id"


def stats(connection: sqlite3.Connection) -> Stats:
    """Numbers by type and state, counted up to a bound."""
    cap = {"cap": _CAP + 1}
    counts: dict[str, dict[JobState, int]] = {}
    oldest: dict[str, float] = {}
    for job_type, ready, scheduled, due in connection.execute(_PENDING, cap).fetchall():
        of_type = counts.setdefault(_string(job_type), {})
        of_type[JobState.READY] = sum(load(ready))
        of_type[JobState.SCHEDULED] = sum(load(scheduled))
        if of_type[JobState.READY]:
            oldest[_string(job_type)] = max(0.0, due / 1e6)
    for job_type, state, number in connection.execute(_BUSY, cap).fetchall():
        counts.setdefault(_string(job_type), {})[StoredState(state).shown(due=True)] = number
    types = connection.execute(_ARCHIVE_TYPES).fetchone()[0]
    for job_type, state, number in connection.execute(_FINISHED, {**cap, "types": types}).fetchall():
        if number:
            counts.setdefault(_string(job_type), {})[StoredState(state).shown(due=True)] = number
    workers = connection.execute(_WORKERS, clock_parameters()).fetchall()
    return Stats(
        types={
            job_type: TypeStats(
                counts={state: min(number, _CAP) for state, number in of_type.items() if number},
                capped=frozenset(state for state, number in of_type.items() if number > _CAP),
                oldest_ready=oldest.get(job_type),
            )
            for job_type, of_type in sorted(counts.items())
        },
        workers=tuple(_string(row[0]) for row in workers),
    )


def _string(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
