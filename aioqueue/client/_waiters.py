"""Waits for jobs and chains to end: one subscription and one batched look-up serve all of a process's waiters."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from aioqueue.errors import ClientClosed, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._notification import Notification

__all__ = ["GAVE_UP", "Waiters", "step_that_counts"]

logger = logging.getLogger("aioqueue")

_CHUNK_IDS = 500
"""In one look-up at most."""

_MISSING_AGAIN_SECONDS = 0.25
"""After which a job that isn't there yet is looked up again: its transaction may have been committed."""

_PROGRESS_AGAIN_SECONDS = 0.5
"""After which a job of which somebody wants to hear how far it is is looked up again."""

_LONGEST_PAUSE_SECONDS = 1.0
"""Between two look-ups, however long the one before took."""

_LAST_LOOK_SECONDS = 1.0
"""In which one whose time is over is looked up once more; after that it's told what was seen before."""


class _GaveUp(Enum):
    """What a waiter gets in place of a job when its time is over."""

    GAVE_UP = "gave up"


GAVE_UP: Final = _GaveUp.GAVE_UP


def step_that_counts(end: Job | None) -> Job | None:
    """What a look-up of a chain's end says of its result.

    A continued step is an end only where those after it have been removed: such a chain is as one that isn't there.
    """
    return None if end is not None and end.state is JobState.CONTINUED else end


@dataclass(slots=True, eq=False)
class Waiter:
    """One await of a result.

    Attributes:
        wanted_id: Under which it waits: the id that was given, and once that is known for a later step's, its chain's.
        future: Gets the finished job; None if there is no such job; `GAVE_UP` if the time to wait is over.
        patience: When, by the loop's clock, a job that isn't there is taken as not there at all.
        hear: Gets each snapshot of the job, where somebody wants to know how far it is.
        timer: Of the time to wait.
        seen: The newest snapshot.
        over: Whether the time to wait is over: it waits for one last look.
    """

    wanted_id: UUID
    future: asyncio.Future[Job | Literal[_GaveUp.GAVE_UP] | None]
    patience: float
    hear: Callable[[Job], None] | None = None
    timer: asyncio.TimerHandle | None = None
    seen: Job | None = None
    over: bool = False


@dataclass(slots=True)
class _Wanted:
    """A chain whose end somebody waits for; `missing` says that the newest look-up didn't find it."""

    waiters: list[Waiter] = field(default_factory=list[Waiter])
    missing: bool = False

    @property
    def again_after(self) -> float:
        """Seconds after which it's looked up again without having been told of."""
        if self.missing:
            return _MISSING_AGAIN_SECONDS
        return _PROGRESS_AGAIN_SECONDS if any(waiter.hear is not None for waiter in self.waiters) else math.inf


