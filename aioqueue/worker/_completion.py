"""The block `async with attempt.completion() as tx`: a transaction, fenced by the claim, that ends with its outcome."""

from __future__ import annotations

import asyncio
import functools
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioqueue.client import Transaction
from aioqueue.definitions._completion import OWN
from aioqueue.definitions._continuation import Done
from aioqueue.errors import (
    ClientClosed,
    CompletionNotDone,
    LeaseLost,
    RowRejected,
    StoreContended,
    StoreUnavailable,
    TransactionError,
)
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._shield import wait_until_ended
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker._attempt_log import log_ignored_result, log_late_error
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._completing import Completing
from aioqueue.worker._completion_views import OwnCompletion, UsersCompletion, take_back_done
from aioqueue.worker._returned import is_call
from aioqueue.worker._settling import settlement_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioqueue.client import Client
    from aioqueue.definitions._completion import Completion
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._job import Settlement, SettleResult
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._outcome import Outcome
    from aioqueue.worker._slot_attempt import SlotAttempt
    from aioqueue.worker._stages import Stages
    from aioqueue.worker._tending import Tending

__all__ = ["Completions"]

T = TypeVar("T")

_HELD_SECONDS = 10.0
"""While somebody else's transaction has the job's row locked: what the handler has done until then isn't to be done again."""

_LOOK_SECONDS = 20.0
"""For finding out whether an unclear commit was one. After that the attempt counts as failed; the fence sees to it that this
isn't written if it wasn't so."""
_LOOK_ONCE_CANCELLED_SECONDS = 3.0
_LOOK_AT_USERS_SECONDS = 2.0
"""The same for a transaction of the user's, which should have ended before the handler did."""


