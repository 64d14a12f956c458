"""The main loop: fill the free slots, reap what dead workers left, wait. Everything else only wakes it."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.abc import Due
from aioqueue.errors import ClientClosed, LeaseLost, StoreIncompatible
from aioqueue.worker._backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue._settings import WorkerSettings
    from aioqueue.abc import Notification, Store
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._lease import Lease
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._slots import Slots
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Loop"]

logger = logging.getLogger("aioqueue.worker")

_CONTENDED_SECONDS = 0.02
_BODY_RUNS_SECONDS = 5.0
"""For how long a job is put off while an earlier body of it still runs in this process."""
_AS_GOOD_AS_NOW_SECONDS = 0.05


class _Turn(NamedTuple):
    """What came of one turn of the loop.

    Attributes:
        claimed: How many jobs were claimed.
        due: What to wait for; None to go on at once.
    """

    claimed: int = 0
    due: Due | None = None


class Loop:
    """Claims jobs for free slots, and takes over those of dead workers.

    Arguments:
        store: Where the jobs are.
        types: Names of the job types to claim.
        settings: The worker's.
        wakeup: What wakes it.
        holdings, slots, writer, lease, recovery: The worker's other parts.
        troubles: Where errors show.
    """

    def __init__(
        self,
        store: Store,
        types: Sequence[str],
        settings: WorkerSettings,
        *,
        wakeup: Wakeup,
        holdings: Holdings,
        slots: Slots,
        writer: Writer,
        lease: Lease,
        recovery: Recovery,
        troubles: Troubles,
    ) -> None:
        self._store = store
        self._types = tuple(types)
        self._wanted = frozenset(types)
        self._settings = settings
        self._wakeup = wakeup
        self._holdings = holdings
        self._slots = slots
        self._writer = writer
        self._lease = lease
        self._recovery = recovery
        self._troubles = troubles
        self._backoff = Backoff()
        self._contended = Backoff(_CONTENDED_SECONDS, 1.0)
        self.last_claim: float | None = None
        self.stopping = False

    async def run(self) -> None:
        """Work until `stop`.

        Raises:
            StoreIncompatible: The schema doesn't fit this code any more.
            ClientClosed: The client was closed.
        """
        while not self.stopping:
            turn = await self._turn()
            if turn.due is not None:
                await self.wait(turn.due)

    async def run_until_idle(self) -> None:
        """Work until nothing is due, nothing runs and nothing waits to be written, or until `stop`. Raises as `run`."""
        self._wakeup.until_idle = True
        while not self.stopping:
            was_idle = self._holdings.idle
            turn = await self._turn()
            if turn.due is None:
                continue
            if self._holdings.idle:
                if turn.claimed or not was_idle:
                    continue  # what has ended since may be due again already, and wasn't when that was asked
                # A retry without a wait may be due a fraction of a millisecond from now.
                if turn.due.job is None or turn.due.job > _AS_GOOD_AS_NOW_SECONDS:
                    return
            await self.wait(turn.due)

    async def _turn(self) -> _Turn:
        """Fill, and reap; then see what there is to wait for. What fails is logged, and the loop goes on."""
        self._wakeup.begin_turn()
        try:
            asked, claimed = await self.fill()
            reaped = await self.reap()
            drained = claimed < asked
            self._wakeup.hungry = not drained
            if reaped or not (drained or self._slots.free <= 0):
                return _Turn(claimed)
            due = await self._store.next_due(self._types, own=self._lease.own) if drained else Due()
            self._wakeup.hungry = not drained or due.job == 0.0  # what is due, and wasn't claimed, was locked
        except (StoreIncompatible, ClientClosed):
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; the loop goes on
            self._troubles.add("claim", error)
            self._recovery.disturbed()
            await self._pause(self._backoff.next())
            return _Turn()
        self._backoff.reset()
        return _Turn(claimed, due)

    # -- the three verbs ----------------------------------------------------------------------------------------------

    async def fill(self) -> tuple[int, int]:
        """Claim as many jobs as there are free slots, and start them. Returns how many were asked for, and got."""
        lease_id = await self._lease.opened()
        free = self._slots.free
        if free <= 0:
            return 0, 0
        try:
            with self._lease.claiming():
                jobs = await self._store.claim(lease_id, self._types, free)
        except LeaseLost:
            self._lease.renew_now()
            raise
        self.last_claim = time.monotonic()
        self._troubles.clear("claim")
        for job in jobs:
            if self.stopping or job.lease_id != self._lease.id:
                self._holdings.hold(job)  # until it's given back, so that a stop can name it
                self._writer.give_back(job.lease_id, job.claim)
            elif self._slots.runs_body_of(job):
                self._writer.put_off(job, _BODY_RUNS_SECONDS)
            else:
                self._slots.start(job)
        return free, len(jobs)

    async def reap(self) -> int:
        """Take over the jobs of one dead worker, if it's time."""
        if self._recovery.wait() > 0:
            return 0
        try:
            reaped = await self._recovery.reap(self._lease.own)
        except (StoreIncompatible, ClientClosed):
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; tried again later
            self._troubles.add("reap", error)
            self._recovery.disturbed()
            return 0
        self._troubles.clear("reap")
        return reaped

    async def wait(self, due: Due) -> None:
        """Sleep until a notification, a finished slot, a due job, or the poll interval."""
        wait = self._settings.poll_interval * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        if due.job is not None:
            wait = min(wait, due.job if due.job > 0 else self._contended.next())
        if due.job != 0:
            self._contended.reset()
        await self._pause(min(wait, max(self._recovery.wait(), 0.05)))

    async def _pause(self, wait: float) -> None:
        if not self.stopping:
            await self._wakeup.pause(wait)

    # -- what others tell it ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Claim nothing more."""
        self.stopping = True
        self._wakeup.wake()

    def notified(self, notification: Notification) -> None:
        """What the store tells."""
        if self._lease.id in notification.leases:
            self._lease.renew_now()
        if notification.types is None or not self._wanted.isdisjoint(notification.types):
            if notification.delay <= 0:
                self._wakeup.wake()
            else:
                self._wakeup.wake_in(notification.delay)
