"""Names that only one valid lease may have. Runs inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import SingletonHeld
from aioqueue.sqlite._lease_clock import LEASE_END, clock_parameters
from aioqueue.sqlite._rows import text_of
from aioqueue.sqlite._rows_times import NOW

if TYPE_CHECKING:
    import sqlite3

__all__ = ["make_way"]

_HOLDER = f"""
SELECT id, worker, {LEASE_END} - {NOW} FROM lease INDEXED BY lease_singleton WHERE singleton = :name
"""

_END = "DELETE FROM lease WHERE id = :lease"


def make_way(connection: sqlite3.Connection, name: str, waited: float) -> frozenset[int]:
    """Delete the lease that has this name, if it has run out; gives its id.

    Arguments:
        connection: Whose transaction it is.
        name: The name.
        waited: Seconds that the write lock took: as of `take_expired`, a lease that ended meanwhile says nothing about its
            worker.

    Raises:
        SingletonHeld: It's valid.
    """
    holder = connection.execute(_HOLDER, {"name": name, **clock_parameters()}).fetchone()
    if holder is None:
        return frozenset()
    lease_id, worker, left = holder
    ends_in = left / 1e6 if isinstance(left, (int, float)) else -waited
    if ends_in > -waited:
        shown = text_of(worker)
        raise SingletonHeld(
            f"the worker {shown} works as the only one of the name {name!r}; its lease ends in {max(0.0, ends_in):.0f} s "
            "unless it's renewed",
            name=name,
            worker=shown,
            ends_in=max(0.0, ends_in),
        )
    connection.execute(_END, {"lease": lease_id})
    return frozenset({lease_id})