class Completions:
    """Makes the blocks of one worker's attempts, and knows afterwards what came of them.

    Arguments:
        client: Whose transactions they are.
        registry: Has the middlewares around them.
        holdings: What the worker holds: a claim is let go as soon as its outcome is committed.
        tending: Told when not all were told who wait for a chain that has ended.
        stages: Store an attempt's last progress before its job's row is locked.
    """

    def __init__(self, client: Client, registry: Registry, holdings: Holdings, tending: Tending, stages: Stages) -> None:
        self._client = client
        self._registry = registry
        self._holdings = holdings
        self._tending = tending
        self._stages = stages

    def block(self, attempt: SlotAttempt, tx: object) -> AbstractAsyncContextManager[Completion, None]:
        """Make a block, which never swallows an error; nothing is done until it's entered."""
        return cast("AbstractAsyncContextManager[Completion, None]", self._block(attempt, tx))

    async def returned(self, attempt: SlotAttempt, value: object) -> Outcome | None:
        """See what a handler has committed that has returned.

        Returns:
            The outcome that stands; None if nothing is committed.

        Raises:
            CompletionNotDone: It has left a block in a transaction of its user's, who hasn't committed it.
        """
        state = _state(attempt)
        unseen = await self._saw_users_commit(attempt)
        if state.sealed is None:
            if unseen:
                raise CompletionNotDone(
                    f"{attempt!r}: tx.done() was called in a transaction that was given as tx=, and the handler has returned "
                    "before that was committed: it doesn't count"
                )
            return None
        if value is not state.given and not _the_same(attempt, value, state.sealed):
            log_ignored_result(attempt.slot)
        return state.sealed

    async def raised(self, attempt: SlotAttempt, error: BaseException) -> Outcome | None:
        """See what a handler has committed that has raised, or a middleware of it. Returns what stands, if anything does."""
        await self._saw_users_commit(attempt)
        sealed = _state(attempt).sealed
        if sealed is not None:
            log_late_error(attempt.slot, error)
        return sealed

    async def _saw_users_commit(self, attempt: SlotAttempt) -> bool:
        """Look up whether the transaction that was given as `tx=` was committed, which should have ended by now.

        Returns:
            Whether there was one of which that wasn't known.
        """
        if not _state(attempt).unseen:
            return False
        stored, _ = await self._is_stored(attempt, _LOOK_AT_USERS_SECONDS)
        if stored:
            self._seal(attempt)
        else:
            self._undo(attempt)
        return True

    # -- the two blocks -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _block(self, attempt: SlotAttempt, tx: object) -> AsyncGenerator[Completion]:
        """Either of them, where there may be a completing transaction."""
        attempt.refuse_completing()
        if (lost := attempt.slot.lost) is not None:
            raise _lost(attempt, lost)
        state = _state(attempt)
        if state.entered:
            raise _not_the_only_one(attempt)
        state.entered = True  # before anything is waited for: another task of the attempt may try it meanwhile
        try:
            if attempt.slot.reports is not None:  # on SQLite nothing of it could be written while the block is open
                await self._stages.progress.flushed(attempt.slot)
            await self._saw_users_commit(attempt)  # one that was left well, and rolled back, may be repeated
            if state.sealed is not None:
                raise _not_the_only_one(attempt)
            async with self._own(attempt) if tx is OWN else self._users(attempt, tx) as completion:
                yield completion
        finally:
            state.entered = False

    @asynccontextmanager
    async def _own(self, attempt: SlotAttempt) -> AsyncGenerator[Completion]:
        """In a transaction of the client's. What is unclear about its commit is looked up."""
        ended_well = False
        try:
            transaction, opened = await _patiently(functools.partial(self._open, attempt))
            async with opened:
                completion = OwnCompletion(attempt, _state(attempt), transaction)
                async with self._around(attempt, completion):
                    yield completion
                await self._write(attempt, transaction.store_transaction.settle)
                ended_well = True
        except BaseException as error:
            if not ended_well or isinstance(error, (RowRejected, ClientClosed)):
                self._undo(attempt)
                raise
            stored, cancelled = await self._is_stored(attempt, _LOOK_SECONDS)
            if stored:
                self._seal(attempt)
            else:
                self._undo(attempt)
            if cancelled is not None:
                raise cancelled from None
            if not (stored and isinstance(error, StoreUnavailable)):  # otherwise only the answer was lost
                raise
        else:
            self._seal(attempt)

    @asynccontextmanager
    async def _users(self, attempt: SlotAttempt, tx: Any) -> AsyncGenerator[Completion]:
        """In a transaction that the user commits, or rolls back: after an error that leaves this block, for example."""
        store, bound = self._client.store, self._client.using(tx)
        ours = tx.store_transaction if isinstance(tx, Transaction) else None
        claim, lease_id = attempt.slot.claim, attempt.job.lease_id
        try:
            with bound.alone():
                hold = functools.partial(store.hold, tx=tx) if ours is None else ours.hold
                self._held(attempt, await _patiently(functools.partial(hold, claim, lease_id)))
                completion = UsersCompletion(attempt, _state(attempt), bound, tx)
                async with self._around(attempt, completion):
                    yield completion
                await self._write(attempt, functools.partial(store.settle, tx=tx) if ours is None else ours.settle)
        except BaseException:
            self._undo(attempt)
            raise
        _state(attempt).unseen = True

    @asynccontextmanager
    async def _around(self, attempt: SlotAttempt, completion: Completion) -> AsyncGenerator[None]:
        """The middlewares. None of them can swallow an error: what the block wrote before it mustn't be committed."""
        raised: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                for middleware in self._registry.completion_middlewares_of(attempt.job_type):
                    await stack.enter_async_context(middleware(attempt, completion))
                try:
                    yield
                except BaseException as error:
                    raised = error
                    raise
            if raised is not None:
                raise raised
        finally:
            raised = None  # its traceback leads to this frame

    # -- the steps ----------------------------------------------------------------------------------------------------

    async def _open(self, attempt: SlotAttempt) -> tuple[Transaction, AsyncExitStack]:
        """Begin a transaction of the client's that holds the job. If it can't, there's none: no wait keeps a connection."""
        async with AsyncExitStack() as stack:
            transaction = await stack.enter_async_context(self._client.transaction())
            self._held(attempt, await transaction.store_transaction.hold(attempt.slot.claim, attempt.job.lease_id))
            return transaction, stack.pop_all()

    def _held(self, attempt: SlotAttempt, lost: LostReason | None) -> None:
        lost = lost or attempt.slot.lost  # meanwhile
        if lost is not None:
            raise _lost(attempt, lost)
        _state(attempt).holds = True

    async def _write(
        self, attempt: SlotAttempt, settle: Callable[[Sequence[Settlement]], Awaitable[Sequence[SettleResult]]]
    ) -> None:
        """Write what `done` was given.

        Raises:
            CompletionNotDone: It wasn't called.
            AioqueueError: It can't be written.
        """
        state = _state(attempt)
        if state.outcome is None:
            raise CompletionNotDone(
                f"the block of completion() was left without tx.done(...), so it's rolled back ({attempt!r}): end it with "
                "`return tx.done(value)`, or use client.transaction() for what isn't the job's outcome"
            )
        attempt.refuse_completing()
        (result,) = await settle([settlement_of(attempt.slot, state.outcome)])
        if result.lost is LostReason.ERROR:
            raise RowRejected(result.message)
        if result.lost is not None:
            raise _lost(attempt, result.lost)
        if result.refused is not None:
            raise result.refused
        if result.busy:
            raise StoreContended(f"somebody has locked what {attempt!r} needs: {result.message}")
        state.more, state.cancelled = result.more, result.cancelled

    def _seal(self, attempt: SlotAttempt) -> None:
        """It's committed: the outcome stands, and the claim is none any more."""
        state = _state(attempt)
        state.sealed, state.holds, state.unseen, state.lost = state.outcome, False, False, None
        self._holdings.let_go(attempt.slot.claim)
        if state.more:
            self._tending.soon()

    def _undo(self, attempt: SlotAttempt) -> None:
        """It's rolled back: the attempt is where it was before the block."""
        state = _state(attempt)
        take_back_done(attempt, state)
        state.holds = state.unseen = False
        if (lost := state.lost) is not None:
            state.lost = None
            self._holdings.lose([attempt.slot], lost)

    async def _is_stored(self, attempt: SlotAttempt, seconds: float) -> tuple[bool, asyncio.CancelledError | None]:
        """Find out whether a commit was one, whatever is cancelled meanwhile. What can't be found out counts as no.

        Returns:
            Whether it was, and the cancellation that came meanwhile.
        """
        looking = asyncio.get_running_loop().create_task(self._look(attempt), name="aioqueue look for a commit")
        cancelled = await wait_until_ended(looking, seconds, once_cancelled=_LOOK_ONCE_CANCELLED_SECONDS)
        if not looking.done():
            looking.cancel()
            leave(looking)
            return False, cancelled
        known = not looking.cancelled() and looking.exception() is None
        return known and looking.result(), cancelled

    async def _look(self, attempt: SlotAttempt) -> bool:
        outcome = _state(attempt).outcome
        assert outcome is not None
        store, job, pause = self._client.store, attempt.job, Backoff(0.02, 1.0)
        while True:
            try:
                # A commit that is still under way keeps the row locked.
                async with store.transaction() as transaction:
                    lost = await transaction.hold(attempt.slot.claim, job.lease_id)
                if lost is None:
                    return False
                # The claim is gone, so this writes nothing: it only says whether it was written before.
                (result,) = await store.settle([outcome.settlement(job)])
                if not result.busy:
                    return result.lost is None
            except StoreUnavailable:
                pass
            await asyncio.sleep(pause.next())