class Waiters:
    """All who wait for results in one client. Handles add themselves, and take themselves out again.

    Arguments:
        store: Open.
        poll_interval: Seconds after which everything is looked up anyway, since notifications may be lost.
    """

    def __init__(self, store: Store, poll_interval: float) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._wanted: dict[UUID, _Wanted] = {}
        self._stale: set[UUID] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_poll = 0.0
        self._next_again = math.inf
        self._closed = False

    def add(
        self,
        job_id: UUID,
        *,
        patience: float = 0.0,
        give_up_after: float | None = None,
        hear: Callable[[Job], None] | None = None,
    ) -> Waiter:
        """Begin to wait. Always `remove` it.

        Arguments:
            job_id: The end of whose chain; any step's id.
            patience: Seconds for which the job needn't be there yet.
            give_up_after: Seconds to wait, and then for one last look; None for ever.
            hear: Called with each snapshot of it, a few times a second; it mustn't raise.
        """
        if self._closed:
            raise ClientClosed("the client was closed")
        loop = asyncio.get_running_loop()
        waiter = Waiter(job_id, loop.create_future(), loop.time() + patience, hear)
        if give_up_after is not None:
            # In an empty context: asyncio keeps a cancelled timer until its time, and with it the context that it was made in.
            waiter.timer = loop.call_later(give_up_after, self._time_is_over, waiter, context=contextvars.Context())
        self._wanted.setdefault(job_id, _Wanted()).waiters.append(waiter)
        self._stale.add(job_id)
        self._wake.set()
        if self._task is None:
            self._start()
        return waiter

    def _start(self) -> None:
        # From an empty context: the first waiter's, such as a request's, would live on in it.
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="aioqueue results", context=contextvars.Context())
        self._task.add_done_callback(self._stopped, context=contextvars.Context())

    def _time_is_over(self, waiter: Waiter) -> None:
        """Have the chain looked up a last time, so that the timeout says at which step it is by now."""
        if waiter.future.done():
            return
        waiter.over = True
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(_LAST_LOOK_SECONDS, _resolve, waiter.future, GAVE_UP, context=contextvars.Context())
        self._stale.add(waiter.wanted_id)
        self._wake.set()

    def remove(self, waiter: Waiter) -> None:
        """End one wait: its future is cancelled, and the job isn't looked up any more if nobody else waits for it."""
        waiter.future.cancel()
        if waiter.timer is not None:
            waiter.timer.cancel()
        if (wanted := self._wanted.get(waiter.wanted_id)) is not None and waiter in wanted.waiters:
            wanted.waiters.remove(waiter)
            if not wanted.waiters:
                del self._wanted[waiter.wanted_id]
                self._stale.discard(waiter.wanted_id)

    async def aclose(self) -> None:
        """Let everybody know that the client is closed, and stop."""
        self._closed = True
        try:
            if (task := self._task) is not None:
                task.cancel()
                await asyncio.wait([task])
        finally:
            self._fail(ClientClosed("the client was closed while a result was awaited; the job goes on"))

    async def _run(self) -> None:
        self._plan_poll()
        # Subscribed before the first look, or an end in between would be seen by the poll only.
        with self._store.subscribe(self._notice, finished=True):
            while self._wanted:
                await self._wait()
                started = time.monotonic()
                try:
                    await self._look()
                except StoreUnavailable as error:
                    logger.warning(
                        "results can't be looked up at the moment, trying again: %s",
                        type(error).__name__,
                        extra=event("client.results_retried"),
                    )
                    pause = min(_LONGEST_PAUSE_SECONDS, self._poll_interval)
                    await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 - keeps many processes apart
                else:
                    # A store that can't tell whose end it was wakes everybody: at most half of the time goes into that.
                    await asyncio.sleep(min(time.monotonic() - started, _LONGEST_PAUSE_SECONDS))

    async def _look(self) -> None:
        self._add_due()
        ids, self._stale = [each for each in self._stale if each in self._wanted], set()
        try:
            for start in range(0, len(ids), _CHUNK_IDS):
                chunk = ids[start : start + _CHUNK_IDS]
                self._take(chunk, await self._store.fetch_ends(chunk))
        except StoreUnavailable:
            self._stale.update(ids)
            raise
        if self._next_again == math.inf:
            soonest = min((wanted.again_after for wanted in self._wanted.values()), default=math.inf)
            self._next_again = asyncio.get_running_loop().time() + soonest

    def _add_due(self) -> None:
        """Add what is looked up without anybody having told of it."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_poll:
            self._stale.update(self._wanted)
            self._plan_poll()
        elif now >= self._next_again:
            self._stale.update(job_id for job_id, wanted in self._wanted.items() if wanted.again_after < math.inf)
        else:
            return
        self._next_again = math.inf

    async def _wait(self) -> None:
        """Until something may have changed; at the latest, a poll interval."""
        self._wake.clear()
        if self._stale:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._next_poll, self._next_again)):
                await self._wake.wait()

    def _plan_poll(self) -> None:
        spread = random.uniform(0.9, 1.1)  # noqa: S311 - keeps the polls of many processes apart
        self._next_poll = asyncio.get_running_loop().time() + self._poll_interval * spread

    def _notice(self, notification: Notification) -> None:
        if notification.finished is None:
            self._stale.update(self._wanted)
        else:
            self._stale.update(each for each in notification.finished if each in self._wanted)
        if self._stale:
            self._wake.set()

    def _take(self, ids: Sequence[UUID], jobs: Sequence[Job | None]) -> None:
        now = asyncio.get_running_loop().time()
        for job_id, job in zip(ids, map(step_that_counts, jobs), strict=True):
            if (wanted := self._wanted.get(job_id)) is None:
                continue
            wanted.missing = job is None
            for waiter in wanted.waiters:
                waiter.seen = job or waiter.seen
                if waiter.hear is not None and job is not None:
                    waiter.hear(job)
                if (job is None and now >= waiter.patience) or (job is not None and job.state.finished):
                    _resolve(waiter.future, job)
                elif waiter.over:
                    _resolve(waiter.future, GAVE_UP)
            if job is not None and job.chain_id != job_id and not job.state.finished:
                self._wait_for_chain(job_id, job.chain_id)

    def _wait_for_chain(self, job_id: UUID, chain_id: UUID) -> None:
        """Have those who gave a later step's id wait by the chain's id: its end is told by that, and the step may be pruned.

        The chain is looked up once more, since it may have ended while nobody waited by its own id.
        """
        moved = self._wanted.pop(job_id).waiters
        for waiter in moved:
            waiter.wanted_id = chain_id
        self._wanted.setdefault(chain_id, _Wanted()).waiters.extend(moved)
        self._stale.discard(job_id)
        self._stale.add(chain_id)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            # The event loop ends, or the client is being closed.
            self._fail(ClientClosed("the client was closed while a result was awaited; the job goes on"))
        elif (error := task.exception()) is not None:
            logger.error("waiting for results has failed: %s", type(error).__name__, extra=event("client.results_failed"))
            self._fail(error)
        elif self._wanted and not self._closed:
            self._start()

    def _fail(self, error: BaseException) -> None:
        for wanted in self._wanted.values():
            for waiter in wanted.waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(error)
                    waiter.future.exception()  # one whose awaiter was cancelled has nobody to warn


def _resolve(
    future: asyncio.Future[Job | Literal[_GaveUp.GAVE_UP] | None], answer: Job | Literal[_GaveUp.GAVE_UP] | None
) -> None:
    if not future.done():
        future.set_result(answer)
