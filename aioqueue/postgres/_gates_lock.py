"""Locks of gates: whoever admits, holds or lets come has locked the gates that it looks at, and looks in a later statement.

Of a gate with a value the name is locked, too, together with others: who changes a limit has its name alone, so that everybody
looks either before that, and what it has held is seen then, or afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["MOST_GATES", "gate_lock_statements", "lock_gates"]

MOST_GATES = 200
"""That one transaction locks: the server's table of locks has room for a few thousand in all."""

# In the statement that waits for a lock nothing can be counted: its snapshot is older than the wait.
_LOCK = "SELECT @schema@.lock_gates($1::text[])"
_LOCK_UNLOCKED = "SELECT @schema@.lock_unlocked_gates($1::text[])"


def gate_lock_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"gates_lock": schema.render(_LOCK), "gates_lock_unlocked": schema.render(_LOCK_UNLOCKED)}


async def lock_gates(
    connection: Connection, statements: dict[str, str], gates: Collection[str], *, waits: bool = True
) -> Collection[str]:
    """Lock gates until the end of the transaction. Returns which it has locked.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        gates: Which; the name of a limit stands for all of its gates.
        waits: Whether to wait for all of them; otherwise those that somebody has locked are left.

    Raises:
        StoreContended: Somebody keeps one of them, such as a process that is frozen.
    """
    if waits:
        await connection.fetch(statements["gates_lock"], list(gates))
        return gates
    ((locked,),) = await connection.fetch(statements["gates_lock_unlocked"], list(gates))
    return set(locked)
