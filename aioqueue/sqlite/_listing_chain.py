"""Looking at chains: where each has got to, and its steps in pages. The functions run in a reader's thread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import SELECT_ARCHIVED, SELECT_LIVE, dump, job_snapshot
from aioqueue.sqlite._rows_chain import LAST_STEPS, OF_CHAIN, chain_of
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
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
{SELECT_ARCHIVED}, {NOW}, place FROM step CROSS JOIN archive ON archive.id = step.archived WHERE live IS NULL
UNION ALL {SELECT_LIVE}, {NOW}, place FROM step CROSS JOIN job ON job.id = step.live
"""

_AFTER = f"""
(position, id) > (iif(:number IS NOT NULL, :number, {any_id("at")}), {any_id("after")})
ORDER BY position, id LIMIT :limit"""
_PLACE = f"typeof(position) NOT IN ('integer', 'real'), position, typeof(position) = 'blob', CAST(position AS BLOB), {ANY_ID}"
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
    found = {row[-1]: job_snapshot(row, row[-2]) for row in rows}
    return [found.get(place) for place in range(len(ids))]


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where a step stands in its chain, in SQLite's order: numbers, then text, then blobs; then its id.

    Attributes:
        is_odd: Whether its position isn't a number.
        number: Its position, if it is one.
        odd: What it is otherwise.
        id: Its id.
    """

    is_odd: bool
    number: float
    odd: RowId
    id: RowId

    @classmethod
    def read(cls, is_odd: Any, position: Any, blob: Any, raw: bytes, id_blob: Any, id_raw: bytes) -> _Place:
        """Read the columns of `_PLACE`."""
        row_id = RowId.read(id_blob, id_raw)
        if is_odd:
            return cls(is_odd=True, number=0, odd=RowId.read(blob, raw), id=row_id)
        return cls(is_odd=False, number=position, odd=_NOTHING, id=row_id)

    @classmethod
    def parse(cls, cursor: str) -> _Place:
        """Read a cursor.

        Raises:
            ValueError: It isn't one of ours.
        """
        if not cursor.startswith(_ODD):
            return cls(is_odd=False, number=read_position_cursor(cursor), odd=_NOTHING, id=_AFTER_ALL)
        try:
            kind, number, odd, row_id = cursor.removeprefix(_ODD).split(" ")
            position = int(number) if number.lstrip("-").isdecimal() else float(number)
            if isinstance(position, int) and position.bit_length() > 63:
                raise ValueError("more than the column holds")
            return cls(is_odd=kind == "odd", number=position, odd=_parsed(odd), id=_parsed(row_id))
        except (ValueError, IndexError):
            raise ValueError(f"not a cursor of a chain's steps: {cursor[:60]!r}") from None

    def cursor(self, following: _Place) -> str:
        """The cursor of a page that ends here, and goes on there."""
        alone = following.is_odd or following.number > self.number
        if alone and not self.is_odd and isinstance(self.number, int) and 0 <= self.number <= _LARGEST_IN_A_CURSOR:
            return write_position_cursor(self.number)
        return f"{_ODD}{'odd' if self.is_odd else 'number'} {self.number!r} {_written(self.odd)} {_written(self.id)}"

    def parameters(self) -> dict[str, Any]:
        """What the page after it takes."""
        return {"number": None if self.is_odd else self.number, **self.odd.parameters("at"), **self.id.parameters("after")}


_NOTHING = RowId(blob=False, raw=b"")
_AFTER_ALL = RowId(blob=True, raw=b"\xff" * 64)
_BEFORE_ALL = _Place(is_odd=False, number=-math.inf, odd=_NOTHING, id=_NOTHING)


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
    after = _BEFORE_ALL if cursor is None else _Place.parse(cursor)
    asked = {**chain_of(connection, step).parameters("chain"), **after.parameters(), "limit": limit + 1}
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    rows = [(_Place.read(*row[-6:]), row) for row in connection.execute(_PAGE, asked).fetchall()]
    rows.sort(key=lambda each: each[0])
    page = tuple(job_snapshot(row, now) for _, row in rows[:limit])
    return Page(page, rows[limit - 1][0].cursor(rows[limit][0]) if len(rows) > limit else None)
