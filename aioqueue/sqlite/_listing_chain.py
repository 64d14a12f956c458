"""Looking at chains: where each has got to, and its steps in pages. The functions run in a reader's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._progress_read import LIFE_OF_ARCHIVED, LIFE_OF_LIVE, with_life
from aioqueue.sqlite._rows import SELECT_ARCHIVED, SELECT_LIVE, dump, job_snapshot
from aioqueue.sqlite._rows_chain import LAST_STEPS, OF_CHAIN, chain_of
from aioqueue.sqlite._rows_ids import RowId
from aioqueue.sqlite._rows_places import AFTER_ALL, BEFORE_ALL, NO_VALUE, Place, any_place, place_columns
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._cursors import read_position_cursor, write_position_cursor
from aioqueue.vocabulary._listing import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job

__all__ = ["fetch_ends", "list_chain"]

_ENDS = f"""
WITH {LAST_STEPS}
{SELECT_ARCHIVED}, {LIFE_OF_ARCHIVED}, {NOW}, place
FROM step CROSS JOIN archive ON archive.id = step.archived WHERE live IS NULL
UNION ALL {SELECT_LIVE}, {LIFE_OF_LIVE}, {NOW}, place FROM step CROSS JOIN job ON job.id = step.live
"""

_AFTER = f"(position, id) > {any_place('after')} ORDER BY position, id LIMIT :limit"
_PLACE = place_columns("position")
_LATER, _FIRST = OF_CHAIN

_PAGE = f"""
SELECT * FROM ({SELECT_ARCHIVED}, {_PLACE} FROM archive INDEXED BY archive_chain WHERE {_LATER} AND {_AFTER})
UNION ALL SELECT * FROM ({SELECT_ARCHIVED}, {_PLACE} FROM archive WHERE {_FIRST} AND {_AFTER})
UNION ALL SELECT * FROM ({SELECT_LIVE}, {_PLACE} FROM job INDEXED BY job_chain WHERE {_LATER} AND {_AFTER})
UNION ALL SELECT * FROM ({SELECT_LIVE}, {_PLACE} FROM job WHERE {_FIRST} AND {_AFTER})
"""

_LARGEST_IN_A_CURSOR = 10**9 - 1
_ODD = "4."
"""Begins a cursor after a step whose place isn't a number of its own: somebody wrote it with SQL."""


def fetch_ends(connection: Statements, ids: Sequence[UUID]) -> list[Job | None]:
    """Where the chains of these steps have got to, as `aioqueue.abc.Store.fetch_ends` says."""
    rows = connection.execute(_ENDS, {"ids": dump([str(each) for each in ids])}).fetchall()
    found = {row[-1]: with_life(job_snapshot(row, row[-2]), *row[-4:-2]) for row in rows}
    return [found.get(place) for place in range(len(ids))]


_END_OF_A_POSITION = AFTER_ALL.id


def _parse(cursor: str) -> Place:
    """Read a cursor.

    Raises:
        ValueError: It isn't one of ours.
    """
    if not cursor.startswith(_ODD):
        return Place(is_odd=False, number=read_position_cursor(cursor), odd=NO_VALUE, id=_END_OF_A_POSITION)
    try:
        kind, number, odd, row_id = cursor.removeprefix(_ODD).split(" ")
        position = int(number) if number.lstrip("-").isdecimal() else float(number)
        if isinstance(position, int) and position.bit_length() > 63:
            raise ValueError("more than the column holds")
        return Place(is_odd=kind == "odd", number=position, odd=_parsed(odd), id=_parsed(row_id))
    except (ValueError, IndexError):
        raise ValueError(f"not a cursor of a chain's steps: {cursor[:60]!r}") from None


def _cursor(last: Place, following: Place) -> str:
    """The cursor of a page that ends here, and goes on there."""
    alone = following.is_odd or following.number > last.number
    if alone and not last.is_odd and isinstance(last.number, int) and 0 <= last.number <= _LARGEST_IN_A_CURSOR:
        return write_position_cursor(last.number)
    return f"{_ODD}{'odd' if last.is_odd else 'number'} {last.number!r} {_written(last.odd)} {_written(last.id)}"


def _written(value: RowId) -> str:
    return f"{'b' if value.blob else 't'}{value.raw.hex()}"


def _parsed(text: str) -> RowId:
    return RowId(blob=text[0] == "b", raw=bytes.fromhex(text[1:]))


def list_chain(connection: Statements, step: UUID, limit: int, cursor: str | None) -> Page:
    """One page of a chain's steps, as `aioqueue.abc.Store.list_chain` says. Any step's id is taken for its chain.

    Raises:
        ValueError: The cursor isn't one of ours, or the limit isn't positive.
    """
    if limit < 1:
        raise ValueError(f"limit must be positive, not {limit!r}")
    after = BEFORE_ALL if cursor is None else _parse(cursor)
    asked = {**chain_of(connection, step).parameters("chain"), **after.parameters("after"), "limit": limit + 1}
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    rows = [(Place.read(*row[-6:]), row) for row in connection.execute(_PAGE, asked).fetchall()]
    rows.sort(key=lambda each: each[0])
    page = tuple(job_snapshot(row, now) for _, row in rows[:limit])
    return Page(page, _cursor(rows[limit - 1][0], rows[limit][0]) if len(rows) > limit else None)
