"""Jobs' ids on the command line: whole, or as many of their first digits as tell one from all others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.cli._options import Problem, WrongUsage
from aioqueue.store_rules._cursors import write_cursor
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioqueue.client import Client

__all__ = ["find_ids"]

_FEWEST_DIGITS = 4
_DIGITS = 32
_MOST_NAMED = 10


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
    # A listing goes down from a cursor: what begins so is one range of ids, just below the first that doesn't.
    first, after = UUID(digits.ljust(_DIGITS, "0")), int(digits.ljust(_DIGITS, "f"), 16) + 1
    cursor = None if after > UUID(int=2**128 - 1).int else write_cursor(ListOrder.NEWEST, UUID(int=after))
    page = await client.list_jobs(limit=_MOST_NAMED + 1, cursor=cursor)
    found = [job.id for job in page.jobs if job.id >= first]
    if not found:
        raise Problem(
            f"there is no job whose id begins with {text} (a chain whose first step has been removed is found by its whole id)"
        )
    if len(found) > 1:
        more = ", and more" if len(found) > _MOST_NAMED else ""
        named = ", ".join(str(each) for each in found[:_MOST_NAMED])
        raise Problem(f"the ids of several jobs begin with {text}: {named}{more}")
    return found[0]
