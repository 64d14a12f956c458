"""What a handler gets from `attempt.completion()`: a transaction in which its job is completed, or goes on."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._output import HasOutput

__all__ = ["OWN", "Completion", "InTransaction", "Own"]

R = TypeVar("R")
T = TypeVar("T")


class Own(Enum):
    """Stands for `tx=` that wasn't given: the transaction is aioqueue's own."""

    OWN = "OWN"


OWN = Own.OWN


class InTransaction:
    """What is made as a `Completion`, so that the client's verbs find what they need when they get it as their `tx=`.

    Attributes:
        transaction: The client's own, or what the user gave as `tx=`.
    """

    transaction: Any


class Completion(Protocol):
    """An open transaction that ends with the outcome of the attempt: `async with current_attempt().completion() as tx`.

    What is written in it, what is enqueued, and the outcome that `done` was given are committed together, or not at all.
    """

    @property
    def connection(self) -> Any:
        """The driver's connection; with `tx=` what was given there."""
        ...

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement, as `Transaction.execute`.

        Raises:
            TransactionError: The block has ended; or the transaction was given as `tx=`: use that itself.
        """
        ...

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query, as `Transaction.fetch`. Raises as `execute`."""
        ...

    async def enqueue(self, call: Call[R]) -> HasOutput[R]:
        """Enqueue a call in this transaction now, as `Transaction.enqueue`. Returns its handle.

        `attempt.enqueue(call)` needs no statement of its own: it's stored when the block ends.
        """
        ...

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> Sequence[HasOutput[R]]:
        """Enqueue calls in this transaction now. Returns their handles, in order."""
        ...

    async def complete(self, job_type: JobType[..., R, Any], job: UUID | str | HasOutput[Any], result: R | Call[R]) -> None:
        """Complete another job in this transaction, as `Transaction.complete`.

        Raises:
            TransactionError: It's the attempt's own: `done` completes that. Or the block has ended.
            AioqueueError: As `Client.complete` raises it.
        """
        ...

    async def fail(self, job: UUID | str | HasOutput[Any], reason: str) -> None:
        """Fail another job for good in this transaction, as `Transaction.fail`. Raises as `complete`."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Open a nested block, which is rolled back alone if it raises or is cancelled: what was enqueued in it may be enqueued
        again, and a `done` within it doesn't count.

        Raises:
            TransactionError: The transaction was given as `tx=`: use a savepoint of its own library.
        """
        ...

    def done(self, value: T) -> T:
        """Say how the attempt ends: with the value that the handler returns, or, if it may continue its chain, with
        `done(value)` or its next call. It's written in this transaction when the block ends. Nothing can be enqueued with
        `attempt.enqueue` any more.

        Returns:
            The same, for the handler to return: `return tx.done(receipt)`.

        Raises:
            ArgumentsError: The value can't be stored exactly, or isn't of the annotated type.
            CallError: It's a call, or isn't one, against what the handler is annotated to return; or the call can't be stored.
            TransactionError: The block has ended, or `done` was called before.
        """
        ...
