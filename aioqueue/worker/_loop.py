"""The main loop: fill the free slots, reap what dead workers left, wait. Everything else only wakes it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from aioqueue._job import LostReason
from aioqueue.errors import ClientClosed, LeaseLost, StoreIncompatible
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue._job import Claim
    from aioqueue._settings import WorkerSettings
    from aioqueue.abc import Notification, Renewal, Store
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._lease import LeaseKeeper
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._slots import Slots
    from aioqueue.worker._writer import Writer

__all__ = ["Loop"]

logger = logging.getLogger("aioqueue.worker")

_CONTENDED = 0.02
_SAME_BODY = 5.0


class Loop:
    """See above. `slots`, `writer`, `keeper` and `recovery` are set by whoever makes it."""

    slots: Slots
    writer: Writer
    keeper: LeaseKeeper
    recovery: Recovery

    def __init__(self, store: Store, types: Sequence[str], settings: WorkerSettings, name: str, troubles: Troubles) -> None:
        self._store = store
        self._types = tuple(types)
        self._wanted = frozenset(types)
        self._settings = settings
        self._name = name
        self._troubles = troubles
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._contended = Backoff(_CONTENDED, 1.0)
        self._claiming = False
        self._hungry = True
        self._once = False
        self._suspects: frozenset[Claim] = frozenset()
        self._opening: asyncio.Task[int] | None = None
        self.lease_id: int | None = None
        self.lease_until = 0.0
        self.last_claim: float | None = None
        self.stopping = False

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, *, once: bool = False) -> None:
        """Work until `stopping`; with `once`, until nothing is due.

        Raises:
            StoreIncompatible: The schema doesn't fit this code any more.
            ClientClosed: The client was closed.
        """
        backoff = Backoff()
        self._once = once
        while not self.stopping:
            self._woken.clear()
            was_idle = self._idle()
            try:
                asked, claimed = await self.fill()
                drained = claimed < asked
                self._hungry = not drained
                reaped = await self.reap() if self.recovery.wait() <= 0 else 0
                if not reaped and (drained or self.slots.free <= 0):
                    due = await self._next_due() if drained else None
                    self._hungry = not drained or due == 0.0  # what is due, and wasn't claimed, was locked
                    if once and self._idle():
                        if claimed or not was_idle:
                            continue  # what has ended since may be due again already, and wasn't when that was asked
                        # A retry without a wait may be due a fraction of a millisecond from now.
                        if due is None or due > 0.05:
                            return
                    await self.wait(due)
                backoff.reset()
            except (StoreIncompatible, ClientClosed):
                raise
            except Exception as error:  # noqa: BLE001 - logged by the troubles; the loop goes on
                self._troubles.add("claim", error)
                self.recovery.disturbed()
                await self.pause(backoff.next())

    async def fill(self) -> tuple[int, int]:
        """Claim as many jobs as there are free slots, and start them. Returns how many were asked for, and got."""
        if self.lease_id is None:
            await self.open_lease()
        assert self.lease_id is not None
        free = self.slots.free
        if free <= 0:
            return 0, 0
        self._claiming = True
        try:
            jobs = await self._store.claim(self.lease_id, self._types, free)
        except LeaseLost:
            self.keeper.renew_now()
            raise
        finally:
            self._claiming = False
        self.last_claim = time.monotonic()
        self._troubles.clear("claim")
        for job in jobs:
            if self.stopping or job.lease_id != self.lease_id:
                self.writer.give_back(job.lease_id, job.claim)
            elif self.slots.runs_body_of(job):
                self.writer.put_off(job, _SAME_BODY)
            else:
                self.slots.start(job)
        return free, len(jobs)

    async def reap(self) -> int:
        """Take over the jobs of one dead worker, if it's time."""
        try:
            reaped = await self.recovery.reap()
        except Exception as error:  # noqa: BLE001 - logged by the troubles; tried again later
            self._troubles.add("reap", error)
            self.recovery.disturbed()
            return 0
        self._troubles.clear("reap")
        return reaped

    async def wait(self, due: float | None) -> None:
        """Sleep until a notification, a finished slot, a due job, or the poll interval."""
        wait = self._settings.poll_interval * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        if due is not None:
            wait = min(wait, due if due > 0 else self._contended.next())
        if due != 0:
            self._contended.reset()
        wait = min(wait, max(self.recovery.wait(), 0.05))
        await self.pause(wait)

    # -- what wakes it ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look again."""
        self._woken.set()

    def freed(self) -> None:
        """A slot is free, or an outcome written. After a claim that got less than it asked for nothing more is due: the
        store will tell when there is, so that looking again would be in vain.
        """
        if self._hungry or (self._once and self._idle()):
            self._woken.set()

    def stop(self) -> None:
        """Claim nothing more."""
        self.stopping = True
        self._woken.set()

    def notified(self, notification: Notification) -> None:
        """What the store tells."""
        if self.lease_id in notification.leases:
            self.keeper.renew_now()
        if notification.types is None or not self._wanted.isdisjoint(notification.types):
            if notification.delay <= 0:
                self._woken.set()
            else:
                self._wake_in(notification.delay)

    def _wake_in(self, delay: float) -> None:
        """Have a timer at the latest in `delay` seconds. An early one does no harm, so it's moved only forward."""
        when = self._loop.time() + delay
        if self._timer is not None and not self._timer.cancelled() and self._loop.time() < self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._woken.set)

    async def pause(self, wait: float) -> None:
        """Sleep until something wakes the loop, at most so many seconds; also if it was woken since its turn began."""
        if self.stopping:
            return
        self._wake_in(wait)
        await self._woken.wait()

    def close(self) -> None:
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    async def _next_due(self) -> float | None:
        return await self._store.next_due(self._types)

    def _idle(self) -> bool:
        return not self.slots.running and not self.writer.waiting

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def open_lease(self) -> None:
        """Get a lease, and have it renewed."""
        before = time.monotonic()
        opening = self._opening = self._loop.create_task(
            self._store.open_lease(self._name, self._settings.lease), name="aioqueue opening of a lease"
        )
        # If this is cancelled, the answer may be on its way: `late_lease` waits for it, so that no lease is left behind.
        self.lease_id = await asyncio.shield(opening)
        self._opening = None
        self.lease_until = before + self._settings.lease
        self.keeper.use(self.lease_id)

    async def late_lease(self, longest: float) -> int | None:
        """The lease whose opening was interrupted, if the answer comes within `longest` seconds."""
        opening, self._opening = self._opening, None
        if opening is None:
            return None
        try:
            await asyncio.wait([opening], timeout=longest)
        finally:
            opening.cancel()
        if not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        return opening.result()

    def renewed(self, lease_id: int, renewal: Renewal) -> None:
        """What the lease's thread was told."""
        self._troubles.clear("renew")
        if lease_id != self.lease_id:
            return
        self.recovery.in_contact()
        if not renewal.valid:
            logger.warning("worker %s: the lease %d is lost; its jobs are no longer ours", one_line(self._name), lease_id)
            self.lease_id = None
            self.lease_until = 0.0
            self.keeper.use(None)
            self.recovery.disturbed()
            self.slots.lose(self.slots.held.values(), LostReason.TAKEN)
            self.wake()
            return
        if self.lease_until < time.monotonic():
            self.wake()  # claims were refused meanwhile
        self.lease_until = time.monotonic() + self._settings.lease
        for claim, reason in renewal.lost.items():
            slot = self.slots.running.get(claim)
            if slot is not None:
                self.slots.lose([slot], reason)
        self._give_back_unheld(lease_id, renewal)

    def _give_back_unheld(self, lease_id: int, renewal: Renewal) -> None:
        """What is ours by the database's word, and not by our own, at two renewals: a claim's answer was lost."""
        if self._claiming:
            self._suspects = frozenset()
            return
        unheld = frozenset(claim for claim in renewal.unheld if claim not in self.slots.held)
        for claim in unheld & self._suspects:
            logger.warning("worker %s: job %s is given back: the answer to its claim was lost", one_line(self._name), claim.id)
            self.writer.give_back(lease_id, claim)
        self._suspects = unheld

    def renewal_failed(self, error: Exception) -> None:
        """The lease's thread couldn't reach the database."""
        self._troubles.add("renew", error)
        self.recovery.disturbed()
