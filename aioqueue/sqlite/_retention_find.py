"""Finding chains that are old enough: along one index for each way in which they may be, merged by time. Runs in a snapshot."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id, id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._listing import IdPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["find_old", "is_old"]

_SAID = f"""
SELECT purge_at, {ANY_ID}, 0 FROM archive INDEXED BY archive_purge
WHERE purge_at IS NOT NULL AND purge_at <= :now AND (purge_at, id) > (:at, {any_id("after")})
ORDER BY purge_at, id LIMIT :limit
"""
"""Those that say themselves how long they're kept. They come before what the others' index has of them at the same time, which
doesn't count: the next page begins behind both."""

_BY_AGE = f"""
SELECT finished_at + :age, {ANY_ID}, purge_at IS NOT NULL FROM archive INDEXED BY archive_finished
WHERE state = :state AND finished_at <= :now - :age AND (finished_at, id) > (:at - :age, {any_id("after")})
ORDER BY finished_at, id LIMIT :limit
"""

_LAST_ONES = f"""
WITH {LAST_STEPS}
SELECT place, CAST(step.archived AS TEXT), CAST(chain AS TEXT), archive.state, archive.finished_at, archive.purge_at
FROM step CROSS JOIN archive ON archive.id = step.archived WHERE live IS NULL AND typeof(chain) = 'text' ORDER BY place
"""
"""Of some steps' chains, which have no live step, the last ones."""

_BEFORE_ALL = -(2**62)


def find_old(connection: Statements, ages: Mapping[StoredState, float], limit: int, cursor: str | None) -> IdPage:
    """One page of chains, by the time from which they may be removed, as `aioqueue.abc.SupportsRetention.find_old` promises."""
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    at, after = (_BEFORE_ALL, RowId(blob=False, raw=b"")) if cursor is None else _read(cursor)
    asked: dict[str, Any] = {"now": now, "at": at, "limit": limit, **after.parameters("after")}
    lanes = [connection.execute(_SAID, asked).fetchall()]
    for state, age in ages.items():
        lanes.append(connection.execute(_BY_AGE, {**asked, "state": int(state), "age": round(age * 1e6)}).fetchall())
    looked = list(heapq.merge(*lanes))[:limit]
    following = _write(looked[-1][0], RowId.read(*looked[-1][1:3])) if len(looked) == limit else None
    ids = [RowId.read(*row[1:3]).text for row in looked if not row[3] and not row[1]]
    rows = connection.execute(_LAST_ONES, {"ids": dump(ids)}).fetchall() if ids else []
    old = [
        chain
        for place, last, chain, *end in rows
        # Steps without an end behind them are removed portion by portion, whichever of them is come across.
        if (last == ids[place] or end[0] == StoredState.CONTINUED) and str(id_of(chain)) == chain and is_old(end, ages, now)
    ]
    return IdPage(tuple(map(id_of, dict.fromkeys(old))), following)


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
