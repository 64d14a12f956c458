"""Connections with their settings, and transactions on them."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import StoreUnavailable
from aioqueue.sqlite._connections_statements import shown_text
from aioqueue.sqlite._connections_turns import turns_of
from aioqueue.sqlite._errors import is_busy, translated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioqueue.sqlite._options import Options

__all__ = ["Abandoned", "Connection", "begin", "connect", "in_snapshot", "in_transaction", "rollback"]

T = TypeVar("T")

_TRY_SECONDS = 0.5
_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()


class Abandoned(Exception):
    """The caller was cancelled before the commit: the transaction is rolled back."""


class Connection(sqlite3.Connection):
    """sqlite3's, but known to the hook that runs after a fork, and one of those that take turns."""

    def __init__(self, database: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(database, *arguments, **options)
        self.turns = turns_of(database)

    def close(self) -> None:
        """Close it, which rolls back what is open."""
        try:
            super().close()
        finally:
            self.turns.give_back(self)


def _leave_inherited_handles_alone() -> None:
    # Even closing an inherited connection is forbidden (https://sqlite.org/howtocorrupt.html, 2.6): in the child they
    # live for ever.
    for connection in list(_OPEN):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_leave_inherited_handles_alone)


def connect(
    options: Options,
    *,
    tolerant: bool = False,
    timeout: float | None = None,
    check: Callable[[sqlite3.Connection], None] = lambda _: None,
) -> Connection:
    """Open a connection and give it its settings, which SQLite keeps for each connection apart.

    Arguments:
        options: Which file, and how.
        tolerant: Whether text that isn't UTF-8 is shown instead of refused.
        timeout: Seconds to wait for others; as long as a write does, if it isn't given.
        check: Refuses the file by raising, before anything of it is changed. It's called in a snapshot.

    Raises:
        StoreError: It can't be opened.
    """
    if not options.path.parent.is_dir():
        raise StoreUnavailable(f"{options.path} can't be opened: there is no folder {options.path.parent}")
    if not options.create and not options.path.exists():
        raise StoreUnavailable(f"there is no file {options.path}: nothing was ever enqueued there, or it is another one")
    with translated(f"{options.path} can't be opened"):
        connection = sqlite3.connect(
            options.path,
            timeout=_TRY_SECONDS if timeout is None else min(_TRY_SECONDS, timeout / 5),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
    _OPEN.add(connection)
    if tolerant:
        connection.text_factory = shown_text
    try:
        with translated(f"{options.path} can't be used"):
            deadline = time.monotonic() + (options.busy_timeout if timeout is None else timeout)
            _patiently(lambda: in_snapshot(connection, check), deadline)
            _prepare(connection, options, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def _patiently(step: Callable[[], object], deadline: float) -> None:
    """Try again while somebody has the file locked."""
    while True:
        try:
            step()
        except (sqlite3.OperationalError, StoreUnavailable) as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare(connection: sqlite3.Connection, options: Options, deadline: float) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # It isn't retried by the busy handler when two processes do so at once.
        _patiently(lambda: connection.execute("PRAGMA journal_mode = wal"), deadline)
    connection.execute(f"PRAGMA synchronous = {options.synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {options.wal_limit}")
    # Checkpoints wait for the disk: fewer, larger ones than by default.
    connection.execute(f"PRAGMA wal_autocheckpoint = {max(1, options.wal_limit // 4096)}")
    connection.execute("PRAGMA foreign_keys = off")
    connection.execute("PRAGMA temp_store = memory")
    connection.execute("PRAGMA cache_size = -8192")


def begin(connection: Connection, timeout: float, abandoned: Callable[[], bool] = lambda: False) -> float:
    """Take the write lock: in turn with this process's others, and then by BEGIN IMMEDIATE, tried again until the timeout.

    Arguments:
        connection: Whose transaction begins.
        timeout: Seconds.
        abandoned: Asked between tries whether anybody still wants it.

    Returns:
        Seconds that it took.

    Raises:
        Abandoned: Nobody wants it any more.
        StoreUnavailable: Somebody else kept the lock, or the file can't be written.
    """
    started = time.monotonic()
    if not connection.turns.take(connection, timeout, abandoned):
        raise Abandoned
    try:
        _lock(connection, started + timeout, timeout, abandoned)
    except BaseException:
        connection.turns.give_back(connection)
        raise
    return time.monotonic() - started


def _lock(connection: Connection, deadline: float, timeout: float, abandoned: Callable[[], bool]) -> None:
    with translated("no write lock"):
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if time.monotonic() >= deadline:
                    with translated(f"no write lock within {timeout:g} s"):
                        raise
            else:
                return
            if abandoned():
                raise Abandoned


def in_transaction(
    connection: Connection,
    timeout: float,
    body: Callable[[sqlite3.Connection], T],
    abandoned: Callable[[], bool] = lambda: False,
    *,
    begun: bool = False,
) -> T:
    """Run the body in one write transaction: committed whole, or rolled back whole.

    Arguments:
        connection: Whose transaction it is.
        timeout: Seconds to wait for the write lock.
        body: What to do in it.
        abandoned: Whether the caller went away.
        begun: Whether the transaction has begun already.

    Raises:
        Abandoned: The caller went away before the commit.
        StoreError: What the database said.
    """
    if not begun:
        begin(connection, timeout, abandoned)
    with translated():
        try:
            result = body(connection)
            if abandoned():
                raise Abandoned
            connection.execute("COMMIT")
        except BaseException:
            rollback(connection)
            raise
    connection.turns.give_back(connection)
    return result


def in_snapshot(connection: Connection, body: Callable[[sqlite3.Connection], T]) -> T:
    """Run the body in one snapshot of the file, which doesn't outlive it: looking, without the write lock.

    Raises:
        StoreError: What the database said.
    """
    with translated():
        connection.execute("BEGIN")
        try:
            return body(connection)
        finally:
            rollback(connection)


def rollback(connection: Connection) -> None:
    """Leave no transaction open, nor the turn taken; SQLite may have ended it by itself (disk full, for one)."""
    try:
        if connection.in_transaction:
            with translated("the rollback failed"):
                connection.execute("ROLLBACK")
    finally:
        connection.turns.give_back(connection)
