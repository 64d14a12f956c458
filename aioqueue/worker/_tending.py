"""Tends to what no claim leads to: those who wait for chains that have ended, and jobs that weren't started in time."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ClientClosed
from aioqueue.runtime._log import event
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls
from aioqueue.worker._lasting_task import LastingTask
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.abc import Store
    from aioqueue.telemetry._counters import Counters
    from aioqueue.vocabulary._blockers import Tended
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Tending"]

logger = logging.getLogger("aioqueue.worker")

EVERY_SECONDS = 5.0
"""Between looks, varied by half, so that several workers don't look at the same moment. A worker that knows of something left
looks at once."""
_MOST_JOBS = 500
"""That one portion changes, of each kind."""
_LONGEST_SECONDS = 60.0
"""That a portion may take until it's taken for one that hangs."""
_NOTHING_DONE_FIRST_SECONDS = 0.05
"""The first wait where a portion says that there's more, and has done nothing: somebody has locked what is left."""


class Tending:
    """Calls `Store.tend` now and then, in a task of its own: what fails or hangs there holds nothing else up.

    Arguments:
        store: Where the jobs are.
        name: The worker's.
        troubles: Where errors show, as `tend`.
        counters: What the run counts.
        wakeup: Wakes the main loop, once the store has been closed.

    Attributes:
        quiet: Whether nothing is known to be left: a portion that says so has ended since the last `soon`, or has failed.
        changes: How many portions have changed something.
    """

    def __init__(self, store: Store, name: str, *, troubles: Troubles, counters: Counters, wakeup: Wakeup) -> None:
        self._store = store
        self._worker = name
        self._name = one_line(name)
        self._troubles = troubles
        self._counters = counters
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._after_errors = Backoff(0.5, 4 * EVERY_SECONDS)
        self._nothing_done = Backoff(_NOTHING_DONE_FIRST_SECONDS, EVERY_SECONDS)
        self._portions = BoundedCalls("aioqueue portion of tending")
        self._task = LastingTask("aioqueue tending", self._portions, self._after_errors.next)
        self._quiet_listener: Callable[[], None] | None = None
        self.quiet = False
        self.changes = 0

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self, *, at_once: bool) -> None:
        """Begin to look, at once or at a moment of the first interval."""
        if at_once:
            self._woken.set()
        self._task.begin(self._run)

    def soon(self) -> None:
        """Look at once: a chain has ended, and not all who wait for that were told."""
        self.quiet = False
        self._woken.set()

    def tell_when_quiet(self, listener: Callable[[], None]) -> None:
        """Call somebody each time that nothing is known to be left."""
        self._quiet_listener = listener

    def stop(self) -> None:
        """Begin nothing more, and interrupt the statement that is under way. May be called again."""
        self._task.stop()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What there is to wait for once it's stopped."""
        return self._task.tasks

    def let_go(self) -> None:
        """Wait for nothing any more."""
        self._task.let_go()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._pause(random.uniform(0.0, EVERY_SECONDS))  # noqa: S311 - not for secrets
        while True:
            self._woken.clear()
            try:
                wait = self._done(await self._portions.call(self._store.tend(_MOST_JOBS), _LONGEST_SECONDS))
            except ClientClosed as error:
                self._wakeup.fail(error)
                return
            except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
                self._troubles.add("tend", error)
                self._rest()
                await asyncio.sleep(self._after_errors.next())  # also if somebody asks for it
                continue
            if wait:
                await self._pause(wait)

    async def _pause(self, seconds: float) -> None:
        """Wait for so many seconds, or until somebody knows that there is something to do."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _done(self, tended: Tended) -> float:
        """Note what a portion has done. Returns the seconds until the next one."""
        self._troubles.clear("tend")
        self._after_errors.reset()
        counters = self._counters
        counters.dependents_told += tended.resolved
        counters.dependents_failed += tended.failed
        counters.expired_unstarted += tended.expired
        if changed := bool(tended.resolved or tended.failed or tended.expired or tended.resumed):
            self.changes += 1
            self._log(tended)
        if tended.more:
            if changed:
                self._nothing_done.reset()
                return 0.0
            return self._nothing_done.next()
        self._nothing_done.reset()
        self._rest()
        return EVERY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets

    def _rest(self) -> None:
        if not self._woken.is_set():
            self.quiet = True
            if self._quiet_listener is not None:
                self._quiet_listener()

    def _log(self, tended: Tended) -> None:
        level = logging.WARNING if tended.failed or tended.expired else logging.DEBUG
        logger.log(
            level,
            "worker %s: ends of chains were told %d times; %d jobs have failed since what they waited for didn't complete, and "
            "%d were discarded since they weren't started in time; %d came back after a pause",
            self._name,
            tended.resolved,
            tended.failed,
            tended.expired,
            tended.resumed,
            extra=event(
                "worker.tended",
                worker=self._worker,
                told=tended.resolved,
                failed=tended.failed,
                expired=tended.expired,
                resumed=tended.resumed,
            ),
        )
