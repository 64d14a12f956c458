"""Batches in which one row may be at fault: it's found by halving, and its neighbours are written all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import CallError, StoreError, WrongJobType
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._errors import concerns_a_row, translated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from aioqueue.errors import AioqueueError
    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["halved", "halved_within"]

Item = TypeVar("Item")
T = TypeVar("T")


def halved(
    connection: Connection,
    timeout: float,
    items: Sequence[Item],
    write: Callable[[sqlite3.Connection, Sequence[Item]], T],
    abandoned: Callable[[], bool] = lambda: False,
) -> list[tuple[Sequence[Item], T | AioqueueError]]:
    """Write a batch in one transaction; if some row is at fault, its halves in one each, until that row is alone.

    Arguments:
        connection: Without a transaction.
        timeout: Seconds to wait for each write lock.
        items: The batch.
        write: Writes a part of it.
        abandoned: Whether the caller went away. It isn't asked any more once something has been written.

    Returns:
        The parts in order, each with what `write` returned, or with the error of the single item that it consists of.

    Raises:
        Abandoned: The caller went away before anything was written.
        StoreError: The file can't be written at all.
    """

    def write_part(part: Sequence[Item], asked: Callable[[], bool]) -> T:
        return in_transaction(connection, timeout, lambda each: write(each, part), asked)

    return _halved(items, write_part, abandoned)


def halved_within(
    connection: Statements, items: Sequence[Item], write: Callable[[Statements, Sequence[Item]], T]
) -> list[tuple[Sequence[Item], T | AioqueueError]]:
    """Do the same within a transaction that is open, in savepoints.

    Raises:
        StoreError: The file can't be written at all.
    """

    def write_part(part: Sequence[Item], _: Callable[[], bool]) -> T:
        with translated(), in_savepoint(connection, "aioqueue_part"):
            return write(connection, part)

    return _halved(items, write_part, _never)


def _halved(
    items: Sequence[Item], write: Callable[[Sequence[Item], Callable[[], bool]], T], abandoned: Callable[[], bool]
) -> list[tuple[Sequence[Item], T | AioqueueError]]:
    written: list[tuple[Sequence[Item], T | AioqueueError]] = []
    waiting = [items]
    while waiting:
        part = waiting.pop()
        try:
            result = write(part, _never if written else abandoned)
        except (StoreError, CallError, WrongJobType) as error:
            if isinstance(error, StoreError) and not concerns_a_row(error):
                raise
            if len(part) == 1:
                written.append((part, error))
            else:
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
        else:
            written.append((part, result))
    return written


def _never() -> bool:
    return False
