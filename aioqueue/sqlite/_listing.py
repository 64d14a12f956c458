"""Looking at jobs: by id, and in pages of bounded cost, newest id first. The functions run in a reader's thread."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.sqlite._rows import SELECT_ARCHIVED, SELECT_LIVE, dump, job_snapshot
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._stats import ARCHIVED_TYPES
from aioqueue.store_rules._cursors import OddValue, read_any_cursor, write_cursor
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._listing import IdPage, JobFilter, ListOrder, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job

__all__ = ["fetch", "list_ids", "list_jobs"]

_WALK_ROWS = 5000
"""How many rows of the live table one page looks at, at most, when a filter leaves rows out."""

_FIRST = RowId(blob=False, raw=b"")
_LAST_TEXT = chr(sys.maxunicode) * 16
_LAST = RowId(blob=True, raw=b"\xff" * 64)
_BEFORE = f"id < {any_id('before')}"
_FROM_FLOOR = f"id >= {any_id('floor')}"

_LIVE_STATES = {
    JobState.BLOCKED: "state = 0",
    JobState.SCHEDULED: f"(state = 1 AND run_at > {NOW})",
    JobState.READY: f"(state = 1 AND run_at <= {NOW})",
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

_ARCHIVE_LANES = """
SELECT head.value AS id FROM json_each(:types) AS lane, json_each(:states) AS state, json_each((
    SELECT json_group_array(id) FROM (
        SELECT id FROM archive INDEXED BY archive_type
        WHERE type = lane.value AND state = state.value AND id < :before ORDER BY id DESC LIMIT :look))) AS head
"""
"""Among ids that are text: others can't be put into JSON."""

_FETCH = f"""
{SELECT_ARCHIVED}, {NOW} FROM archive WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL {SELECT_LIVE}, {NOW} FROM job WHERE id IN (SELECT value FROM json_each(:ids))
"""
"""Live ones last: they count where somebody has copied a job back from the archive."""


