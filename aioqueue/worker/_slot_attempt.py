"""An attempt as a worker runs it, in its slot: what handlers and middlewares get."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call import Call
from aioqueue.definitions._completion import OWN
from aioqueue.definitions._context import Attempt
from aioqueue.definitions._continuation import Done
from aioqueue.definitions._gate_options import refuse_sequences
from aioqueue.definitions._graph import graph_of, refuse_raising, rows_of
from aioqueue.errors import CallError, TransactionError
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.worker._outbox import Outbox
from aioqueue.worker._phases import StoredPhases

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from aioqueue.definitions._completion import Completion
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._phases import PhaseKeeper, Returned
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.telemetry._tracing import SendSpan, Tracing
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._phases import Progress
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._stages import Stages

__all__ = ["SlotAttempt"]

Block = Callable[["SlotAttempt", object], "AbstractAsyncContextManager[Completion, None]"]
"""Makes the block of a completing transaction, given the attempt and `tx=`."""

_enqueueing = threading.Lock()
"""Held while an outbox is made, or calls are marked: a handler may enqueue in several threads."""


class SlotAttempt(Attempt):
    """An attempt that knows its slot: what handlers and middlewares get.

    Attributes:
        slot: In which it runs.
        timeout: Seconds that it has; None for no limit.
        timer: Cancels it after these.
        ended: Whether what became of it is decided.
    """

    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None
    ended = False
    _closed = ""
    """Why nothing can be enqueued with it any more."""

    def __init__(
        self,
        slot: Slot,
        job_type: JobType[..., Any, Any],
        *,
        worker_id: str,
        client: object,
        resources: ResourceScope,
        tracing: Tracing,
        block: Block,
        stages: Stages,
    ) -> None:
        super().__init__(slot.job, job_type, worker_id=worker_id, client=client, resources=resources)
        self.slot = slot
        self._tracing = tracing
        self._block = block
        self._stages = stages

    def enqueue(self, call: Call[Any]) -> None:
        """Collect a call, and those that come along. See `Attempt`."""
        if not isinstance(call, Call):
            raise TypeError(f"enqueue takes a call, such as job_type(...), not {type_name(call)}")
        call.mark_used()
        if isinstance(call, Done):
            call.mark_enqueueing()  # which it refuses
        self._refuse_closed()
        graph = graph_of([call])
        span = self._tracing.send_jobs([each.job_type.name for each in graph])
        try:
            self.put(graph, (call,), None if span is None else span.trace, span)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise

    def put(
        self, graph: Sequence[Call[Any]], given: Sequence[Call[Any]], trace: str | None, span: SendSpan | None = None
    ) -> None:
        """Put calls into the outbox, each behind those that it waits for; those not given only if they're needed. Raises as
        `enqueue`.
        """
        marked: list[Call[Any]] = []
        try:
            rows = rows_of(graph, given, trace, dry_run=self.dry_run)
            refuse_sequences(self.client.store, rows)
            refuse_raising(rows, "enqueue it now: `await attempt.client.enqueue(call)`, or `tx.enqueue(call)` of completion()")
            with _enqueueing:
                for call in graph:
                    call.mark_enqueueing()
                    marked.append(call)
            self._outbox().put(graph, rows, span)
        except BaseException:
            for call in marked:
                call.mark_failed()
            raise

    def _outbox(self) -> Outbox:
        slot = self.slot
        if slot.outbox is None:
            with _enqueueing:
                slot.outbox = slot.outbox or Outbox()
        self._refuse_closed()  # once more, since whoever closes it sets this first, and looks for the box then
        return slot.outbox

    def _refuse_closed(self) -> None:
        if self._closed:
            raise CallError(f"{self!r} {self._closed}: nothing can be enqueued with its outcome any more")

    def completion(self, *, tx: object = OWN) -> AbstractAsyncContextManager[Completion, None]:
        """Make the block of a completing transaction. See `Attempt`."""
        return self._block(self, tx)

    def _show(self, progress: Progress) -> None:
        if not self.ended:
            self._stages.progress.show(self.slot, progress)

    def take_progress(self, progress: Progress) -> None:
        """Take what was reported in another process, as if it had been reported here."""
        self.last_progress = progress
        self._show(progress)

    def keeper(self) -> PhaseKeeper:
        """Make what keeps its phases; of a handler in another process it's asked from here."""
        return StoredPhases(self.slot, self._stages.phases)

    def _keeper(self) -> PhaseKeeper:
        return self.keeper()

    async def _in_thread(self, function: Callable[[], object]) -> Returned:
        return await self._stages.in_thread(self.slot, function)

    def refuse_completing(self) -> None:
        """Refuse a completing transaction where there can't be one.

        Raises:
            TransactionError: It has ended, or runs in a thread.
        """
        if self.ended:
            raise TransactionError(f"{self!r} has ended: it can't be completed any more")
        if self.in_thread:
            raise TransactionError(
                f"the handler of {self.job.type} is a plain function, which runs in a thread, and completion() belongs to the "
                "event loop: make the handler `async def`, and call what blocks with `await asyncio.to_thread(...)`"
            )

    def end(self) -> None:
        """It has ended: its time too, and what it has enqueued is dropped, unless it goes along with its outcome."""
        if self.timer is not None:
            self.timer.cancel()
        kept, self._closed, self.ended = bool(self._closed), "has ended", True
        if not kept and self.slot.outbox is not None:
            self.slot.outbox.drop()

    def close(self) -> tuple[NewJob, ...]:
        """Enqueue nothing more. Returns the jobs that are stored with its outcome."""
        self._closed = "has settled its outcome"
        outbox = self.slot.outbox
        return () if outbox is None else outbox.close()

    @property
    def enqueued(self) -> int:
        """How many jobs it has enqueued so far."""
        return 0 if self.slot.outbox is None else len(self.slot.outbox)

    def reopen(self, kept: int) -> None:
        """Undo `close`: the outcome wasn't written. What was enqueued after the first so many jobs, for it, is dropped."""
        if not self.ended:
            self._closed = ""
            if self.slot.outbox is not None:
                self.slot.outbox.reopen(kept)
