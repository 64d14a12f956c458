"""The main loop: fill the free slots, reap what dead workers left, wait. Everything else only wakes it."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aioqueue.abc import Due
from aioqueue.errors import ClientClosed, LeaseLost, StoreIncompatible
from aioqueue.worker._backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.abc import Notification, Store
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._slots import Slots
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Loop"]

T = TypeVar("T")

_NOTHING = (0, 0)

_CONTENDED_SECONDS = 0.02
_BODY_RUNS_SECONDS = 5.0
"""For how long a job is put off while an earlier body of it still runs in this process."""
_AS_GOOD_AS_NOW_SECONDS = 0.05


class _Turn(NamedTuple):
    """What came of one turn of the loop.

    Attributes:
        claimed: How many jobs were claimed.
        due: What to wait for; None to go on at once.
        known: Whether that is all there is to wait for: nothing has failed, and nothing kept us from claiming.
    """

    claimed: int = 0
    due: Due | None = None
    known: bool = True


class Loop:
    """Claims jobs for free slots, and takes over those of dead workers.

    Arguments:
        store: Where the jobs are.
        types: Names of the job types to claim.
        settings: The worker's.
        wakeup: What wakes it.
        holdings, slots, writer, leases, recovery: The worker's other parts.
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
        leases: Leases,
        recovery: Recovery,
        troubles: Troubles,
    ) -> None:
        self._store = store
        self._claimed_types: Sequence[str] = tuple(types)
        self._wanted = frozenset(types)
        self._settings = settings
        self._wakeup = wakeup
        self._holdings = holdings
        self._slots = slots
        self._writer = writer
        self._leases = leases
        self._recovery = recovery
        self._troubles = troubles
        self._backoffs = {part: Backoff() for part in ("claim", "next_due", "reap")}
        self._again_in = math.inf
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
            if self._holdings.idle and turn.known:
                if turn.claimed or not was_idle:
                    continue  # what has ended since may be due again already, and wasn't when that was asked
                # A retry without a wait may be due a fraction of a millisecond from now.
                if turn.due.job is None or turn.due.job > _AS_GOOD_AS_NOW_SECONDS:
                    return
            await self.wait(turn.due)

    async def _turn(self) -> _Turn:
        """Fill; see what there is to wait for; reap. One that fails doesn't keep the others from their work."""
        self._wakeup.begin_turn()
        self._again_in = math.inf
        asked, claimed = await self._tried("claim", self.fill, _NOTHING)
        drained = claimed < asked
        self._wakeup.hungry = not drained
        due = await self._tried("next_due", self.look, Due()) if drained else Due()
        known = self._again_in == math.inf
        self._wakeup.hungry = not drained or due.job == 0.0 or not known  # what is due, and wasn't claimed, was locked
        reaped = await self._tried("reap", self.reap, 0)
        if reaped or (claimed and not drained and self._slots.free > 0):
            return _Turn(claimed)
        return _Turn(claimed, due, known)

    async def _tried(self, part: str, verb: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """Do what a verb does. If it fails that's told, and it's tried again a little later."""
        try:
            return await verb()
        except (StoreIncompatible, ClientClosed):
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; the loop goes on
            self._troubles.add(part, error)
            self._recovery.heard(error)
            self._again_in = min(self._again_in, self._backoffs[part].next())
            return otherwise

    def _works(self, part: str) -> None:
        self._troubles.clear(part)
        self._backoffs[part].reset()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def fill(self) -> tuple[int, int]:
        """Claim as many jobs as there are free slots, and start them. Returns how many were asked for, and got."""
        leases = self._leases
        await leases.opened()
        free = self._slots.free
        if free <= 0:
            return _NOTHING
        claimable = leases.claimable()
        if claimable is None:
            self._again_in = self._settings.poll_interval
            return _NOTHING
        try:
            with leases.claiming():
                jobs = await self._store.claim(claimable.lease_id, claimable.types, free, leases=claimable.leases)
        except LeaseLost:
            leases.renew_now()
            raise
        self._works("claim")
        self._claimed_types = claimable.types
        self.last_claim = time.monotonic()
        live = {lease_id for lease_id in {job.lease_id for job in jobs} if leases.may_start(lease_id)}
        for job in jobs:
            if self.stopping or job.lease_id not in live:
                self._holdings.hold(job)  # until it's given back, so that a stop can name it
                self._writer.give_back(job.lease_id, job.claim)
            elif self._slots.runs_body_of(job):
                self._writer.put_off(job, _BODY_RUNS_SECONDS)
            else:
                self._slots.start(job)
        return free, len(jobs)

    async def look(self) -> Due:
        """Ask when a job is due, and when a lease of somebody else runs out."""
        due = await self._store.next_due(self._claimed_types, own=self._leases.own)
        self._works("next_due")
        self._recovery.expect(due.lease)
        return due

    async def reap(self) -> int:
        """Take over the jobs of one dead worker, if it's time. Returns how many there were."""
        if self._recovery.wait() > 0:
            return 0
        reaped = await self._recovery.reap(self._leases.own)
        self._works("reap")
        return reaped

    async def wait(self, due: Due) -> None:
        """Sleep until a notification, a finished slot, a due job, a lease that runs out, or the poll interval."""
        wait = self._settings.poll_interval * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        if due.job is not None:
            wait = min(wait, due.job if due.job > 0 else self._contended.next())
        if due.job != 0:
            self._contended.reset()
        await self._pause(min(wait, self._again_in, max(self._recovery.wait(), 0.05)))

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
        if notification.leases:
            self._leases.told_of(notification.leases)
        if notification.types is None or not self._wanted.isdisjoint(notification.types):
            if notification.delay <= 0:
                self._wakeup.wake()
            else:
                self._wakeup.wake_in(notification.delay)
