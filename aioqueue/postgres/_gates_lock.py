"""Locks of gates: whoever admits, holds or lets come has locked the gates that it looks at, and looks in a later statement.

Of a gate with a value the name is locked, too, together with others: who changes a limit has its name alone, so that everybody
looks either before that, and what it has held is seen then, or afterwards.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.postgres._errors import OUT_OF_MEMORY, sqlstate
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["MOST_GATES", "gate_lock_statements", "lock_gates", "room_for"]

logger = logging.getLogger("aioqueue.postgres")

MOST_GATES = 200
"""That one transaction locks: the server's table of locks has room for a few thousand in all."""

# In the statement that waits for a lock nothing can be counted: its snapshot is older than the wait.
_LOCK = "SELECT @schema@.lock_gates($1::text[])"
_LOCK_UNLOCKED = "SELECT @schema@.lock_unlocked_gates($1::text[])"

_SAVEPOINT = "SAVEPOINT aioqueue_locks"
_ROLL_BACK = "ROLLBACK TO SAVEPOINT aioqueue_locks; RELEASE SAVEPOINT aioqueue_locks"
_TOLD_SECONDS = 60.0


def gate_lock_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"gates_lock": schema.render(_LOCK), "gates_lock_unlocked": schema.render(_LOCK_UNLOCKED)}


async def lock_gates(
    connection: Connection, statements: dict[str, str], gates: Collection[str], *, waits: bool = True
) -> Collection[str]:
    """Lock gates until the end of the transaction. Returns which it has locked.

    Where the server has no room for so many locks, fewer are locked if it may leave some: half of them, and half of those.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        gates: Which; the name of a limit stands for all of its gates.
        waits: Whether to wait for all of them; otherwise those that somebody has locked are left.

    Raises:
        StoreContended: Somebody keeps one of them, such as a process that is frozen; or there's no room for so many locks.
    """
    if waits:
        with room_for(len(gates)):
            await connection.fetch(statements["gates_lock"], list(gates))
        return gates
    some = list(gates)
    while some:
        await connection.execute(_SAVEPOINT)
        try:
            with room_for(len(some)):
                ((locked,),) = await connection.fetch(statements["gates_lock_unlocked"], some)
        except StoreContended:
            await connection.execute(_ROLL_BACK)
            some = some[: len(some) // 2]
        else:
            return set(locked)
    return ()


@contextmanager
def room_for(gates: int) -> Generator[None]:
    """Lock so many gates within the block.

    Raises:
        StoreContended: The server has no room for so many locks. That's told.
    """
    try:
        yield
    except Exception as error:
        if sqlstate(error) != OUT_OF_MEMORY:
            raise
        raise StoreContended(_full.tell(gates, error)) from error


class _FullTable:
    """Tells, once a minute, that the server's table of locks has no room for those of gates."""

    def __init__(self) -> None:
        self._told = float("-inf")

    def tell(self, gates: int, error: Exception) -> str:
        """Tell that so many gates couldn't be locked; returns what is told."""
        why = str(error).split("\n", 1)[0]
        message = f"{gates} gates can't be locked at once: {why}; a higher max_locks_per_transaction makes room for them"
        if time.monotonic() - self._told > _TOLD_SECONDS:
            self._told = time.monotonic()
            logger.warning("%s; fewer are locked at once meanwhile", message, extra=event("store.locks_full"))
        return message


_full = _FullTable()
