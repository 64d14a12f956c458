"""Keeps what the code schedules stored, now and then, and has the next ticks worked out anew once an hour."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ClientClosed
from aioqueue.runtime._log import event
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls
from aioqueue.worker._lasting_task import LastingTask
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.vocabulary._schedules import Generation, NewSchedule, Reconciled
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._schedules import Schedules
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Reconciling"]

logger = logging.getLogger("aioqueue.worker")

EVERY_SECONDS = 30.0
"""Between two times at which this worker's generation says that it lives."""
_LIVE_SECONDS = 90.0
"""For which that counts: two may fail, or a process be frozen for a minute, before an older one is back."""
_RECOMPUTED_SECONDS = 3600.0
"""Between two times at which the next ticks are worked out anew, varied by a tenth."""
_STATEMENT_SECONDS = 20.0
"""That a statement may take until it's taken for one that hangs."""
_MOST_NAMED = 20


class Reconciling:
    """Says for a registry's code which schedules there are, as long as the worker runs, in a task of its own.

    Arguments:
        store: Where the schedules are; one that keeps none is left alone.
        generation: That of the code; None for a worker that doesn't serve all of its registry, or whose registry has no name.
        scheduled: The schedules of that generation.
        name: The worker's.
        schedules: Decides their ticks.
        troubles: Where errors show, as `reconcile`.
        wakeup: Wakes the main loop, once the store has been closed.
    """

    def __init__(
        self,
        store: Store,
        generation: Generation | None,
        scheduled: Sequence[NewSchedule],
        name: str,
        *,
        schedules: Schedules,
        troubles: Troubles,
        wakeup: Wakeup,
    ) -> None:
        self._store = store if isinstance(store, SupportsSchedules) else None
        self._generation = generation
        self._scheduled = scheduled
        self._worker = name
        self._name = one_line(name)
        self._schedules = schedules
        self._troubles = troubles
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._recompute_at = 0.0
        self._after_errors = Backoff(1.0, EVERY_SECONDS)
        self._state: tuple[bool, bool] | None = None
        self._taken: tuple[str, ...] = ()
        self._calls = BoundedCalls("aioqueue reconciling of schedules")
        self._task = LastingTask("aioqueue schedules in code", self._calls, self._after_errors.next)
        schedules.tell_when_found(self._woken.set)

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin, at once."""
        if self._store is not None:
            self._task.begin(partial(self._run, self._store))

    async def reconcile_once(self) -> None:
        """Store what the code schedules, for a worker that ends by itself."""
        if self._store is not None:
            await self._reconcile(self._store)

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

    async def _run(self, store: SupportsSchedules) -> None:
        while True:
            self._woken.clear()
            try:
                works = await self._reconcile(store)
                works = await self._recompute(store) and works
            except ClientClosed as error:
                self._wakeup.fail(error)
                return
            if works:
                self._after_errors.reset()
            await self._pause(self._next_in() if works else self._after_errors.next())

    def _next_in(self) -> float | None:
        """Seconds until there is something to do; None until the first schedule is found."""
        if self._generation is not None:
            return EVERY_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - not for secrets
        return max(self._recompute_at - self._loop.time(), 1.0) if self._schedules.found else None

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _reconcile(self, store: SupportsSchedules) -> bool:
        """Store what the code schedules. Returns whether that went well."""
        if self._generation is None:
            return True
        try:
            became = await self._calls.call(
                store.reconcile_schedules(self._generation, self._scheduled, _LIVE_SECONDS), _STATEMENT_SECONDS
            )
        except ClientClosed:
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
            self._troubles.add("reconcile", error)
            return False
        self._became(self._generation, became)
        return True

    async def _recompute(self, store: SupportsSchedules) -> bool:
        """Have the next ticks worked out anew, if it's time, and there are any. Returns whether that went well."""
        if not self._schedules.found or self._loop.time() < self._recompute_at:
            return True
        try:
            recomputed = await self._calls.call(store.recompute_schedules(), _STATEMENT_SECONDS)
        except ClientClosed:
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
            self._troubles.add("schedules", error)
            return False
        spread = random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        self._recompute_at = self._loop.time() + _RECOMPUTED_SECONDS * spread
        if recomputed:
            self._schedules.soon()
        return True

    # -- telling ------------------------------------------------------------------------------------------------------

    def _became(self, generation: Generation, became: Reconciled) -> None:
        if became.refused:
            self._troubles.note(
                "reconcile",
                f"the release {generation.release} of {one_line(generation.owner)} is there with other schedules: "
                "give a higher number",
            )
        elif became.taken:
            self._troubles.note("reconcile", f"schedules in code whose names are taken don't tick: {_named(became.taken)}")
        else:
            self._troubles.clear("reconcile")
        if became.taken != self._taken:
            self._taken = became.taken
            if became.taken:
                self._log_taken(generation, became.taken)
        if self._state != (state := (became.current, became.refused)):
            first, self._state = self._state is None, state
            if became.refused:
                self._log_refused(generation)
            elif not became.current:
                self._log_superseded(generation)
            elif not first:
                logger.info(
                    "worker %s: the schedules of %s are those of its code again",
                    self._name,
                    one_line(generation.owner),
                    extra=event("schedule.current", worker=self._worker, registry=generation.owner),
                )
        if became.changed or became.removed:
            self._schedules.soon()
            logger.info(
                "worker %s: schedules of %s: stored or changed: %s; removed: %s",
                self._name,
                one_line(generation.owner),
                _named(became.changed),
                _named(became.removed),
                extra=event(
                    "schedule.reconciled",
                    worker=self._worker,
                    registry=generation.owner,
                    changed=list(became.changed),
                    removed=list(became.removed),
                ),
            )

    def _log_refused(self, generation: Generation) -> None:
        logger.error(
            "worker %s: its schedules aren't stored: the release %s of %s is there with other ones, of which nobody can tell "
            "whether they're newer: give a higher number (release=, AIOQUEUE_RELEASE)",
            self._name,
            generation.release,
            one_line(generation.owner),
            extra=event("schedule.release_refused", worker=self._worker, registry=generation.owner, release=generation.release),
        )

    def _log_taken(self, generation: Generation, names: tuple[str, ...]) -> None:
        logger.error(
            "worker %s: schedules of %s aren't stored, and don't tick, as somebody else has put schedules with their names: "
            "%s: `aioqueue schedules delete NAME` removes those that were put at run time",
            self._name,
            one_line(generation.owner),
            _named(names),
            extra=event("schedule.name_taken", worker=self._worker, registry=generation.owner, names=list(names)),
        )

    def _log_superseded(self, generation: Generation) -> None:
        logger.info(
            "worker %s: the schedules of %s are those of newer code, which other workers have: this one's don't tick",
            self._name,
            one_line(generation.owner),
            extra=event("schedule.superseded", worker=self._worker, registry=generation.owner, release=generation.release),
        )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name) for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{shown}{more}" or "none"
