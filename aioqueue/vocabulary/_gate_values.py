"""The value that tells the gates of one name apart, read from a job as it's stored. No I/O."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from aioqueue.vocabulary._gates import By, GateRules

__all__ = ["sequence_of", "value_of"]

_LONGEST_VALUE_CHARACTERS = 200
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def value_of(by: By | None, payload: bytes, metadata: bytes) -> str:
    """`=` and a value as JSON, by which `1`, `"1"` and `null` differ; nothing where it's absent, or can't be read.

    A value of more than 200 characters is hashed: `=#` and the SHA-256 of its JSON.

    Arguments:
        by: Where it is; None for nowhere.
        payload, metadata: As stored.
    """
    if by is None:
        return ""
    try:
        raw = _FIELDS.decode(metadata if by.metadata else payload).get(by.name)
        if raw is None:
            return ""
        text = _encode(msgspec.json.decode(raw))
        text.encode()
    except (msgspec.DecodeError, ValueError):
        return ""
    if len(text) > _LONGEST_VALUE_CHARACTERS:
        text = f"#{hashlib.sha256(text.encode()).hexdigest()}"
    return f"={text}"


def sequence_of(rules: GateRules, payload: bytes, metadata: bytes) -> str | None:
    """The name of the sequence in which its type puts a job; None where that's left to calls."""
    return None if rules.sequence_by is None else rules.type + value_of(rules.sequence_by, payload, metadata)
