"""Doing something about many rows of which one may refuse it: within one transaction, in halves, until that one is alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from aioqueue.postgres._errors import LOCKED, row_error, sqlstate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection

__all__ = ["in_halves"]

T = TypeVar("T")

_SECONDS = 2.0
"""How long it looks for the culprits. The others may be held up by them for no longer; what is left comes next time."""

_SAVEPOINT = "SAVEPOINT aioqueue_part"
_RELEASE = "RELEASE SAVEPOINT aioqueue_part"
_ROLL_BACK = f"ROLLBACK TO SAVEPOINT aioqueue_part; {_RELEASE}"


async def in_halves(
    connection: Connection, items: Sequence[T], do: Callable[[Sequence[T]], Awaitable[None]]
) -> list[tuple[T, StoreError | None]]:
    """Do it for all of them but those that refuse it, each part within a savepoint.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        items: What it's done for.
        do: Does it for some of them; called again for halves of those for which it has failed.

    Returns:
        Those for which it wasn't done, and why; None as the reason where somebody else holds what it needs, or time was up.
    """
    parts, undone = [items] if items else [], list[tuple[T, "StoreError | None"]]()
    until = time.monotonic() + _SECONDS
    while parts:
        part = parts.pop()
        await connection.execute(_SAVEPOINT)
        try:
            await do(part)
        except Exception as error:  # whatever the driver
            why = row_error(error)
            if why is None and sqlstate(error) != LOCKED:
                raise
            await connection.execute(_ROLL_BACK)
            if half := len(part) // 2:
                parts += [part[half:], part[:half]]
            else:
                undone.append((part[0], why))
            if time.monotonic() > until:
                undone += [(item, None) for rest in parts for item in rest]
                break
        else:
            await connection.execute(_RELEASE)
    return undone
