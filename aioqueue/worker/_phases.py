"""Stores where the phases of attempts stand: under the fence of their claims, batched, and awaited by the handler."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import LeaseLost, OutsideTransaction, StoreUnavailable, TransactionError
from aioqueue.runtime._batcher import Batcher
from aioqueue.runtime._shield import to_the_end
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._observed import tell_phase
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aioqueue.abc import Store
    from aioqueue.client import Client
    from aioqueue.telemetry._counters import Counters
    from aioqueue.vocabulary._job import ClaimedJob, LostReason
    from aioqueue.worker._holdings import Slot

__all__ = ["PhaseWriter", "StoredPhases"]

logger = logging.getLogger("aioqueue.worker")

T = TypeVar("T")

_PATIENCE_SECONDS = 60.0
"""For which the database may be away while a handler waits for it between its phases."""
_LONGEST_SECONDS = 120.0
"""For storing a result, however long its statement takes."""
_ONCE_CANCELLED_SECONDS = 3.0
"""For storing the result of a phase that has ended when its attempt is cancelled: otherwise it would run again."""
_FAILED_SECONDS = 3.0
"""For storing that a phase has failed, which is only shown."""
_HUNG_SECONDS = 5.0
"""After which a statement that takes as long holds up no other."""


class PhaseWriter:
    """Writes phases of all attempts of one worker.

    Arguments:
        client: Whose store it is.
        counters: What the run counts.
    """

    def __init__(self, client: Client, counters: Counters) -> None:
        self._client = client
        self.counters = counters
        self._over = False
        self._writes: Batcher[PhaseWrite, LostReason | None] = Batcher(
            self._write, size=_size, patience=_HUNG_SECONDS, name="writing of phases"
        )

    async def _write(self, writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        return await self.store.write_phases(writes)

    @property
    def store(self) -> Store:
        """Where they go."""
        return self._client.store

    async def submit(self, write: PhaseWrite) -> None:
        """Write where a phase stands; while the database is away, again and again for a minute.

        Raises:
            LeaseLost: The job isn't this attempt's any more. Nothing was written.
            StoreError: The store can't be reached for so long, or refuses it.
        """
        lost = await patiently(lambda: self._submitted(write))
        if lost is not None:
            raise LeaseLost(
                f"the phase {write.name!r} isn't stored: its job, {write.id}, isn't this attempt's any more: {lost.value}",
                reason=lost.value,
            )

    async def _submitted(self, write: PhaseWrite) -> LostReason | None:
        """Write with others. Whoever cancels the batch's task, such as by cancelling all there are, doesn't mean the attempt.

        Raises:
            StoreUnavailable: It was cancelled so.
        """
        try:
            return await self._writes.submit(write)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._over or (task is not None and task.cancelling()):
                raise
            raise StoreUnavailable("the task that writes phases was cancelled") from None

    def refuse_in_transaction(self, slot: Slot) -> None:
        """Refuse a phase inside an open transaction of its task, for whose end the store might wait.

        Raises:
            TransactionError: There is one.
        """
        completing = slot.completing
        if completing is not None and completing.entered:
            raise TransactionError(f"{slot.attempt!r} has a block of completion() open: run its phases before that")
        try:
            self._client.check_outside_transaction()
        except OutsideTransaction:
            raise OutsideTransaction(
                "a phase inside a block of client.transaction() might wait for what that has locked, and its result would be "
                "kept even if the block is rolled back: run it before or after the block"
            ) from None

    def tell(self, job: ClaimedJob, name: str, *, completed: bool) -> None:
        """Tell observers of a phase that has begun, or whose result is stored."""
        if self._client.observers.active:
            tell_phase(self._client.observers, job, name, completed=completed)

    def abort(self) -> None:
        """Write nothing more: the worker has ended."""
        self._over = True
        self._writes.abort()


class StoredPhases:
    """The `PhaseKeeper` of one attempt that a worker runs.

    Arguments:
        slot: In which it runs.
        writer: Writes them.
    """

    def __init__(self, slot: Slot, writer: PhaseWriter) -> None:
        self._slot = slot
        self._writer = writer
        self._results: dict[str, bytes] | None = None
        self._began = 0.0

    async def read(self) -> Mapping[str, bytes]:
        """See `PhaseKeeper`. A job's first claim finds nothing."""
        self._writer.refuse_in_transaction(self._slot)
        if self._results is None:
            job = self._slot.job
            stored = () if job.claims == 1 else await patiently(lambda: self._writer.store.fetch_phases(job.id))
            self._results = {each.name: each.result_json for each in stored if each.result_json is not None}
        return self._results

    async def begin(self, name: str) -> None:
        """See `PhaseKeeper`."""
        await self._writer.submit(self._write(name, PhaseState.RUNNING))
        self._began = time.monotonic()
        self._writer.tell(self._slot.job, name, completed=False)
        self._tell(logging.INFO, name, "started", "begins")

    async def complete(self, name: str, result: bytes) -> None:
        """See `PhaseKeeper`. A cancellation that comes meanwhile goes on when the result is stored, or soon."""
        took = time.monotonic() - self._began
        try:
            await to_the_end(self._complete(name, result, took), _LONGEST_SECONDS, once_cancelled=_ONCE_CANCELLED_SECONDS)
        except TimeoutError:
            raise StoreUnavailable(f"the result of the phase {name!r} couldn't be stored: it takes too long") from None

    async def _complete(self, name: str, result: bytes, took: float) -> None:
        await self._writer.submit(self._write(name, PhaseState.COMPLETED, result))
        if self._results is not None:
            self._results[name] = result
        self._writer.tell(self._slot.job, name, completed=True)
        self._writer.counters.phases_completed += 1
        self._tell(logging.INFO, name, "completed", f"has completed after {took:.3f} s", took)

    async def fail(self, name: str, error: BaseException) -> None:
        """See `PhaseKeeper`."""
        took = time.monotonic() - self._began
        self._writer.counters.phases_failed += 1
        self._tell(logging.WARNING, name, "failed", f"has failed after {took:.3f} s: {type_name(error)}", took)
        try:
            await to_the_end(
                self._writer.submit(self._write(name, PhaseState.FAILED)), _FAILED_SECONDS, once_cancelled=_FAILED_SECONDS
            )
        except Exception as wrong:  # noqa: BLE001 - logged: what the function has raised is what counts
            slot, job = self._slot, self._slot.job
            logger.debug(
                "%s %s: it isn't stored that the phase %s has failed: %s",
                one_line(job.type),
                job.id,
                one_line(name),
                one_line(wrong),
                extra=slot.event("attempt.phase_unwritten", phase=name),
            )

    def resume(self, name: str) -> None:
        """See `PhaseKeeper`."""
        self._writer.counters.phases_resumed += 1
        self._tell(logging.INFO, name, "resumed", "isn't run: an earlier attempt has completed it")

    def _write(self, name: str, state: PhaseState, result: bytes | None = None) -> PhaseWrite:
        job = self._slot.job
        return PhaseWrite(id=job.id, claims=job.claims, lease_id=job.lease_id, name=name, state=state, result=result)

    def _tell(self, level: int, name: str, state: str, text: str, duration: float | None = None) -> None:
        """Tell the log and the attempt's span."""
        slot, job = self._slot, self._slot.job
        if slot.span is not None:
            slot.span.event(f"phase {state}", {"aioqueue.phase": name})
        if logger.isEnabledFor(level):
            extra = slot.event("attempt.phase", phase=name, state=state, duration=duration)
            logger.log(level, "%s %s: the phase %s %s", one_line(job.type), job.id, one_line(name), text, extra=extra)


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Call the store again while it's away, for a minute at most. Raises as the call."""
    until, pause = time.monotonic() + _PATIENCE_SECONDS, Backoff(0.05, 2.0)
    while True:
        try:
            return await call()
        except StoreUnavailable:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(pause.next())


def _size(write: PhaseWrite) -> int:
    return 0 if write.result is None else len(write.result)