def fetch(connection: Statements, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots in the order of the ids, as `aioqueue.abc.Store.fetch` promises."""
    rows = connection.execute(_FETCH, {"ids": dump([str(each) for each in ids])}).fetchall()
    found = {row[0]: job_snapshot(row, row[-1]) for row in rows}
    return [found.get(str(each)) for each in ids]


def list_jobs(connection: Statements, where: JobFilter, limit: int, cursor: str | None, order: ListOrder) -> Page:
    """One page, newest id first.

    A page may come out short, or empty, and have a cursor all the same: where no index fits the filter it looks at
    a bounded number of rows and then says where to go on.

    Raises:
        ValueError: The cursor isn't one of ours, or the limit isn't positive.
    """
    if limit < 1:
        raise ValueError(f"limit must be positive, not {limit!r}")
    parameters: dict[str, Any] = {
        **(_LAST if cursor is None else _read_cursor(cursor)).parameters("before"),
        **_FIRST.parameters("floor"),
        "limit": limit + 1,
        "look": limit + 1,
        "walk": _WALK_ROWS - 1,
        "types": dump(sorted(where.types)),
        "key": where.key,
        "tag": where.tag,
    }
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    rows: list[Any] = []
    floors: list[RowId] = []
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
    following: RowId | None = floor if floor != _FIRST else None
    if len(rows) > limit:
        following = _place(page[-1])
    return Page(tuple(job_snapshot(row, now) for row in page), None if following is None else _cursor(following))


def list_ids(connection: Statements, where: JobFilter, limit: int, cursor: str | None) -> IdPage:
    """One page of ids, as `aioqueue.abc.Store.list_ids` promises."""
    page = list_jobs(connection, where, limit, cursor, ListOrder.NEWEST)
    return IdPage(tuple(job.id for job in page.jobs), page.cursor)


def _place(row: Sequence[Any]) -> RowId:
    return RowId.read(*row[-2:])


def _cursor(place: RowId) -> str:
    try:
        text = place.raw.decode()
        job_id = UUID(text)
        if not place.blob and str(job_id) == text:
            return write_cursor(ListOrder.NEWEST, job_id)
    except ValueError:
        pass
    return write_cursor(ListOrder.NEWEST, OddValue(place.blob, place.raw))


def _read_cursor(cursor: str) -> RowId:
    last = read_any_cursor(ListOrder.NEWEST, cursor)[0]
    return RowId(last.blob, last.raw) if isinstance(last, OddValue) else RowId(blob=False, raw=str(last).encode())


def _floor(connection: Statements, walk: str, parameters: dict[str, Any], floors: list[RowId]) -> dict[str, Any]:
    # The id at which a bounded walk ends: the table's end at most.
    statement = f"SELECT {ANY_ID} FROM {walk} AND {_BEFORE} ORDER BY id DESC LIMIT 1 OFFSET :walk"
    found = connection.execute(statement, parameters).fetchone()
    if found is None:
        return parameters
    floors.append(_place(found))
    return parameters | _place(found).parameters("floor")


def _filters(where: JobFilter, table: str) -> list[str]:
    # What is asked of each row, whatever its state.
    filters: list[str] = []
    if where.key is not None:
        filters.append("key = :key")
    if where.types:
        filters.append("type IN (SELECT value FROM json_each(:types))")
    if where.tag is not None:
        filters.append(_TAGGED.format(table=table))
    return filters


def _live_page(
    connection: Statements, where: JobFilter, states: list[str], parameters: dict[str, Any], floors: list[RowId]
) -> list[Any]:
    conditions = _filters(where, "job")
    if states:
        conditions.append(f"({' OR '.join(states)})")
    if states == ["state = 2"]:
        # As many as there are slots: few.
        return _page(connection, SELECT_LIVE, "job INDEXED BY job_running", conditions, parameters)
    table = "job" if where.key is None else "job INDEXED BY job_key"
    if conditions:
        parameters = _floor(connection, _walk(where, table), parameters, floors)
    return _page(connection, SELECT_LIVE, table, conditions, parameters)


def _archived_page(
    connection: Statements, where: JobFilter, states: list[int], parameters: dict[str, Any], floors: list[RowId]
) -> list[Any]:
    conditions = _filters(where, "archive")
    if states:
        conditions.append(f"state IN ({', '.join(map(str, states))})")
    if where.key is None and where.tag is None and conditions:
        types = parameters["types"] if where.types else connection.execute(ARCHIVED_TYPES).fetchone()[0]
        before = _LAST_TEXT if parameters["before_blob"] else parameters["before"].decode("utf-8", "replace")
        lanes = {**parameters, "before": before, "types": types, "states": dump(states or [4, 5, 6, 7])}
        heads = f"SELECT id FROM ({_ARCHIVE_LANES}) ORDER BY id DESC LIMIT :limit"
        page = f"{SELECT_ARCHIVED}, {ANY_ID} FROM archive WHERE id IN ({heads}) ORDER BY id DESC"
        return connection.execute(page, lanes).fetchall()
    table = "archive" if where.key is None else "archive INDEXED BY archive_key"
    if conditions:
        parameters = _floor(connection, _walk(where, table), parameters, floors)
    return _page(connection, SELECT_ARCHIVED, table, conditions, parameters)


def _walk(where: JobFilter, table: str) -> str:
    # The rows that are looked at one after the other, downwards.
    return f"{table} WHERE {'true' if where.key is None else 'key = :key'}"


def _page(connection: Statements, select: str, table: str, conditions: list[str], parameters: dict[str, Any]) -> list[Any]:
    condition = "".join(f" AND {each}" for each in conditions)
    return connection.execute(
        f"{select}, {ANY_ID} FROM {table} WHERE {_BEFORE} AND {_FROM_FLOOR}{condition} ORDER BY id DESC LIMIT :limit",
        parameters,
    ).fetchall()
