"""Ids as the tables hold them: text that is a UUID, unless somebody wrote something else with SQL."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

__all__ = ["ANY_ID", "RowId", "any_id", "id_of", "uuid_text"]

ANY_ID = "typeof(id) = 'blob', CAST(id AS BLOB)"
"""The columns that `RowId.read` reads. They hold what neither text nor JSON could."""


_BYTES_OF_UTF16 = 72
"""Of a UUID in a file whose text is UTF-16."""


def any_id(name: str) -> str:
    """Write an id of any kind in SQL, from the parameters that `RowId.parameters` gives under the same name."""
    # SQLite takes a parameter's bytes for UTF-8, and those of a function's value for text as the file has it: maybe UTF-16.
    return f"iif(:{name}_blob, :{name}, coalesce(CAST(substr(:{name}, 1) AS TEXT), ''))"


@dataclass(frozen=True, slots=True, order=True)
class RowId:
    """A stored id, whatever it is; ordered as SQLite orders it.

    Attributes:
        blob: Whether it's a blob, and not text.
        raw: Its bytes.
    """

    blob: bool
    raw: bytes

    @classmethod
    def read(cls, blob: Any, raw: bytes) -> RowId:
        """Read the columns of `ANY_ID`."""
        return cls(bool(blob), raw)

    def parameters(self, name: str) -> dict[str, Any]:
        """Give what a statement with `any_id(name)` wants."""
        return {f"{name}_blob": self.blob, name: self.raw}

    @property
    def shown(self) -> UUID:
        """The id under which it's listed, and archived."""
        return id_of(self.raw if self.blob else self.text)

    @property
    def text(self) -> str:
        """What it is as text, of one that isn't a blob."""
        if len(self.raw) == _BYTES_OF_UTF16:
            with suppress(ValueError):
                return str(UUID(self.raw.replace(b"\0", b"").decode()))
        return self.raw.decode("utf-8", "replace")


def uuid_text(raw: bytes) -> str:
    """Write a UUID's 16 bytes as its text; making a UUID of them first would take five times as long."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_of(value: Any) -> UUID:
    """Read a stored id; one that isn't a UUID gets one that stays the same and that nothing else has."""
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
        return UUID(bytes=hashlib.blake2b(raw, digest_size=16).digest())
