"""Blocks within one of the store's own transactions, which are rolled back alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import TransactionError
from aioqueue.runtime._shield import to_the_end
from aioqueue.sqlite._errors import translated

if TYPE_CHECKING:
    from types import TracebackType

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_threads import DatabaseThreads, Request
    from aioqueue.vocabulary._notification import Notification

__all__ = ["SavepointBlock"]

_END_SECONDS = 10.0


class SavepointBlock:
    """What is done in it counts only if it's left without an error.

    Arguments:
        threads: The transaction's thread.
        name: Of the savepoint; no other of the transaction has it.
        open_blocks: The names of those that the transaction has open, the innermost last.
        notifications: What the transaction will tell after its commit: what the block adds is taken out if it's rolled back.
    """

    def __init__(self, threads: DatabaseThreads, name: str, open_blocks: list[str], notifications: list[Notification]) -> None:
        self._threads = threads
        self._name = name
        self._open = open_blocks
        self._notifications = notifications
        self._kept = 0

    async def __aenter__(self) -> None:
        """Begin it.

        Raises:
            StoreError: The database refused.
        """
        self._kept = len(self._notifications)
        # A cancellation must not leave open whether it has begun: the block would be left without its end.
        await to_the_end(self._run(f"SAVEPOINT {self._name}"), _END_SECONDS)
        self._open.append(self._name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Keep what was done in it, or undo it.

        Raises:
            StoreError: The database refused, for one since a statement has ended the whole transaction.
            TransactionError: A block that was opened later hasn't ended: what was done in both is undone.
        """
        innermost = self._open[-1:] == [self._name]
        if kind is None and innermost:
            self._open.pop()
            await to_the_end(self._run(f"RELEASE {self._name}"), _END_SECONDS)
            return
        if self._name in self._open:
            del self._open[self._open.index(self._name) :]
            del self._notifications[self._kept :]
            await to_the_end(self._run(f"ROLLBACK TO {self._name}", f"RELEASE {self._name}"), _END_SECONDS)
        if kind is None:
            raise TransactionError("nested blocks of a transaction end in the reverse of their order: this one isn't the last")

    async def _run(self, *statements: str) -> None:
        def body(connection: Connection, _: Request[None]) -> None:
            with translated():
                for each in statements:
                    connection.execute(each)

        await self._threads.call(body)
