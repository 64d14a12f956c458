"""What a handler works with in the block of a completing transaction: over aioqueue's own, or over the user's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aioqueue.definitions._completion import InTransaction
from aioqueue.definitions._continuation import Done
from aioqueue.definitions._output import HasOutput
from aioqueue.errors import ArgumentsError, TransactionError
from aioqueue.vocabulary._codec import CodecError
from aioqueue.vocabulary._identifiers import read_id
from aioqueue.worker._outcome import Unreadable
from aioqueue.worker._returned import is_call, marked, outcome_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from aioqueue.client import BoundClient, JobHandle, Transaction
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._job_type import JobType
    from aioqueue.worker._completing import Completing
    from aioqueue.worker._slot_attempt import SlotAttempt

__all__ = ["OwnCompletion", "UsersCompletion", "take_back_done"]

R = TypeVar("R")
T = TypeVar("T")


class _Completion(InTransaction):
    """What both have: the outcome, and what the client's transaction, or its `using(tx)`, does as well.

    Arguments:
        attempt: Whose it is.
        state: Of its slot.
        verbs: Which enqueues in the transaction, and ends jobs.
    """

    def __init__(self, attempt: SlotAttempt, state: Completing, verbs: Transaction | BoundClient) -> None:
        self._attempt = attempt
        self._state = state
        self._verbs = verbs

    async def enqueue(self, call: Call[R]) -> JobHandle[R]:
        """Enqueue a call now."""
        return await self._verbs.enqueue(call)

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Enqueue calls now."""
        return await self._verbs.enqueue_many(calls)

    async def complete(self, job_type: JobType[..., R, Any], job: UUID | str | HasOutput[Any], result: R | Call[R]) -> None:
        """Complete another job."""
        await self._verbs.complete(job_type, self._other(job), result)

    async def fail(self, job: UUID | str | HasOutput[Any], reason: str) -> None:
        """Fail another job."""
        await self._verbs.fail(self._other(job), reason)

    def _other(self, job: UUID | str | HasOutput[Any]) -> UUID:
        job_id, own = job.blocker_id if isinstance(job, HasOutput) else read_id(job), self._attempt.job
        if job_id in (own.id, own.chain_id):
            raise TransactionError(f"{self._attempt!r} is completed with tx.done(...), and fails by raising an error: see Fail")
        return job_id

    def done(self, value: T) -> T:
        """Say how the attempt ends. See `Completion`."""
        attempt, state = self._attempt, self._state
        marked(value)  # whatever comes of it
        if not state.holds or state.unseen:
            raise TransactionError("the block of completion() has ended")
        if state.outcome is not None:
            raise TransactionError(f"{attempt!r} is done already: tx.done() says once how it ends")
        attempt.refuse_completing()
        state.enqueued = attempt.enqueued
        try:
            state.outcome = outcome_of(attempt, value)
        except Unreadable as unreadable:  # of the handler's: its policy says what is next
            attempt.reopen(state.enqueued)
            error = unreadable.error
            if isinstance(error, CodecError):
                raise ArgumentsError(str(error), path=error.path) from None
            raise error from None
        except BaseException:
            attempt.reopen(state.enqueued)
            raise
        attempt.slot.told_late = False
        state.given = value
        return value

    def __repr__(self) -> str:
        return f"<Completion of {self._attempt!r}>"


def take_back_done(attempt: SlotAttempt, state: Completing) -> None:
    """What `done` was given isn't written, if it was called: its calls may be enqueued again, and so may others."""
    if state.outcome is None:
        return
    if is_call(state.given) and not isinstance(state.given, Done):
        state.given.mark_failed()
    attempt.reopen(state.enqueued)
    state.outcome = state.given = None


class OwnCompletion(_Completion):
    """In a transaction of the client's.

    Arguments:
        attempt: Whose it is.
        state: Of its slot.
        transaction: The client's.
    """

    transaction: Transaction

    def __init__(self, attempt: SlotAttempt, state: Completing, transaction: Transaction) -> None:
        super().__init__(attempt, state, transaction)
        self.transaction = transaction

    @property
    def connection(self) -> Any:
        """The driver's."""
        return self.transaction.connection

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement."""
        return await self.transaction.execute(sql, *arguments)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query."""
        return await self.transaction.fetch(sql, *arguments)

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Open a nested block, which undoes a `done` within it if it's rolled back."""
        before = self._state.outcome
        try:
            async with self.transaction.savepoint():
                yield
        except BaseException:
            if before is None:
                take_back_done(self._attempt, self._state)
            raise


class UsersCompletion(_Completion):
    """In a transaction of the user's.

    Arguments:
        attempt, state: As of `OwnCompletion`.
        bound: Enqueues in it.
        tx: The user's connection or session.
    """

    def __init__(self, attempt: SlotAttempt, state: Completing, bound: BoundClient, tx: Any) -> None:
        super().__init__(attempt, state, bound)
        self.transaction = tx

    @property
    def connection(self) -> Any:
        """What was given as `tx=`."""
        return self.transaction

    async def execute(self, sql: str, *arguments: Any) -> int:  # noqa: ARG002 - the protocol's
        """Refuse: the user's own has its own way."""
        self._refuse("execute")

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:  # noqa: ARG002 - the protocol's
        """Refuse, as `execute`."""
        self._refuse("fetch")

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Refuse, as `execute`."""
        self._refuse("savepoint")

    def _refuse(self, name: str) -> NoReturn:
        raise TransactionError(
            f"{name}() is for aioqueue's own transactions: this one was given as tx=, so use the "
            f"{type(self.transaction).__qualname__} itself, which is also tx.connection"
        )
