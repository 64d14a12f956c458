"""Jobs' ids on the command line: whole, or as many of their first digits as tell one from all others; or from a pipe."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.cli._options import Problem, WrongUsage
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.client import Client

__all__ = ["PIPED", "find_ids", "read_given"]

PIPED = "-"
"""Stands for the ids on standard input, one a line."""

_FEWEST_DIGITS = 4
_DIGITS = 32
_MOST_NAMED = 10


def read_given(texts: Sequence[str]) -> list[str]:
    """Read what was given as ids: `-` stands for what is on standard input."""
    given: list[str] = []
    for text in texts:
        if text == PIPED:
            given += [line.strip() for line in sys.stdin if line.strip()]
        else:
            given.append(text)
    return given


async def find_ids(client: Client, texts: Iterable[str]) -> list[UUID]:
    """Read ids, each once, and find those of which only the first digits were given.

    Raises:
        WrongUsage: One is neither an id nor its beginning.
        Problem: No job's id begins so, or those of several do: they're named.
    """
    return list(dict.fromkeys([await _find(client, text) for text in texts]))


async def _find(client: Client, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        pass
    digits = text.strip().replace("-", "").lower()
    if not re.fullmatch(f"[0-9a-f]{{{_FEWEST_DIGITS},{_DIGITS - 1}}}", digits):
        raise WrongUsage(f"{text!r} is neither a UUID nor its first {_FEWEST_DIGITS} or more hexadecimal digits")
    found = await _that_begin_with(client, digits)
    if not found:
        raise Problem(
            f"there is no job whose id begins with {text} (a chain whose first step has been removed is found by its whole id)"
        )
    if len(found) > 1:
        more = ", and more" if len(found) > _MOST_NAMED else ""
        named = ", ".join(str(each) for each in found[:_MOST_NAMED])
        raise Problem(f"the ids of several jobs begin with {text}: {named}{more}")
    return found[0]


async def _that_begin_with(client: Client, digits: str) -> list[UUID]:
    """The first ids that begin with these digits: one more than is named, where there are more."""
    where = JobFilter(first_id=UUID(digits.ljust(_DIGITS, "0")), last_id=UUID(digits.ljust(_DIGITS, "f")))
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await client.store.list_ids(where, _MOST_NAMED + 1 - len(found), cursor)
        found += page.ids
        if (cursor := page.cursor) is None or len(found) > _MOST_NAMED:
            return found
