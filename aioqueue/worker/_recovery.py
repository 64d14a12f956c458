"""Takes over the jobs of workers that died, when it's sure that they had the chance to say that they didn't."""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING

from aioqueue.definitions._observers import Observers
from aioqueue.errors import ClientClosed, LeaseLost, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._observed import tell_outcome
from aioqueue.worker._outcome import unless_asked_to_end, worker_lost
from aioqueue.worker._refusal import Refusal
from aioqueue.worker._text import job_event, one_line
from aioqueue.worker._waiting_orphans import WaitingOrphans

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.worker._outcome import Outcome
    from aioqueue.worker._policy import Policies

__all__ = ["Recovery"]

logger = logging.getLogger("aioqueue.worker")

_MOST_JOBS = 200
"""That are taken at once."""
_JITTER_SECONDS = 0.5
"""Within which idle workers look at a lease that has run out, so that not all of them do at once."""
_SOON_SECONDS = 0.05
_OFTEN_IN_VAIN = 20
"""Looks in a row that bring nothing, after which they are rarer: while jobs are left that nobody can settle now, the store
can't tell when the next lease runs out."""


class Recovery:
    """Reaps expired leases.

    After an outage that was longer than the leases, all are expired, and their owners alive: who is back first must
    wait until the others could renew theirs. So nothing is taken within a renewal interval of a start, of an outage, of a
    gap in our own renewals, or of a step of the clock.

    An idle worker is told by the store when the first lease of somebody else runs out (`expect`), and looks then. Besides,
    each looks every third of a lease: one that is too busy to ask, and where the store can't tell. What other verbs suffer
    doesn't put a look off, unless it says that the database was out of reach; and a job that can't be settled is put off alone.

    Arguments:
        store: Where the leases are.
        policies: What counts for the jobs that are recovered.
        settings: The worker's.
        name: The worker's.
        renew_every: Seconds between the renewals of the lease of ours that is renewed most often.
        left: Called where not all were told who wait for the chain of a job that has failed.
        observers: Who observes the worker; by default nobody.
    """

    def __init__(
        self,
        store: Store,
        policies: Policies,
        settings: WorkerSettings,
        name: str,
        *,
        renew_every: float | None = None,
        left: Callable[[], None] | None = None,
        observers: Observers | None = None,
    ) -> None:
        self._store = store
        self._left = left
        self._observers = Observers() if observers is None else observers
        self._policies = policies
        self._settings = settings
        self._name = one_line(name)
        self._renewal = max(settings.renew_every, renew_every or 0.0)
        self._clocks = time.time() - time.monotonic()
        self._quiet_since = self._last_contact = time.monotonic()
        self._first_heard = -math.inf
        self._blind = self._not_before = 0.0
        self._expected = math.inf
        self.interval = settings.lease / 3
        self._after_errors = Backoff(1.0, self.interval)
        self._in_vain = 0
        self._portion = _MOST_JOBS
        self._waiting = WaitingOrphans(name, self.interval)

    # -- when to look -------------------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        """We were out of contact with the database, and maybe not alone."""
        self._quiet_since = time.monotonic()

    def in_contact(self) -> None:
        """A lease was renewed, or opened."""
        now = time.monotonic()
        if now - self._last_contact > 2 * self._renewal:
            self.disturbed()
        self._last_contact = now

    def verb_failed(self, error: Exception) -> None:
        """A verb has failed. That we were out of contact, it may say for one renewal interval in two leases.

        After that it's trouble of the verb's own: an outage shows in our renewals too.
        """
        if not isinstance(error, (StoreUnavailable, LeaseLost)):
            return
        now = time.monotonic()
        if now - self._first_heard > 2 * self._settings.lease:
            self._first_heard = now
        if now - self._first_heard <= self._renewal:
            self.disturbed()

    def expect(self, lease: float | None) -> None:
        """Hear from the store in how many seconds the first lease of somebody else runs out; None without any."""
        now = time.monotonic()
        if lease != 0:
            self._in_vain = 0
        if lease is None:
            self._expected = math.inf
        elif lease > 0 or self._expected > now + _JITTER_SECONDS:
            self._expected = now + lease + random.uniform(0, _JITTER_SECONDS)  # noqa: S311 - not for secrets
        # Else the moment was chosen already.

    def due_in(self) -> float:
        """Seconds until the next look is due."""
        settled = self._quiet_since + self._renewal
        return max(settled, self._not_before, min(self._expected, self._blind)) - time.monotonic()

    def _may_look(self) -> bool:
        now = time.monotonic()
        clocks = time.time() - now
        if abs(clocks - self._clocks) > 1.0:
            self._clocks = clocks
            self.disturbed()
        if now - self._last_contact > 2 * self._renewal:
            self.disturbed()
        return self.due_in() <= 0

    # -- looking ------------------------------------------------------------------------------------------------------

    async def reap(self, own: Collection[int]) -> int:
        """Take one expired lease's jobs, if it's time.

        Arguments:
            own: Leases of this worker: they aren't taken.

        Returns:
            How many jobs were recovered.

        Raises:
            StoreError: The database is away; nothing is lost.
        """
        if not self._may_look():
            return 0
        try:
            limit = _MOST_JOBS + len(self._waiting)
            taken = await self._store.take_expired(limit, own=own)
            now = time.monotonic()
            if len(taken) < limit:
                self._waiting.forget_others(taken)
            recovered = await self._recover(*self._waiting.ready(taken))
        except Exception:
            self._blind = self._not_before = time.monotonic() + self._after_errors.next()
            raise
        finally:
            self._waiting.tell()
        self._after_errors.reset()
        if recovered:
            self._blind, self._in_vain = now, 0  # where one was, there may be more
            return recovered
        self._blind = now + self.interval
        if self._expected <= now:
            self._came_in_vain(now, nothing=not taken)
        return 0

    def _came_in_vain(self, now: float, *, nothing: bool) -> None:
        """The store had told of something, and nothing was recovered. See soon what it tells by now.

        If it gave nothing at all, a lease without jobs was taken, or somebody else was faster. Else its jobs are put off, or
        somebody else writes them.
        """
        self._in_vain = self._in_vain + 1 if nothing else _OFTEN_IN_VAIN
        wait = _SOON_SECONDS if self._in_vain < _OFTEN_IN_VAIN else random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
        self._expected = self._not_before = now + wait

    # -- settling -----------------------------------------------------------------------------------------------------

    async def _recover(self, new: Sequence[ClaimedJob], again: Sequence[ClaimedJob]) -> int:
        """Settle the new ones together, then each alone that couldn't be settled before. Returns how many were written."""
        written: list[SettlementKind] = []
        left = [(job, self._outcome(job)) for job in new]
        try:
            while left:
                portion, left = left[: self._portion], left[self._portion :]
                await self._settle(portion, written)
            for job in again:
                await self._settle([(job, self._outcome(job))], written)
        finally:
            if written:
                gone, cancelled = written.count(SettlementKind.FAILED), written.count(SettlementKind.CANCELLED)
                logger.warning(
                    "worker %s: took over %d jobs of lost workers: %d will be tried again, %d failed for good%s",
                    self._name,
                    len(written),
                    len(written) - gone - cancelled,
                    gone,
                    f", {cancelled} were cancelled" if cancelled else "",
                    extra=event("recovery.taken_over", worker=self._name, jobs=len(written), failed=gone, cancelled=cancelled),
                )
        return len(written)

    def _outcome(self, job: ClaimedJob) -> Outcome:
        try:
            return worker_lost(job, self._policies.of(job))
        except Exception:
            logger.exception(
                "%s %s: its policy is broken: the usual one counts instead",
                one_line(job.type),
                job.id,
                extra=job_event("recovery.policy_failed", job, self._name),
            )
            return worker_lost(job, self._policies.of_last_resort(job))

    async def _settle(self, portion: Sequence[tuple[ClaimedJob, Outcome]], written: list[SettlementKind]) -> None:
        """Write some of them, each on its own. What is busy or refused stays for a later look."""
        try:
            results = await self._store.settle([outcome.settlement(job) for job, outcome in portion], orphaned=True)
        except ClientClosed:
            raise
        except StoreUnavailable as error:
            # Not now. And if one of them is the reason, it's alone before long.
            if len(portion) > 1:
                self._portion = len(portion) // 2
            else:
                self._waiting.add(portion[0][0], str(error))
            raise
        except Exception as error:  # noqa: BLE001 - halved until the guilty one is alone
            # A schema that doesn't fit too: a trigger that looks for a missing table raises the same. Claims tell what it is.
            if len(portion) > 1:
                middle = len(portion) // 2
                await self._settle(portion[:middle], written)
                await self._settle(portion[middle:], written)
            else:
                await self._fail(portion[0][0], str(error), written)
            return
        if len(portion) == self._portion:
            self._portion = min(_MOST_JOBS, 2 * self._portion)
        for (job, outcome), result in zip(portion, results, strict=True):
            if result.busy:
                self._waiting.add(job)
            elif result.lost is LostReason.ERROR:
                await self._fail(job, result.message, written)
            elif result.lost is None:
                written.append(SettlementKind.CANCELLED if result.cancelled else outcome.kind)
                self._tell(job, outcome, result)
                self._look_what_is_left(result)

    def _tell(self, job: ClaimedJob, outcome: Outcome, result: SettleResult) -> None:
        if self._observers.active:
            written = unless_asked_to_end(job, outcome, "") if result.cancelled else outcome
            tell_outcome(self._observers, job, written, reaped=True)

    def _look_what_is_left(self, result: SettleResult) -> None:
        if result.more and self._left is not None:
            self._left()

    async def _fail(self, job: ClaimedJob, why: str, written: list[SettlementKind]) -> None:
        """What was to be written of a job was refused: it fails, with less and less said of it."""
        refusal = Refusal(one_line(why))
        while not refusal.hopeless:
            try:
                (result,) = await self._store.settle([refusal.instead(job).settlement(job)], orphaned=True)
            except (ClientClosed, StoreUnavailable):
                raise
            except Exception as error:  # noqa: BLE001 - as a result that says so
                result = SettleResult(LostReason.ERROR, str(error))
            if result.busy:
                self._waiting.add(job)
                return
            if result.lost is None:
                written.append(SettlementKind.CANCELLED if result.cancelled else SettlementKind.FAILED)
                self._tell(job, refusal.instead(job), result)
                self._look_what_is_left(result)
                logger.error(
                    "%s %s: of a lost worker: the outcome was refused: %s",
                    one_line(job.type),
                    job.id,
                    refusal.reason,
                    extra=job_event("recovery.outcome_refused", job, self._name),
                )
            if result.lost is not LostReason.ERROR:
                return
            refusal = refusal.again()
        self._waiting.add(job, f"nothing can be written about it: {refusal.reason}")
