"""An attempt as a worker runs it, in its slot: what handlers and middlewares get."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call import Call
from aioqueue.definitions._context import Attempt
from aioqueue.definitions._continuation import Done
from aioqueue.definitions._graph import graph_of
from aioqueue.errors import CallError
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.worker._outbox import Outbox

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._resources import ResourceScope
    from aioqueue.telemetry._tracing import SendSpan, Tracing
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.worker._holdings import Slot

__all__ = ["SlotAttempt"]

_making = threading.Lock()
"""Held while an outbox is made: a handler may enqueue in several threads."""


class SlotAttempt(Attempt):
    """An attempt that knows its slot: what handlers and middlewares get.

    Attributes:
        slot: In which it runs.
        timeout: Seconds that it has; None for no limit.
        timer: Cancels it after these.
    """

    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        slot: Slot,
        job_type: JobType[..., Any, Any],
        *,
        worker_id: str,
        client: object,
        resources: ResourceScope,
        tracing: Tracing,
    ) -> None:
        super().__init__(slot.job, job_type, worker_id=worker_id, client=client, resources=resources)
        self.slot = slot
        self._tracing = tracing
        self._over = False

    def enqueue(self, call: Call[Any]) -> None:
        """Collect a call, and those that come along. See `Attempt`."""
        if not isinstance(call, Call):
            raise TypeError(f"enqueue takes a call, such as job_type(...), not {type_name(call)}")
        call.mark_used()
        if isinstance(call, Done):
            call.mark_enqueueing()  # which it refuses
        if self._over:
            raise CallError(f"{self!r} has ended: nothing can be enqueued with its outcome any more")
        graph = graph_of([call])
        span = self._tracing.send_jobs([each.job_type.name for each in graph])
        try:
            self.put(graph, None if span is None else span.trace, span)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise

    def put(self, calls: Sequence[Call[Any]], trace: str | None, span: SendSpan | None = None) -> None:
        """Put calls into the outbox, each behind those that it waits for. Raises as `enqueue`."""
        marked: list[Call[Any]] = []
        try:
            for call in calls:
                call.mark_enqueueing()
                marked.append(call)
            self._outbox().put(calls, [call.to_new_job(trace) for call in calls], span)
        except BaseException:
            for call in marked:
                call.mark_failed()
            raise

    def _outbox(self) -> Outbox:
        slot = self.slot
        if slot.outbox is None:
            with _making:
                slot.outbox = slot.outbox or Outbox()
        if self._over:  # looked at once more, since whoever ends it sets this first, and looks for the box then
            slot.outbox.drop()
        return slot.outbox

    def end(self) -> None:
        """It has ended: its time too, and what it has enqueued is dropped, unless it goes along with its outcome."""
        if self.timer is not None:
            self.timer.cancel()
        if not self._over:
            self._over = True
            if self.slot.outbox is not None:
                self.slot.outbox.drop()

    def close(self) -> tuple[NewJob, ...]:
        """Enqueue nothing more. Returns the jobs that are stored with its outcome, if it ended well."""
        self._over = True
        outbox = self.slot.outbox
        return () if outbox is None else outbox.close()
