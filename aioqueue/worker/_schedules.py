"""Decides ticks of schedules, in a task of its own beside the main loop: what fails or hangs there holds no job up."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._due_ticks import job_of, tick_of, work_out
from aioqueue.errors import ClientClosed, StoreError
from aioqueue.runtime._batcher import NOT_ABOUT_ROWS
from aioqueue.runtime._left_behind import leave
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._schedules import SkippedTicks
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls
from aioqueue.worker._lasting_task import LastingTask
from aioqueue.worker._schedules_decided import MOST_TICKS, STATEMENT_SECONDS, Decisions, says_away
from aioqueue.worker._schedules_put_off import PutOff
from aioqueue.worker._schedules_told import SchedulesTold
from aioqueue.worker._text import described, stored_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioqueue.client import Client
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.telemetry._counters import Counters
    from aioqueue.vocabulary._schedules import StoredSchedule, Tick, Ticked
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Schedules"]

_SILENT_POLLS = 1.5
"""Poll intervals after which the main loop, which learns of the next tick where it has slots to fill, has no time to ask."""
_SILENT_LEAST_SECONDS = 1.0
_DECISION_SECONDS = 60.0
"""For one tick, with the middlewares around it, until it's left alone."""
_SPREAD_SECONDS = 0.03
"""Within which workers look for a tick that all of them expect: mostly one has decided it when the others look."""
_IN_VAIN_FIRST_SECONDS, _IN_VAIN_LONGEST_SECONDS = 0.05, 5.0
"""Between looks that the main loop asks for, and that come to nothing: a tick may be due that this worker can't decide."""
_MOST_ROUNDS = 100
"""That a worker which then ends decides."""
_LONGEST_REASON_CHARACTERS = 500


