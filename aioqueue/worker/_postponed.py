"""Writes what couldn't be written at the first try: again and again, while everything else is written past it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from aioqueue.errors import ClientClosed, RowRejected
from aioqueue.runtime._batcher import LARGEST_BATCH_BYTES, NOT_ABOUT_ROWS, write_each
from aioqueue.worker._backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Postponed"]

T = TypeVar("T")
R = TypeVar("R")

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0
_SECONDS_PER_ITEM = 0.02
"""Items that are refused one by one cost a statement each: the more there are, the longer each of them waits."""
_TIMES_AS_LONG = 5.0
_LONGEST_AFTER_LONG_SECONDS = 10.0
"""What takes long to fail when it's tried alone, while others are written, waits for several times as long, up to this."""
_SIDE_BY_SIDE = 4
_MOST_ITEMS = 1000
_EARLY_SECONDS = 0.002
"""A timer may go off that much too early."""


class _Entry(Generic[T, R]):
    """One item that waits.

    Attributes:
        item: What is to be written.
        future: Has the result when it's written, or when it's certain that it can't be.
        due: When it's tried next, by the event loop's clock.
        since: When it was handed over.
        tries: How often it was tried in vain.
        suspected: How often a batch that it was in failed with an error that names no item.
        alone: Whether it was at fault by itself, so that it doesn't go together with others.
    """

    __slots__ = ("alone", "due", "future", "item", "since", "suspected", "tries")

    def __init__(self, item: T, future: asyncio.Future[R], now: float, wait: float) -> None:
        self.item = item
        self.future = future
        self.since = now
        self.due = now + wait
        self.tries = 0
        self.suspected = 0
        self.alone = False


