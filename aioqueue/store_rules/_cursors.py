"""Cursors of listings: text that says after which job the next page begins, the same for every store.

Of the newest first, it's a UUID's 32 hexadecimal digits. Of any other order it begins with that order's name, and where jobs
are listed by a time, that stands before the id. An id that isn't a UUID begins with `2.`, and so does a time that isn't a
number. Readers also know `1.` and a UUID, as SQLite's listings wrote it once: somebody may have kept one. The steps of a chain
are listed by their positions: `3.` and a number.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from uuid import UUID

from aioqueue.vocabulary._listing import ListOrder

__all__ = [
    "BY_TIME",
    "OddValue",
    "read_any_cursor",
    "read_cursor",
    "read_position_cursor",
    "write_cursor",
    "write_position_cursor",
]

BY_TIME = frozenset({ListOrder.DUE, ListOrder.FINISHED})
"""The orders whose cursors have a time."""

_UUID_CHARACTERS = frozenset({32, 36})
_POSITION = re.compile(r"3\.([0-9]{1,9})", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_BITS_OF_A_COLUMN = 63


@dataclass(frozen=True, slots=True)
class OddValue:
    """A stored id that isn't a UUID, or a time that isn't a number: SQLite's columns take any value, and people write SQL.

    Attributes:
        blob: Whether it's a blob, and not text.
        raw: Its bytes.
    """

    blob: bool
    raw: bytes


def write_cursor(order: ListOrder, last: UUID | OddValue, at: float | OddValue | None = None) -> str:
    """Say that a page ended here.

    Arguments:
        order: Of the listing.
        last: The id of the job.
        at: Of an order by time: the job's, in microseconds since 1970; an integer stays one, and may also be infinite.
    """
    parts = [] if order is ListOrder.NEWEST else [order.value]
    if at is not None:
        parts.append(_written(at) if isinstance(at, OddValue) else repr(at))
    return ":".join((*parts, last.hex if isinstance(last, UUID) else _written(last)))


def _written(value: OddValue) -> str:
    return f"2.{'b' if value.blob else 't'}{value.raw.hex()}"


def read_any_cursor(order: ListOrder, cursor: str) -> tuple[UUID | OddValue, float | OddValue | None]:
    """Read what `write_cursor` wrote: the id, and the time of an order that has one.

    Raises:
        ValueError: It isn't a cursor, or is one of another order.
    """
    *before, last = str(cursor).split(":")
    name = before.pop(0) if before else ListOrder.NEWEST.value
    try:
        if name == order and len(before) == (order in BY_TIME):
            return _read_id(last), _read_time(before[0]) if before else None
    except ValueError:
        pass
    raise ValueError(f"not a cursor of a listing in the order {order.value!r}: {str(cursor)[:60]!r}")


def _read_id(text: str) -> UUID | OddValue:
    odd = _read_odd(text)
    if odd is not None:
        return odd
    version, dot, digits = text.rpartition(".")
    # Python's takes braces and more.
    if (dot and version != "1") or len(digits) not in _UUID_CHARACTERS:
        raise ValueError("not an id")
    return UUID(hex=digits)


def _read_odd(text: str) -> OddValue | None:
    if text[:3] in {"2.b", "2.t"}:
        return OddValue(text[2] == "b", bytes.fromhex(text[3:]))
    return None


def _read_time(text: str) -> float | OddValue:
    odd = _read_odd(text)
    if odd is not None:
        return odd
    at = int(text) if _INTEGER.fullmatch(text) else float(text)
    if math.isnan(at) or (isinstance(at, int) and at.bit_length() > _BITS_OF_A_COLUMN):
        raise ValueError("not a time")
    return at


def read_cursor(order: ListOrder, cursor: str) -> tuple[UUID, float | None]:
    """Read a cursor, in a store that has no ids but UUIDs, and no times but numbers.

    Raises:
        ValueError: It isn't a cursor of such a store, or is one of another order.
    """
    last, at = read_any_cursor(order, cursor)
    if isinstance(last, UUID) and not isinstance(at, OddValue):
        return last, at
    raise ValueError(f"not a cursor of this store's listings: {cursor[:60]!r}")


def write_position_cursor(last: int) -> str:
    """Say that a page of a chain ended with the step at this position."""
    return f"3.{last}"


def read_position_cursor(cursor: str) -> int:
    """Read what `write_position_cursor` wrote.

    Raises:
        ValueError: It isn't a cursor of a chain's steps.
    """
    found = _POSITION.fullmatch(str(cursor))
    if found is None:
        raise ValueError(f"not a cursor of a chain's steps: {str(cursor)[:60]!r}")
    return int(found[1])