async def _patiently(hold: Callable[[], Awaitable[T]]) -> T:
    """Try again what locks a job's row while somebody else has it.

    Raises:
        StoreContended: They have kept it for too long.
    """
    until, pause = time.monotonic() + _HELD_SECONDS, Backoff(0.02, 1.0)
    while True:
        try:
            return await hold()
        except StoreContended:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(pause.next())


def _state(attempt: SlotAttempt) -> Completing:
    slot = attempt.slot
    if slot.completing is None:
        slot.completing = Completing()
    return slot.completing


def _not_the_only_one(attempt: SlotAttempt) -> TransactionError:
    return TransactionError(f"{attempt!r} has a block of completion() open, or was completed in one: there is one at most")


def _lost(attempt: SlotAttempt, reason: LostReason) -> LeaseLost:
    return LeaseLost(f"{attempt!r} isn't this worker's any more: {reason.value}", reason=reason.value)


def _the_same(attempt: SlotAttempt, returned: object, sealed: Outcome) -> bool:
    """Whether what was returned, by a middleware perhaps, is written as what `done` was given."""
    if is_call(returned):
        returned.mark_used()
        if not isinstance(returned, Done):
            return False
        returned = returned.value
    try:
        return sealed.next is None and attempt.job_type.encode_output(returned) == sealed.output
    except Exception:  # noqa: BLE001 - classified: what can't be written is something else
        return False
