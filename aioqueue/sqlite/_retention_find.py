"""Finding chains that are old enough: along one index for each way in which they may be, merged by time. Runs in a snapshot."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import RowId, any_id, id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._listing import IdPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["END", "find_old", "is_old", "number"]


def number(column: str) -> str:
    """Write a column as a number that JSON can have, whatever stands there."""
    clamped = f"CAST(max(-9e15, min({column}, 9e15)) AS INTEGER)"
    return f"iif({column} IS NULL, NULL, iif(typeof({column}) IN ('integer', 'real'), {clamped}, 'odd'))"


END = ", ".join(number(f"archive.{column}") for column in ("state", "finished_at", "purge_at"))
"""What `is_old` looks at, for JSON."""

_ROW_ID = "typeof(id) = 'blob' AS is_blob, CAST(id AS BLOB) AS raw"

_FOUND = """
SELECT json_group_array(json_array(iif(typeof(at) = 'integer', at, quote(at)), is_blob, hex(raw), passed_by)) FROM ({found})
"""
"""One row for all, here and below: between two rows this thread and the event loop's hand over to each other, twice."""

_SAID = _FOUND.format(
    found=f"""
    SELECT purge_at AS at, {_ROW_ID}, 0 AS passed_by FROM archive INDEXED BY archive_purge
    WHERE purge_at IS NOT NULL AND purge_at <= :now AND (purge_at, id) > (:at, {any_id("after")})
    ORDER BY purge_at, id LIMIT :limit"""
)
"""Those that say themselves how long they're kept. They come before what the others' index has of them at the same time, which
doesn't count: the next page begins behind both."""

_BY_AGE = _FOUND.format(
    found=f"""
    SELECT finished_at + :age AS at, {_ROW_ID}, purge_at IS NOT NULL AS passed_by FROM archive INDEXED BY archive_finished
    WHERE state = :state AND finished_at <= :now - :age AND (finished_at, id) > (:at - :age, {any_id("after")})
    ORDER BY finished_at, id LIMIT :limit"""
)

_LAST_ONES = f"""
WITH {LAST_STEPS}
SELECT json_group_array(json_array(place, CAST(step.archived AS TEXT), CAST(chain AS TEXT), {END})) FROM (
    SELECT * FROM step WHERE live IS NULL AND typeof(chain) = 'text' ORDER BY place
) AS step CROSS JOIN archive ON archive.id = step.archived
"""
"""Of some steps' chains, which have no live step, the last ones."""

_BEFORE_ALL = -(2**62)


def find_old(connection: Statements, ages: Mapping[StoredState, float], limit: int, cursor: str | None) -> IdPage:
    """One page of chains, by the time from which they may be removed, as `aioqueue.abc.SupportsRetention.find_old` promises."""
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    at, after = (_BEFORE_ALL, RowId(blob=False, raw=b"")) if cursor is None else _read(cursor)
    asked: dict[str, Any] = {"now": now, "at": at, "limit": limit, **after.parameters("after")}
    lanes = [_all_of(connection, _SAID, asked)]
    for state, age in ages.items():
        lanes.append(_all_of(connection, _BY_AGE, {**asked, "state": int(state), "age": round(age * 1e6)}))
    in_order = heapq.merge(*([[float(at) if isinstance(at, str) else at, *row] for at, *row in lane] for lane in lanes))
    looked = list(itertools.islice(in_order, limit))
    following = _write(looked[-1][0], _row_id(looked[-1])) if len(looked) == limit else None
    ids = [_row_id(row).text for row in looked if not row[3] and not row[1]]
    rows = _all_of(connection, _LAST_ONES, {"ids": dump(ids)}) if ids else []
    old = [
        chain
        for place, last, chain, *end in rows
        # Steps without an end behind them are removed portion by portion, whichever of them is come across.
        if (last == ids[place] or end[0] == StoredState.CONTINUED) and str(id_of(chain)) == chain and is_old(end, ages, now)
    ]
    return IdPage(tuple(map(id_of, dict.fromkeys(old))), following)


def _all_of(connection: Statements, statement: str, parameters: dict[str, Any]) -> list[list[Any]]:
    """Read the rows of a statement that gives them as JSON."""
    rows: list[list[Any]] = orjson.loads(connection.execute(statement, parameters).fetchone()[0])
    return rows


def _row_id(row: Sequence[Any]) -> RowId:
    return RowId.read(row[1], bytes.fromhex(row[2]))


def is_old(end: Sequence[Any], ages: Mapping[StoredState, float], now: int) -> bool:
    """Whether a chain may be removed that has ended so: in this state, at this time, and what it says itself."""
    state, finished_at, purge_at = end
    if purge_at is not None:
        return isinstance(purge_at, (int, float)) and purge_at <= now
    try:
        age = ages.get(StoredState(state))
    except ValueError:
        return False
    return age is not None and isinstance(finished_at, (int, float)) and finished_at + age * 1e6 <= now


def _write(at: float, row_id: RowId) -> str:
    return f"{at!r} {'b' if row_id.blob else 't'}{row_id.raw.hex()}"


def _read(cursor: str) -> tuple[float, RowId]:
    at, _, after = cursor.partition(" ")
    row_id = RowId(blob=after[:1] == "b", raw=bytes.fromhex(after[1:]))
    return (int(at) if at.lstrip("-").isdecimal() else float(at)), row_id
