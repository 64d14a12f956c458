"""Pauses in SQL: whether a type or a key is paused at this moment, and what parked jobs are held by."""

from __future__ import annotations

from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

__all__ = [
    "ANY_PAUSE",
    "BEFORE_GATES",
    "BEHIND_GATES",
    "GATE_OF",
    "LASTS",
    "PAUSED_KEY",
    "key_is_paused",
    "type_is_paused",
]

ANY_PAUSE = "EXISTS (SELECT 1 FROM pause)"
"""Also one that is over: most files have none at all."""

LASTS = f"(pause.until IS NULL OR pause.until > {NOW})"

GATE_OF = f"'{HELD_BY_PAUSE}' || "
"""Before a key: what its jobs are held by."""

PAUSED_KEY = f"substr({{0}}, {len(HELD_BY_PAUSE) + 1})"
"""The key since whose pause a job is parked, from what it's held by."""

_STEM, _LAST = HELD_BY_PAUSE[:-1], ord(HELD_BY_PAUSE[-1])
BEFORE_GATES = f"{_STEM}{chr(_LAST - 1)}\U0010ffff"
BEHIND_GATES = f"{_STEM}{chr(_LAST + 1)}"
"""Between them is what those jobs are held by, in SQLite's order."""


def type_is_paused(name: str) -> str:
    """Whether no job of a type may be claimed; the argument is SQL."""
    return f"""(EXISTS (SELECT 1 FROM pause WHERE pause.target = 'all' AND {LASTS})
    OR EXISTS (SELECT 1 FROM pause WHERE pause.target = 'type' AND pause.value = {name} AND {LASTS}))"""


def key_is_paused(key: str) -> str:
    """Whether no job with a key may be claimed; the argument is SQL."""
    return f"EXISTS (SELECT 1 FROM pause WHERE pause.target = 'key' AND pause.value = {key} AND {LASTS})"
