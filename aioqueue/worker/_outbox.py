"""What an attempt enqueues together with its outcome: collected while it runs, then stored with that, or dropped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from aioqueue.errors import CallError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.definitions._call import Call
    from aioqueue.telemetry._counters import Counters
    from aioqueue.telemetry._tracing import SendSpan
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Outbox"]


class Outbox:
    """The calls of one attempt. Those of a continuation that come along are among them.

    Any thread may put calls in; the rest is the event loop's. The calls are marked as enqueued by whoever puts them in.
    """

    __slots__ = ("_calls", "_closed", "_lock", "_rows", "_spans")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._calls: list[Call[Any]] = []
        self._rows: list[NewJob] = []
        self._spans: list[SendSpan] = []

    def put(self, calls: Sequence[Call[Any]], rows: Sequence[NewJob], span: SendSpan | None) -> None:
        """Collect calls.

        Arguments:
            calls: Marked as enqueued.
            rows: Made of them: each after those that it waits for.
            span: Of their enqueueing; it's ended when it's known what becomes of them.

        Raises:
            CallError: The attempt has ended meanwhile.
        """
        with self._lock:
            if not self._closed:
                self._calls += calls
                self._rows += rows
                if span is not None:
                    self._spans.append(span)
                return
        raise CallError("the attempt has ended: nothing can be enqueued with its outcome any more")

    def close(self) -> tuple[NewJob, ...]:
        """Take no more calls. Returns the rows of those that are there."""
        with self._lock:
            self._closed = True
            return tuple(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def reopen(self, kept: int) -> None:
        """Take calls again: a transaction that was to store them was rolled back. Only the first so many stay."""
        with self._lock:
            self._closed = False
            for call in self._calls[kept:]:
                call.mark_failed()
            del self._calls[kept:], self._rows[kept:]

    def written(self, counters: Counters) -> None:
        """They're stored."""
        for row in self._rows:
            counters.count_enqueued(row.type)
        for span in self._spans:
            span.sent()
        self._forget()

    def drop(self) -> None:
        """They won't be stored, unless they are already: the calls may be enqueued again."""
        with self._lock:
            self._closed = True
        for call in self._calls:
            call.mark_failed()
        for span in self._spans:
            span.not_committed("dropped")
        self._forget()

    def _forget(self) -> None:
        self._calls, self._rows, self._spans = [], [], []
