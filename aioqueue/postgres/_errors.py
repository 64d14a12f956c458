"""What PostgreSQL's and asyncpg's errors mean: try again, the row is at fault, or the installation is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
from asyncpg.exceptions import _base

from aioqueue.errors import (
    AioqueueError,
    ConfigurationError,
    RowRejected,
    StoreContended,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "LOCKED",
    "NOT_ALLOWED",
    "OUT_OF_MEMORY",
    "breaks_connection",
    "cuts_short",
    "deadlock",
    "row_error",
    "sqlstate",
    "translated",
]

# 08 connection, 53 resources (disk full, too many connections), 57P server going down, starting or in recovery,
# 25006 read-only (a failed-over primary), 58 system (I/O); 40 and 55P03 are rolled back and may be tried again; 26000 a
# prepared statement that the session has forgotten, which a new connection hasn't.
_UNAVAILABLE_CLASSES = ("08", "53", "58", "40", "57P", "XX")
_UNAVAILABLE_STATES = frozenset({"25006", "57014", "55006", "26000"})
LOCKED = "55P03"
"""The code of an error: somebody holds a row for longer than it may be waited for."""

OUT_OF_MEMORY = "53200"
"""The code of an error: such as that the server's table of locks is full."""

_DEADLOCKS = frozenset({"40P01", "40001"})
NOT_ALLOWED = "42501"
"""The code of an error: the role hasn't the right to."""

# After these the connection is of no use, or leads to a server that is of none.
_BROKEN_CLASSES = ("08", "57P", "XX")
_BROKEN_STATES = frozenset({"25006", "53100", OUT_OF_MEMORY, "53300", "25P03", "25P04", "26000"})
# 22 data, 23 integrity: the row. 54 limits: a value that's too large for its place.
_ROW_CLASSES = ("22", "23", "54")
# Tables, columns, schemas and functions that aren't there, or not as this code knows them.
_INCOMPATIBLE_STATES = frozenset({"42P01", "42703", "3F000", "42883", "42P18", "42804"})


def sqlstate(error: BaseException | None) -> str:
    """The code of an error of the database's; empty for others."""
    return str(getattr(error, "sqlstate", None) or "")


def deadlock(error: StoreUnavailable) -> bool:
    """Whether the transaction was rolled back for the sake of somebody else's, and is worth another try."""
    return sqlstate(error.__cause__) in _DEADLOCKS


def breaks_connection(error: BaseException) -> bool:
    """Whether the connection on which this happened must not be used again."""
    if isinstance(error, StoreContended):
        return False  # whatever it was that was in short supply, such as locks
    if isinstance(error, AioqueueError):
        return error.__cause__ is not None and breaks_connection(error.__cause__)
    if isinstance(error, asyncpg.PostgresError):
        state = sqlstate(error)
        return state.startswith(_BROKEN_CLASSES) or state in _BROKEN_STATES
    if isinstance(error, (_base.DataError, TimeoutError)):
        return False  # of the latter, see `cuts_short`
    return isinstance(error, (OSError, _base.InterfaceError, _base.InternalClientError, EOFError))


def cuts_short(error: BaseException) -> bool:
    """Whether this may have left a statement unanswered on its connection, which has to be asked before its next use."""
    if isinstance(error, AioqueueError):
        return error.__cause__ is not None and cuts_short(error.__cause__)
    return isinstance(error, TimeoutError) or not isinstance(error, Exception)


def _text(error: BaseException) -> str:
    # Never the detail: it may quote the row.
    message = str(error).split("\n", 1)[0].strip()
    state = sqlstate(error)
    return f"{message or type(error).__name__} ({state})" if state else f"{message or type(error).__name__}"


def row_error(error: Exception) -> StoreError | None:
    """Give the error of ours that says the same, if it's about what was written: a value, or a trigger that raises.

    None for what is about the server, the connection, the schema as a whole or the role's rights.
    """
    ours = _translate(error, "the database")
    about_it = isinstance(ours, RowRejected) or (type(ours) is StoreError and sqlstate(error) != NOT_ALLOWED)
    return ours if about_it and isinstance(ours, StoreError) else None


@contextmanager
def translated(where: str) -> Generator[None]:
    """Raise the error of ours that says the same as what the driver or the network raises within the block.

    What isn't a database's error goes on as it is, and so do errors of ours.

    Arguments:
        where: The server, without a password.
    """
    try:
        yield
    except BaseException as error:
        ours = _translate(error, where)
        if ours is None or ours is error:
            raise
        raise ours from error


def _translate(error: BaseException, where: str) -> AioqueueError | None:
    """Give the error of ours that says the same; None for what isn't a database's error."""
    if isinstance(error, AioqueueError):
        return error
    message = f"{where}: {_text(error)}"
    if isinstance(error, asyncpg.PostgresError) or sqlstate(error):  # such as psycopg's, on a connection of the user's
        state = sqlstate(error)
        if state == LOCKED:
            return StoreContended(message)
        if state.startswith(_UNAVAILABLE_CLASSES) or state in _UNAVAILABLE_STATES:
            return StoreUnavailable(message)
        if state.startswith(_ROW_CLASSES):
            return RowRejected(_text(error))
        if state in _INCOMPATIBLE_STATES:
            return StoreIncompatible(f"{message}; is the schema up to date (`aioqueue migrate`)?")
        return StoreError(f"{message}; does the role have the rights that it needs?" if state == NOT_ALLOWED else message)
    if isinstance(error, _base.DataError):
        return RowRejected(_text(error))
    if isinstance(error, _base.ClientConfigurationError):
        return ConfigurationError(message)
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{where}: no answer in time")
    if isinstance(error, (OSError, EOFError, _base.InterfaceError, _base.InternalClientError)):
        return StoreUnavailable(message)
    return None
