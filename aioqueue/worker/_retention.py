"""Removes what finished long ago, now and then: one process at a time, in portions that commit one by one."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from aioqueue.definitions._signature import is_async_function
from aioqueue.errors import ClientClosed, ConfigurationError
from aioqueue.events import JobDeleted
from aioqueue.runtime._batcher import NOT_ABOUT_ROWS
from aioqueue.runtime._log import event
from aioqueue.vocabulary._abilities import SupportsRetention
from aioqueue.vocabulary._job import Job, StoredState
from aioqueue.vocabulary._safe_text import safe_repr, type_name
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls, Hangs
from aioqueue.worker._lasting_task import LastingTask
from aioqueue.worker._text import described, one_line
from aioqueue.worker._threads import HandlerThreads, Raised

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.telemetry._counters import Counters
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["OnPurge", "Retention", "checked_on_purge"]

OnPurge: TypeAlias = "Callable[[Sequence[Job]], Awaitable[object] | object]"
"""What is given chains before they're removed: of each the step that ended it."""

logger = logging.getLogger("aioqueue.worker")

_DUTY, _DUTY_OF_CALLBACKS = "retention", "retention with on_purge"
_MOST_CHAINS = 1_000
"""That one portion removes, and rows that it looks at. Where workers are busy, most of a portion's time is spent on waiting for
its turn: small ones wouldn't keep up with what ends meanwhile."""
_DUTY_SECONDS = 5.0
"""After which it's looked again, within a round, whether this process is the one that removes."""
_LONGEST_SECONDS = 60.0
"""That a statement may take until it's taken for one that hangs."""
_LONGEST_CALLBACK_SECONDS = 300.0
"""That a callback may take. The duty is kept for longer, so that nobody else removes meanwhile what it's called for."""
_LONGEST_PAUSE_SECONDS = 1.0
"""Between two portions: as long as removing the one before took, so that half of the time is the others'."""
_WHOLE_SECONDS = 3600.0
"""Between rounds that look at all that is there. Those between them go on where the one before has come to: what is passed by,
since it's kept for longer, may be most of it."""
_MOST_FAILURES_IN_TURN = 12
"""After which a round ends: what fails is no single chain. A portion is halved ten times until one is alone."""


_MOST_TOLD = 1_000
"""Chains of which the log says that they aren't removed."""