class Postponed(Generic[T, R]):
    """Items that can't be written now, each with a wait of its own that doubles from 0.05 s to a second.

    What is due goes together, and up to four batches side by side. What fails by itself goes alone from then on. When a batch
    fails with an error that names no item (the database can't be reached, or one of them makes it seem so), the batches
    become smaller, and those that were in such a batch least often go first: whatever is wrong with one item, the others are
    written. While every try fails like that, one batch is tried at a time, with pauses.

    Arguments:
        write: Stores a batch and gives one result each, in order; see `write_each` for what it may raise.
        busy: Whether a result says that the item has to be tried again.
        on_wait: Told of an item's try that was in vain, unless it may have been for another's sake: the item, the error (None
            if it was busy), and the seconds that it has waited for by now.
        size: How many bytes an item has.
        name: For its tasks.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        busy: Callable[[R], bool],
        on_wait: Callable[[T, BaseException | None, float], None],
        size: Callable[[T], int],
        name: str,
    ) -> None:
        self._write = write
        self._busy = busy
        self._on_wait = on_wait
        self._size = size
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._all: set[_Entry[T, R]] = set()
        self._waiting: list[_Entry[T, R]] = []
        self._tries: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # a handle of uvloop doesn't tell it where the time has come already
        self._most = _MOST_ITEMS
        self._failing = False
        self._pause = Backoff(_FIRST_SECONDS, _LONGEST_SECONDS)
        self._not_before = 0.0
        self._worked_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        """How many items aren't written yet."""
        return len(self._all)

    def submit_nowait(self, item: T, *, wait: float | None = None) -> asyncio.Future[R]:
        """Hand an item over.

        Arguments:
            item: What couldn't be written.
            wait: Seconds until its next try; by default the first of its waits.

        Returns:
            What has the result after it was stored; or `RowRejected` or `ClientClosed`, after which it's not tried again.

        Raises:
            ClientClosed: `abort` was called.
        """
        if self._closed:
            raise ClientClosed(f"the {self._name} is closed")
        first = _FIRST_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
        entry = _Entry[T, R](item, self._loop.create_future(), self._loop.time(), first if wait is None else wait)
        self._all.add(entry)
        self._put_back(entry)
        return entry.future

    def worked(self) -> None:
        """Hear that something else could be written: what waits may itself be the reason why it can't."""
        self._worked_at = self._loop.time()

    def hurry(self) -> None:
        """Try what waits now, whatever its waits: there may not be much time left."""
        now = self._loop.time()
        for entry in self._waiting:
            entry.due = min(entry.due, now)
        if self._waiting:
            self._wake_at(now)

    def abort(self) -> None:
        """Try nothing more: whoever waits is cancelled."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tries:
            task.cancel()
        for entry in self._all:
            entry.future.cancel()
        self._all.clear()
        self._waiting.clear()

    # -- when --------------------------------------------------------------------------------------------------------

    def _put_back(self, entry: _Entry[T, R]) -> None:
        self._waiting.append(entry)
        self._wake_at(entry.due)

    def _wake_at(self, when: float) -> None:
        if self._closed or (self._timer is not None and self._timer_at <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._begin_tries, context=contextvars.Context())

    def _begin_tries(self) -> None:
        """Begin as many tries as may run at once, with what is due."""
        self._timer = None
        now = self._loop.time() + _EARLY_SECONDS
        while len(self._tries) < _SIDE_BY_SIDE and now >= self._not_before and (batch := self._due(now)):
            self._begin(batch)
            if self._failing:
                self._not_before = now + self._pause.next()
        if self._waiting and len(self._tries) < _SIDE_BY_SIDE:
            self._wake_at(max(min(entry.due for entry in self._waiting), self._not_before))

    def _due(self, now: float) -> list[_Entry[T, R]]:
        """What the next try takes: those that were least often in a batch that failed as a whole."""
        due = sorted((entry for entry in self._waiting if entry.due <= now), key=lambda entry: entry.suspected)
        if not due or due[0].alone:
            return due[:1]
        batch: list[_Entry[T, R]] = []
        total = 0
        for entry in due:
            if entry.alone:
                continue
            total += self._size(entry.item)
            if batch and (len(batch) >= self._most or total > LARGEST_BATCH_BYTES):
                break
            batch.append(entry)
        return batch

    # -- one try -----------------------------------------------------------------------------------------------------

    def _begin(self, entries: Sequence[_Entry[T, R]]) -> None:
        taken = set(entries)
        self._waiting = [entry for entry in self._waiting if entry not in taken]
        context, began = contextvars.Context(), None if len(entries) > 1 else self._loop.time()
        batch: list[tuple[T, asyncio.Future[R]]] = []
        for entry in entries:
            answer: asyncio.Future[R] = self._loop.create_future()
            answer.add_done_callback(functools.partial(self._answered, entry, began), context=context)
            batch.append((entry.item, answer))
        task = self._loop.create_task(write_each(self._write, batch), name=f"aioqueue {self._name}", context=context)
        self._tries.add(task)
        task.add_done_callback(functools.partial(self._tried, [answer for _, answer in batch]), context=context)

    def _answered(self, entry: _Entry[T, R], began: float | None, answer: asyncio.Future[R]) -> None:
        """One item has a result, or an error: it's done with, or waits again.

        Arguments:
            entry: The item.
            began: When its try began, if it went alone.
            answer: What came of it.
        """
        if entry.future.done():  # nobody waits for it any more
            self._all.discard(entry)
            return
        if answer.cancelled():
            self._all.discard(entry)
            entry.future.cancel()
            return
        error = answer.exception()
        if isinstance(error, (RowRejected, ClientClosed)):
            self._all.discard(entry)
            entry.future.set_exception(error)
            entry.future.exception()  # whoever waits for it gets it
        elif error is None and not self._busy(answer.result()):
            self._all.discard(entry)
            entry.future.set_result(answer.result())
        else:
            self._wait_again(entry, error, began)

    def _wait_again(self, entry: _Entry[T, R], error: BaseException | None, began: float | None) -> None:
        now = self._loop.time()
        longest = _LONGEST_SECONDS
        entry.tries += 1
        if isinstance(error, NOT_ABOUT_ROWS):
            entry.suspected += 1
        else:
            entry.alone = error is not None
            if entry.alone:
                longest = max(longest, _SECONDS_PER_ITEM * len(self._all))
        wait = min(_FIRST_SECONDS * 2.0 ** min(entry.tries, 16), longest)
        if error is not None and began is not None and self._worked_at > entry.since:
            # Others are written, and it may have kept the connection to itself for as long as it took.
            wait = max(wait, min(_TIMES_AS_LONG * (now - began), _LONGEST_AFTER_LONG_SECONDS))
        entry.due = now + wait * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
        self._put_back(entry)
        if began is not None or not isinstance(error, NOT_ABOUT_ROWS):
            self._on_wait(entry.item, error, now - entry.since)

    def _tried(self, answers: Sequence[asyncio.Future[R]], task: asyncio.Task[None]) -> None:
        """A try has ended: see what its errors say of the database, and begin the next."""
        self._tries.discard(task)
        for answer in answers:
            answer.cancel()  # only if the try itself was cancelled, also before its first step
        errors = [None if answer.cancelled() else answer.exception() for answer in answers]
        unavailable = sum(isinstance(error, NOT_ABOUT_ROWS) for error in errors)
        self._failing = unavailable == len(answers)
        if not self._failing:
            self.worked()
            self._pause.reset()
            self._not_before = 0.0
        self._most = max(unavailable // 2, 1) if unavailable else min(self._most * 2, _MOST_ITEMS)
        if self._waiting:
            self._wake_at(self._loop.time())
