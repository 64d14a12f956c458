"""What sqlite3's errors mean: try again, a row is at fault, or the file is. The one place that translates them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected, StoreError, StoreIncompatible, StoreUnavailable

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["breaks_connection", "concerns_a_row", "is_about_json", "is_busy", "translated"]

_VALUE_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError, UnicodeError)
"""What a value that can't be stored raises; the driver itself raises some of them, without a code of SQLite's."""
_DRIVER_ERRORS = (sqlite3.Error, *_VALUE_ERRORS)

# Primary result codes: https://sqlite.org/rescode.html
_ERROR = 1
_OTHER_TABLES = ("no such", "has no column", "already exists")
"""What the texts of that code say of tables that aren't ours, or not as this code knows them."""
_BUSY = 5
_LOCKS = frozenset({_BUSY, 6})
_UNAVAILABLE = frozenset({5, 6, 7, 8, 9, 10, 13, 14, 15, 17})  # busy, locked, memory, readonly, interrupt, I/O, full, open, …
_REJECTED = frozenset({18, 19, 20, 25})  # too big, constraint, mismatch, range
_NOT_A_DATABASE = 26
_BROKEN = frozenset({8, 10, 11, 14, _NOT_A_DATABASE})  # readonly, I/O, corrupt, can't open, not a database


class translated:  # noqa: N801 - reads as the context manager that it is
    """Raises what sqlite3 raises within the block as the package's own errors.

    A class instead of a generator: it's around every transaction, and costs a third.

    Arguments:
        what: Begins the message.

    Raises:
        StoreUnavailable: It may go well another time.
        RowRejected: A value or a constraint is at fault.
        StoreIncompatible: The file isn't a database, or its tables are others.
        StoreError: Anything else, such as a trigger that raises.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str = "SQLite refused") -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, _DRIVER_ERRORS):
            raise _translate(error, self._what) from error


def _code(error: BaseException | None) -> int:
    code: int = getattr(error.__cause__ if isinstance(error, StoreError) else error, "sqlite_errorcode", 0)
    return code & 0xFF


def _translate(error: BaseException, what: str) -> StoreError:
    message = f"{what}: {error}"
    code = _code(error)
    text = str(error)
    if code in _UNAVAILABLE:
        if code == _BUSY:
            message += "; another connection holds the write lock (see busy_timeout)"
        return StoreUnavailable(message)
    if code == _NOT_A_DATABASE or (code == _ERROR and any(each in text for each in _OTHER_TABLES)):
        return StoreIncompatible(message)
    if code in _REJECTED or (isinstance(error, _VALUE_ERRORS) and not code):
        return RowRejected(message)
    return StoreError(message)


def is_busy(error: sqlite3.Error | StoreError) -> bool:
    """Whether somebody else holds the lock."""
    return _code(error) in _LOCKS


def is_about_json(error: sqlite3.Error) -> bool:
    """Whether a value couldn't be put into the JSON that a statement makes: a blob, or text that is no JSON."""
    return "JSON" in str(error)


def concerns_a_row(error: StoreError) -> bool:
    """Whether an error is about what was written (a value, a trigger that raises), and not about the file as a whole."""
    return isinstance(error, RowRejected) or type(error) is StoreError


def breaks_connection(error: BaseException) -> bool:
    """Whether a new connection is needed: it looks at the file anew, which may have been replaced, or be back."""
    return _code(error) in _BROKEN