class Schedules:
    """Looks which ticks are due, works out what each enqueues, and has the store decide it: whoever is first does.

    It costs no statement while there are no schedules and slots are free: the main loop, which asks when the next job is due,
    is told the next tick with it (`expect`).

    Arguments:
        client: Whose store and enqueueing it is; a store that keeps no schedules is left alone.
        settings: The worker's.
        name: The worker's.
        cron: Whether this worker can work out cron expressions.
        troubles: Where errors show, as `schedules`.
        counters: What the run counts.
        wakeup: Wakes the main loop, once the store has been closed.

    Attributes:
        found: Whether there are any schedules, or were since it began.
    """

    def __init__(
        self,
        client: Client,
        settings: WorkerSettings,
        name: str,
        *,
        cron: bool,
        troubles: Troubles,
        counters: Counters,
        wakeup: Wakeup,
    ) -> None:
        self._client = client
        self._store = store = client.store if isinstance(client.store, SupportsSchedules) else None
        self._silent_seconds = max(_SILENT_POLLS * settings.poll_interval, _SILENT_LEAST_SECONDS)
        self._cron = cron
        self._troubles = troubles
        self._wakeup = wakeup
        self._told = SchedulesTold(name, client.observers, counters)
        self._loop = asyncio.get_running_loop()
        self._decisions = None if store is None else Decisions(store)
        self._put_off = PutOff(self._loop.time)
        self._statements = BoundedCalls("aioqueue statement of schedules")
        self._deciding: dict[asyncio.Task[None], str] = {}
        self._full = self._goes_on = False
        self._stirred = asyncio.Event()
        self._next_at, self._heard_at = math.inf, self._loop.time()
        self._not_before = self._rest_until = 0.0
        self._in_vain = Backoff(_IN_VAIN_FIRST_SECONDS, _IN_VAIN_LONGEST_SECONDS)
        self._after_errors = Backoff(0.5, 20.0)
        self._task = LastingTask("aioqueue schedules", self._statements, self._look_again)
        self._found_listener: Callable[[], None] | None = None
        self.found = False

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to look, once somebody knows of a tick."""
        if self._store is not None:
            self._task.begin(self._run)

    def expect(self, tick: float | None) -> None:
        """Hear from the main loop in how many seconds the next tick is; None without any."""
        now = self._heard_at = self._loop.time()
        if tick is not None:
            self._note_found()
            self._expect_at(max(now + tick, self._not_before))

    def soon(self) -> None:
        """Look at once: a schedule was stored or changed."""
        self._next_at = 0.0
        self._stirred.set()

    def tell_when_found(self, listener: Callable[[], None]) -> None:
        """Call somebody when it's seen for the first time that there are schedules."""
        self._found_listener = listener

    async def decide_due(self) -> bool:
        """Decide what is due, and wait until that's done, for a worker that ends by itself. Returns whether jobs were
        enqueued.
        """
        before = self._told.enqueued
        try:
            for _ in range(_MOST_ROUNDS):
                if self._task.stopped or self._store is None or not await self._look(self._store):
                    break
                while self._deciding:
                    await asyncio.wait(list(self._deciding))
                if not self._goes_on:
                    break
        except Exception as error:  # noqa: BLE001 - logged by the troubles
            self._troubles.add("schedules", error)
        return self._told.enqueued > before

    def stop(self) -> None:
        """Begin nothing more. What is being decided goes on. May be called again."""
        self._task.stop()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What there is to wait for once it's stopped."""
        return [*self._task.tasks, *self._deciding]

    def let_go(self) -> None:
        """Wait for nothing any more: what is still being decided is cancelled, and somebody else decides it."""
        self.stop()
        if self._decisions is not None:
            self._decisions.abort()
        for task in self.tasks:
            task.cancel()
            leave(task)

    # -- when to look -------------------------------------------------------------------------------------------------

    def _look_again(self) -> float:
        """Look as soon as it begins again, since a look may have been interrupted. Returns the seconds until then."""
        self.soon()
        return self._after_errors.next()

    def _expect_at(self, when: float) -> None:
        """Look at that time, by the event loop's clock."""
        if when < self._next_at - _SPREAD_SECONDS:
            self._next_at = when
            self._stirred.set()

    def _look_at(self) -> float:
        """When to look, by the event loop's clock."""
        expected = min(self._next_at, self._heard_at + self._silent_seconds, self._put_off.next_at())
        return max(expected, self._rest_until)

    async def _run(self) -> None:
        assert self._store is not None
        while True:
            await self._pause()
            try:
                await self._look(self._store)
            except ClientClosed as error:
                self._wakeup.fail(error)
                return
            except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
                self._fail(error)

    async def _pause(self) -> None:
        while (wait := self._look_at() - self._loop.time()) > 0:
            self._stirred.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._stirred.wait()
            except TimeoutError:
                pass

    def _fail(self, error: Exception) -> None:
        """The database is away, or what is wrong is no single schedule's."""
        now = self._loop.time()
        if now < self._rest_until:  # as one of several
            return
        self._troubles.add("schedules", error)
        self._rest_until = now + self._after_errors.next()
        self.soon()

    def _works(self) -> None:
        self._troubles.clear("schedules")
        self._after_errors.reset()

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look(self, store: SupportsSchedules) -> bool:
        """Begin to decide what is due. Returns whether there was something."""
        self._next_at, self._heard_at = math.inf, self._loop.time()
        room = MOST_TICKS - len(self._deciding)
        if room <= 0:  # it's looked again when there is
            return False
        without = {*self._deciding.values(), *self._put_off.waiting()}
        due = await self._statements.call(
            store.due_schedules(room, cron=self._cron, without=sorted(without)), STATEMENT_SECONDS
        )
        now = self._loop.time()
        if due.schedules or due.next_in is not None:
            self._note_found()
        if due.next_in is not None:
            self._expect_at(now + due.next_in + random.uniform(0.0, _SPREAD_SECONDS))  # noqa: S311 - not for secrets
        self._full, self._goes_on = len(due.schedules) >= room, False
        self._not_before = now + self._in_vain.next()  # unless something is decided
        if not due.schedules and not self._deciding:
            self._works()
        if not self._task.stopped:
            for schedule in due.schedules:
                self._begin_to_decide(schedule, due.now)
        return bool(due.schedules)

    def _note_found(self) -> None:
        if not self.found:
            self.found = True
            if self._found_listener is not None:
                self._found_listener()

    # -- one schedule -------------------------------------------------------------------------------------------------

    def _begin_to_decide(self, schedule: StoredSchedule, now: datetime) -> None:
        context = contextvars.Context()
        task = self._loop.create_task(self._decide(schedule, now), name="aioqueue tick", context=context)
        self._deciding[task] = schedule.name
        bound = self._loop.call_later(_DECISION_SECONDS, self._leave_alone, task, context=context)
        task.add_done_callback(functools.partial(self._decided, bound), context=context)

    def _leave_alone(self, task: asyncio.Task[None]) -> None:
        """One that hangs, and may do so whatever is done to it."""
        name = self._deciding.pop(task, None)
        if name is not None:
            self._put_off_for(name, f"it takes longer than {_DECISION_SECONDS:.0f} s")
        task.cancel()
        leave(task)

    def _decided(self, bound: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        bound.cancel()
        name = self._deciding.pop(task, None)
        if name is not None and task.cancelled() and not self._task.stopped:
            self._put_off_for(name, "it was cancelled: by an enqueue middleware, or by whoever cancels all tasks")
        if self._full and self._goes_on and len(self._deciding) <= MOST_TICKS // 2:
            self._full = False
            self.soon()

    async def _decide(self, schedule: StoredSchedule, now: datetime) -> None:
        name, seen, alone = schedule.name, self._loop.time(), schedule.name in self._put_off
        try:
            tick = _worked_out(schedule, now)
            ticked = await self._decide_or_skip(tick, alone=alone)
        except ClientClosed as error:
            self._wakeup.fail(error)
        except Exception as error:  # noqa: BLE001 - logged, by the troubles or for the schedule
            if says_away(error) and not alone:
                self._put_off.doubt(name)
                self._fail(error)
            else:
                self._put_off_for(name, described(error), quiet="schedules" in self._troubles.current)
        else:
            self._works()
            self._put_off.done(name)
            if tick.next_at is not None:
                self._expect_at(seen + (tick.next_at - now).total_seconds())
            if ticked.decided:
                self._goes_on, self._not_before = True, 0.0
                self._in_vain.reset()
                self._told.ticked(schedule, ticked)

    async def _decide_or_skip(self, tick: Tick, *, alone: bool) -> Ticked:
        """Decide a tick; one whose jobs the database refuses is skipped, so that the schedule goes on."""
        decisions, refused = self._decisions, list[StoreError]()
        assert decisions is not None

        async def decide(tick: Tick) -> Ticked:
            try:
                return await decisions.decide(tick, alone=alone)
            except StoreError as error:
                if not isinstance(error, NOT_ABOUT_ROWS):
                    refused.append(error)
                raise

        try:
            return await self._client.decide_tick(tick, decide)
        except Exception:
            if not refused or (newest := _newest_of(tick)) is None:
                raise
        reason = stored_text(f"the database refuses its job: {refused[0]}", _LONGEST_REASON_CHARACTERS)
        skipped = SkippedTicks(nominal_time=newest, count=len(tick.jobs), reason=reason)
        return await decisions.decide(replace(tick, jobs=(), skipped=(*tick.skipped, skipped)), alone=alone)

    def _put_off_for(self, name: str, reason: str, *, quiet: bool = False) -> None:
        """Try one again later, and alone. That isn't told while all fail."""
        if self._put_off.add(name, reason, quiet=quiet):
            self._told.put_off(name, reason)
        self._stirred.set()


def _worked_out(schedule: StoredSchedule, now: datetime) -> Tick:
    """What is to be decided of a schedule at a time of the database's clock.

    Raises:
        ConfigurationError: It can't be worked out in this process.
        ValueError: Its job can't be read.
    """
    due = work_out(schedule, now)
    return tick_of(schedule, due, [job_of(schedule, nominal_time) for nominal_time in due.nominal_times])


def _newest_of(tick: Tick) -> datetime | None:
    """The newest time of those that a tick would enqueue."""
    origins = [job.origin for job in tick.jobs if job.origin is not None]
    return max((each.nominal_time for each in origins if each.nominal_time is not None), default=None)
