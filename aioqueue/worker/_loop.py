"""The main loop: fill free slots, look what is due next, reap what dead workers left, wait. Everything else only wakes it."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.errors import ClientClosed, LeaseLost, SingletonHeld, StoreIncompatible
from aioqueue.vocabulary._answers import Due
from aioqueue.worker._backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._gates import Gates
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._schedules import Schedules
    from aioqueue.worker._slots import Slots
    from aioqueue.worker._standby import Standby
    from aioqueue.worker._type_concurrency import TypeConcurrency
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Loop", "Turn"]

_CONTENDED_SECONDS = 0.02
"""The first wait for jobs that are due and couldn't be claimed, since somebody has locked them."""
_CONTENDED_LONGEST_SECONDS = 1.0
_RECOVERY_LEAST_SECONDS = 0.05


@dataclass(slots=True)
class Turn:
    """What one turn of the loop has come to. The verbs write it; `Loop.run` hands it to whoever may end the loop.

    Attributes:
        began_idle: Whether nothing ran, and nothing waited to be written, when it began.
        asked, claimed: How many jobs it wanted to claim, and how many it has claimed.
        due: What there is to wait for; nothing where that needn't be known, or couldn't be asked.
        reaped: How many jobs of dead workers were recovered.
        retry_in: Seconds until what has failed, or wasn't possible, is tried again.
        certain: Whether `due` is all there is to wait for: nothing has failed, and nothing kept us from claiming. What reaping
            suffers says nothing of that.
        goes_on: Whether the next turn follows at once.
        some_are_full: Whether there are types of which no more may run, though slots may be free.
    """

    began_idle: bool
    asked: int = 0
    claimed: int = 0
    due: Due = field(default_factory=Due)
    reaped: int = 0
    retry_in: float = math.inf
    certain: bool = False
    goes_on: bool = False
    some_are_full: bool = False

    @property
    def drained(self) -> bool:
        """Whether there was less to claim than slots to fill."""
        return self.claimed < self.asked