class Retention:
    """Has the store remove old chains, in a task of its own: what fails or hangs there holds nothing else up.

    One process does it, whoever has taken the duty, and keeps it by taking it again each round. A process that is called before
    jobs are removed (`on_purge`) takes another duty besides: while somebody has that, processes without a callback remove
    nothing.

    Arguments:
        client: Whose store it is; one that can't do it is left alone. Its observers are told of what was removed.
        settings: How long jobs are kept, and how often that's looked at.
        name: The worker's.
        on_purge: Called before jobs are removed, if given.
        troubles: Where errors show, as `retention`.
        counters: What the run counts.
        wakeup: Wakes the main loop, once the store has been closed.
    """

    def __init__(
        self,
        client: Client,
        settings: WorkerSettings,
        name: str,
        on_purge: OnPurge | None,
        *,
        troubles: Troubles,
        counters: Counters,
        wakeup: Wakeup,
    ) -> None:
        self._operations = store = client.store
        self._store = store if isinstance(store, SupportsRetention) else None
        self._every = settings.retention_interval
        self._ages = _ages(settings)
        self._worker = name
        self._holder = f"{name} {uuid4()}"
        self._callback = None if on_purge is None else _Callback(on_purge, name)
        self._troubles = troubles
        self._counters = counters
        self._observers = client.observers
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()
        self._portion = _MOST_CHAINS
        self._reached: str | None = None
        self._whole_at = -math.inf
        self._failures = 0
        self._error: Exception | None = None
        self._kept: set[UUID] = set()
        self._calls = BoundedCalls("aioqueue portion of retention")
        self._task = LastingTask("aioqueue retention", self._calls, lambda: self._every)

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to look, at a moment of the first interval."""
        if self._store is not None and self._every:
            self._task.begin(partial(self._run, self._store))

    def stop(self) -> None:
        """Begin nothing more, and interrupt the statement that is under way. May be called again."""
        self._task.stop()
        if self._callback is not None:
            self._callback.close()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What there is to wait for once it's stopped."""
        return self._task.tasks

    def let_go(self) -> None:
        """Wait for nothing any more."""
        self.stop()
        self._task.let_go()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self, store: SupportsRetention) -> None:
        backoff = Backoff(min(1.0, self._every), self._every)
        wait = self._every * random.uniform(0.0, 1.0)  # noqa: S311 - not for secrets
        while True:
            await asyncio.sleep(wait)
            try:
                removed = await self._round(store)
            except ClientClosed as error:
                self._wakeup.fail(error)
                return
            except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
                self._troubles.add("retention", error)
                self._portion = max(self._portion // 2, 1)  # perhaps its statements take too long
                wait = backoff.next()
                continue
            if self._failures > _MOST_FAILURES_IN_TURN and self._error is not None:
                self._troubles.add("retention", self._error)
            else:
                self._troubles.clear("retention")
            backoff.reset()
            if removed:
                self._log(removed)
            wait = self._every * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets

    async def _round(self, store: SupportsRetention) -> int:
        """Remove what is old enough by now, portion by portion. Returns how many chains that were.

        They come by the time from which they may be removed, so that a later round goes on behind what an earlier one has seen.
        Now and then one begins anew, for what was committed late, or is old only since the rest of its chain is gone.
        """
        removed, began = 0, self._loop.time()
        if began - self._whole_at >= _WHOLE_SECONDS:
            self._reached, self._whole_at = None, began
        cursor, all_gone = self._reached, True
        self._failures = 0
        ours_until = 0.0
        while True:
            if self._loop.time() >= ours_until:
                if not await self._is_ours(store):
                    break
                ours_until = self._loop.time() + _DUTY_SECONDS
            page = await self._calls.call(store.find_old(self._ages, self._portion, cursor), _LONGEST_SECONDS)
            removal_began = self._loop.time()
            gone = await self._remove(store, page.ids)
            removed += gone
            cursor, all_gone = page.cursor, all_gone and gone == len(page.ids)
            if cursor is not None and all_gone:
                self._reached = cursor
            if cursor is None or self._failures > _MOST_FAILURES_IN_TURN:
                return removed
            self._portion = min(2 * self._portion, _MOST_CHAINS)
            await asyncio.sleep(min(self._loop.time() - removal_began, _LONGEST_PAUSE_SECONDS))
        self._whole_at = -math.inf  # it's another one's by now, who may leave some behind
        return removed

    async def _is_ours(self, store: SupportsRetention) -> bool:
        """Take the duty, or keep it. Without a callback only if nobody lives who has one."""
        duration = 3 * self._every + _LONGEST_SECONDS
        if self._callback is not None:
            duration += _LONGEST_CALLBACK_SECONDS
            return await self._take(store, _DUTY_OF_CALLBACKS, duration) and await self._take(store, _DUTY, duration)
        if not await self._take(store, _DUTY, duration):
            return False
        free = await self._take(store, _DUTY_OF_CALLBACKS, duration)
        await self._take(store, _DUTY_OF_CALLBACKS if free else _DUTY, 0.0)
        return free

    async def _take(self, store: SupportsRetention, duty: str, duration: float) -> bool:
        taken: bool = await self._calls.call(store.take_duty(duty, self._holder, duration), _LONGEST_SECONDS)
        return taken

    async def _remove(self, store: SupportsRetention, chains: Sequence[UUID]) -> int:
        """Remove chains, after whoever is to be called was. What fails because of one of them is halved until that's alone."""
        if not chains or self._failures > _MOST_FAILURES_IN_TURN:
            return 0
        if self._failures and not await self._is_ours(store):  # callbacks that fail may have taken long
            return 0
        jobs = await self._fetched(chains)
        error = await self._called(jobs)
        gone: Sequence[UUID] = ()
        if error is None:
            try:
                gone = await self._calls.call(store.purge(chains, self._ages), _LONGEST_SECONDS)
            except (*NOT_ABOUT_ROWS, TimeoutError):
                raise
            except Exception as wrong:  # noqa: BLE001 - logged, for the chain that is at fault
                error = wrong
        if error is not None:
            self._failures, self._error = self._failures + 1, error
            if len(chains) > 1 and not isinstance(error, Hangs):
                middle = len(chains) // 2
                return await self._remove(store, chains[:middle]) + await self._remove(store, chains[middle:])
            self._log_kept(chains[0], error)
            return 0
        self._failures = 0
        self._counters.chains_removed += len(gone)
        if self._observers.active:
            self._tell_observers(jobs, set(gone))
        return len(gone)

    async def _fetched(self, chains: Sequence[UUID]) -> Sequence[Job]:
        """The steps that ended the chains, if anybody wants to know them."""
        if self._callback is None and not self._observers.active:
            return ()
        found: Sequence[Job | None] = await self._calls.call(self._operations.fetch_ends(chains), _LONGEST_SECONDS)
        return [job for job in found if job is not None]

    async def _called(self, jobs: Sequence[Job]) -> Exception | None:
        """Call whoever is to be called before they're removed. Returns what was raised."""
        if self._callback is None or not jobs:
            return None
        try:
            await self._calls.call(self._callback.call(jobs), _LONGEST_CALLBACK_SECONDS)
        except Exception as error:  # noqa: BLE001 - handed back, and logged
            return error
        return None

    # -- telling ------------------------------------------------------------------------------------------------------

    def _tell_observers(self, jobs: Sequence[Job], gone: set[UUID]) -> None:
        now = datetime.now(UTC)
        for job in jobs:
            if job.chain_id in gone:
                self._observers.tell(
                    JobDeleted(at=now, job_id=job.id, chain_id=job.chain_id, job_type=job.type, attempt=job.attempt)
                )

    def _log(self, removed: int) -> None:
        logger.info(
            "worker %s: %d chains that had ended long enough ago were removed",
            one_line(self._worker),
            removed,
            extra=event("worker.removed_old", worker=self._worker, chains=removed),
        )

    def _log_kept(self, chain: UUID, error: Exception) -> None:
        """Tell, once, that a chain can't be removed, or the first of several that can't be told apart."""
        if chain in self._kept or len(self._kept) >= _MOST_TOLD:
            return
        self._kept.add(chain)
        logger.warning(
            "worker %s: the chain %s is old enough, and isn't removed: %s",
            one_line(self._worker),
            chain,
            described(error),
            extra=event("worker.old_kept", worker=self._worker, chain_id=str(chain)),
        )


class _Callback:
    """Calls whoever is to be called before jobs are removed: `async def` in the event loop, a plain function in a thread.

    Arguments:
        on_purge: What is called.
        name: The worker's.
    """

    def __init__(self, on_purge: OnPurge, name: str) -> None:
        self._on_purge = on_purge
        self._threads = HandlerThreads(f"retention of {name}")
        self._running: asyncio.Future[object] | None = None

    async def call(self, jobs: Sequence[Job]) -> None:
        """Call it, and wait until it has returned. Raises what it raises."""
        function: Any = self._on_purge
        if is_async_function(function):
            await function(jobs)
            return
        if self._running is not None and not self._running.done():
            raise Hangs("the call before this one hasn't returned")
        self._running = running = self._threads.run(lambda: function(jobs), lambda: None)
        await asyncio.wait([running])
        result = running.result()
        if isinstance(result, Raised):
            error = result.error
            raise error if isinstance(error, Exception) else RuntimeError(f"on_purge raised {type_name(error)}") from error
        if inspect.isawaitable(result):
            await result

    def close(self) -> None:
        """Let its thread end."""
        self._threads.close()


def checked_on_purge(value: Any) -> OnPurge | None:
    """Check what is to be called before jobs are removed, when a worker is made.

    Raises:
        ConfigurationError: It can't be called.
    """
    if value is not None and not callable(value):
        raise ConfigurationError(f"on_purge is a function that takes jobs, `async def` or `def`, not {safe_repr(value)}")
    function: OnPurge | None = value
    return function


def _ages(settings: WorkerSettings) -> Mapping[StoredState, float]:
    """Seconds that jobs are kept, by how they have ended; those that are kept for ever aren't among them."""
    completed, failed = settings.retention_completed, settings.retention_failed
    ages = {
        StoredState.COMPLETED: completed,
        StoredState.CONTINUED: completed,
        StoredState.FAILED: failed,
        StoredState.CANCELLED: failed,
    }
    return {state: age for state, age in ages.items() if age}
