"""Where a row stands in an order by a number and an id: also one in which somebody wrote something else with SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id

__all__ = ["AFTER_ALL", "BEFORE_ALL", "NO_VALUE", "Place", "any_place", "place_columns"]

NO_VALUE = RowId(blob=False, raw=b"")


def place_columns(column: str) -> str:
    """The columns that `Place.read` reads, for an order by this column."""
    return f"typeof({column}) NOT IN ('integer', 'real'), {column}, typeof({column}) = 'blob', CAST({column} AS BLOB), {ANY_ID}"


def any_place(name: str) -> str:
    """Write a place in SQL, to be compared with `(column, id)`, from what `Place.parameters` gives under the same name."""
    return f"(iif(:{name}_number IS NOT NULL, :{name}_number, {any_id(name + '_odd')}), {any_id(name)})"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in SQLite's order: numbers, then text, then blobs; and then the id.

    Attributes:
        is_odd: Whether the value isn't a number.
        number: The value, if it is one.
        odd: What it is otherwise.
        id: The id.
    """

    is_odd: bool
    number: float
    odd: RowId
    id: RowId

    @classmethod
    def read(cls, is_odd: Any, value: Any, blob: Any, raw: bytes, id_blob: Any, id_raw: bytes) -> Place:
        """Read the columns of `place_columns`."""
        row_id = RowId.read(id_blob, id_raw)
        if is_odd:
            return cls(is_odd=True, number=0, odd=RowId.read(blob, raw), id=row_id)
        return cls(is_odd=False, number=value, odd=NO_VALUE, id=row_id)

    def parameters(self, name: str) -> dict[str, Any]:
        """Give what a statement with `any_place(name)` wants."""
        number = None if self.is_odd else self.number
        return {f"{name}_number": number, **self.odd.parameters(f"{name}_odd"), **self.id.parameters(name)}


_GREATEST = RowId(blob=True, raw=b"\xff" * 64)
BEFORE_ALL = Place(is_odd=False, number=float("-inf"), odd=NO_VALUE, id=NO_VALUE)
AFTER_ALL = Place(is_odd=True, number=0, odd=_GREATEST, id=_GREATEST)