class Loop:
    """Claims jobs for free slots, and takes over those of dead workers.

    Arguments:
        store: Where the jobs are.
        types: Names of the job types to claim.
        settings: The worker's.
        wakeup: What wakes it.
        holdings, slots, leases, standby, recovery, schedules, type_concurrency, gates: The worker's other parts.
        troubles: Where errors show.

    Attributes:
        last_claim: When a claim has succeeded last (an empty one too), by the monotonic clock; None before the first.
        stopping: Whether `stop` was called.
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
        leases: Leases,
        standby: Standby,
        recovery: Recovery,
        schedules: Schedules,
        type_concurrency: TypeConcurrency,
        gates: Gates,
        troubles: Troubles,
    ) -> None:
        self._store = store
        self._claimed_types: Sequence[str] = tuple(types)
        self._poll_seconds = settings.poll_interval
        self._dry_run = settings.dry_run
        self._wakeup = wakeup
        self._holdings = holdings
        self._slots = slots
        self._leases = leases
        self._standby = standby
        self._recovery = recovery
        self._schedules = schedules
        self._type_concurrency = type_concurrency
        self._gates = gates
        self._troubles = troubles
        # By the names that people see in the troubles: filling is a claim there, and looking asks the store for `next_due`.
        self._backoffs = {part: Backoff() for part in ("claim", "next_due", "reap")}
        self._contended = Backoff(_CONTENDED_SECONDS, _CONTENDED_LONGEST_SECONDS)
        self.last_claim: float | None = None
        self.stopping = False

    async def run(self, *, enough: Callable[[Turn], bool] | None = None) -> None:
        """Work until `stop`.

        Arguments:
            enough: Asked after each turn that the loop would wait after: whether it ends instead.

        Raises:
            StoreIncompatible: The schema doesn't fit this code any more.
            ClientClosed: The client was closed.
            SingletonHeld: Another worker has the name that only one may have, and that isn't to be waited for.
        """
        while not self.stopping:
            turn = await self._turn()
            if turn.goes_on:
                continue
            if enough is not None and enough(turn):
                return
            await self.wait(turn)

    def stop(self) -> None:
        """Claim nothing more, and begin nothing more: a claim that is under way is given back."""
        self.stopping = True
        self._slots.stop()
        self._wakeup.wake()

    async def _turn(self) -> Turn:
        """Fill, look, reap. One that fails doesn't keep the others from their work."""
        self._wakeup.begin_turn()
        turn = Turn(began_idle=self._holdings.idle)
        await self._tried("claim", self.fill, turn)
        self._wakeup.more_may_be_due = not turn.drained
        if turn.drained:
            await self._tried("next_due", self.look, turn)
        turn.certain = turn.retry_in == math.inf
        # What is due, and wasn't claimed, was locked.
        self._wakeup.more_may_be_due = not turn.drained or turn.due.job == 0.0 or not turn.certain or turn.some_are_full
        await self._tried("reap", self.reap, turn)
        turn.goes_on = turn.reaped > 0 or (turn.claimed > 0 and not turn.drained and self._slots.free > 0)
        return turn

    async def _tried(self, part: str, verb: Callable[[Turn], Awaitable[None]], turn: Turn) -> None:
        """Do what a verb does. If it fails that's told, and it's tried again a little later."""
        try:
            await verb(turn)
        except (StoreIncompatible, ClientClosed, SingletonHeld):
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; the loop goes on
            self._troubles.add(part, error)
            self._recovery.verb_failed(error)
            turn.retry_in = min(turn.retry_in, self._backoffs[part].next())

    def _works(self, part: str) -> None:
        self._troubles.clear(part)
        self._backoffs[part].reset()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def fill(self, turn: Turn) -> None:
        """Claim as many jobs as there are free slots, and hand them to the slots."""
        leases = self._leases
        if not leases.complete:
            await self._standby.opened()
            if not leases.complete:
                turn.retry_in = self._standby.retry_in
                return
        free = self._slots.free
        if free <= 0:
            turn.retry_in = self._slots.rested_in
            return
        claimable = leases.claimable()
        if claimable is None:
            turn.retry_in = self._poll_seconds
            return
        served = self._gates.claimable(claimable.types)
        if len(served) < len(claimable.types):
            turn.retry_in = self._gates.claimable_in
        names, quotas = self._type_concurrency.claimable(served)
        if not names:
            return
        try:
            with leases.claiming():
                jobs = await self._store.claim(
                    claimable.lease_id,
                    names,
                    free,
                    leases=claimable.leases,
                    dry_run=self._dry_run,
                    quotas=quotas,
                    **self._gates.asked(names),
                )
        except LeaseLost:
            leases.renew_now()
            raise
        self._works("claim")
        counters = self._holdings.counters
        counters.claims += 1
        counters.claimed += len(jobs)
        self.last_claim = time.monotonic()
        self._slots.take(jobs)
        turn.asked, turn.claimed = free, len(jobs)
        self._claimed_types, _ = self._type_concurrency.claimable(served)
        turn.some_are_full = len(self._claimed_types) < len(claimable.types)

    async def look(self, turn: Turn) -> None:
        """Ask when a job is due, when a lease of somebody else runs out, and when the next tick of a schedule is."""
        turn.due = await self._store.next_due(
            self._claimed_types, own=self._leases.own, **self._gates.asked(self._claimed_types)
        )
        self._works("next_due")
        self._recovery.expect(turn.due.lease)
        self._schedules.expect(turn.due.tick)

    async def reap(self, turn: Turn) -> None:
        """Take over the jobs of one dead worker, if it's time."""
        if self._recovery.due_in() <= 0:
            turn.reaped = await self._recovery.reap(self._leases.own)
            self._holdings.counters.reaped += turn.reaped
            self._works("reap")

    async def wait(self, turn: Turn) -> None:
        """Sleep until a notification, a finished slot, a due job, a lease that runs out, or the poll interval."""
        wait = self._poll_seconds * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        due = turn.due.job
        if due is not None:
            wait = min(wait, due if due > 0 else self._contended.next())
        if due != 0:
            self._contended.reset()
        if not turn.drained:
            wait = min(wait, self._slots.rested_in)
        wait = min(wait, turn.retry_in, max(self._recovery.due_in(), _RECOVERY_LEAST_SECONDS))
        if not self.stopping:
            await self._wakeup.pause(wait)
