"""Cursors of listings: text that says after which job the next page begins, the same for every store.

A UUID's 32 hexadecimal digits; `2.` and more for an id that isn't a UUID. Readers also know `1.` and a UUID, as SQLite's
listings wrote it once: somebody may have kept one. The steps of a chain are listed by their positions: `3.` and a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

__all__ = ["OddId", "read_any_cursor", "read_cursor", "read_position_cursor", "write_cursor", "write_position_cursor"]

_UUID_CHARACTERS = frozenset({32, 36})
_POSITION = re.compile(r"3\.([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class OddId:
    """A stored id that isn't a UUID: SQLite's columns take any value that somebody writes with SQL.

    Attributes:
        blob: Whether it's a blob, and not text.
        raw: Its bytes.
    """

    blob: bool
    raw: bytes


def write_cursor(last: UUID | OddId) -> str:
    """Say that a page ended with this id."""
    if isinstance(last, UUID):
        return last.hex
    return f"2.{'b' if last.blob else 't'}{last.raw.hex()}"


def read_any_cursor(cursor: str) -> UUID | OddId:
    """Read what `write_cursor` wrote.

    Raises:
        ValueError: It isn't a cursor.
    """
    try:
        version, dot, text = cursor.rpartition(".")
        if version == "2" and text[:1] in {"b", "t"}:
            return OddId(text[0] == "b", bytes.fromhex(text[1:]))
        if version == "1" or not dot:
            return _uuid(text)
    except (ValueError, AttributeError):
        pass
    raise ValueError(f"not a cursor of a listing: {str(cursor)[:60]!r}")


def _uuid(text: str) -> UUID:
    # Python's takes braces and more.
    if len(text) not in _UUID_CHARACTERS:
        raise ValueError("not a UUID")
    return UUID(hex=text)


def read_cursor(cursor: str) -> UUID:
    """Read a cursor, in a store that has no ids but UUIDs.

    Raises:
        ValueError: It isn't a cursor of such a store.
    """
    last = read_any_cursor(cursor)
    if isinstance(last, UUID):
        return last
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
