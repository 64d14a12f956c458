"""Takes over the jobs of workers that died, when it's sure that they had the chance to say that they didn't."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aioqueue._job import SettlementKind
from aioqueue.worker._outcome import Policy, worker_lost
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue._registry import Registry
    from aioqueue._settings import WorkerSettings
    from aioqueue.abc import Store

__all__ = ["Recovery"]

logger = logging.getLogger("aioqueue.worker")

_LIMIT = 200


class Recovery:
    """Reaps expired leases.

    After an outage that was longer than the leases, all are expired, and their owners alive: who is back first must
    wait until the others could renew theirs. So nothing is taken within a renewal interval of a start, an error, a
    gap in our own renewals, or a step of the clock.

    Arguments:
        store: Where the leases are.
        registry: Whose policies count, where a job has none of its own.
        settings: The worker's.
        name: The worker's.
    """

    def __init__(self, store: Store, registry: Registry, settings: WorkerSettings, name: str) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._name = name
        self._clocks = time.time() - time.monotonic()
        self._quiet_since = time.monotonic()
        self._last_contact = time.monotonic()
        self._next = 0.0
        self.interval = settings.lease / 3
        self.recovered = 0

    def disturbed(self) -> None:
        """Something went wrong between us and the database."""
        self._quiet_since = time.monotonic()

    def in_contact(self) -> None:
        """The lease was renewed."""
        now = time.monotonic()
        if now - self._last_contact > 2 * self._settings.renew_every:
            self.disturbed()
        self._last_contact = now

    def wait(self) -> float:
        """Seconds until the next look is due."""
        settled = self._quiet_since + self._settings.renew_every
        return max(settled, self._next) - time.monotonic()

    async def reap(self, own: Collection[int]) -> int:
        """Take one expired lease's jobs, if it's time.

        Arguments:
            own: Leases of this worker: they aren't taken.

        Returns:
            How many jobs were recovered.

        Raises:
            StoreError: The database is away; nothing is lost.
        """
        clocks = time.time() - time.monotonic()
        if abs(clocks - self._clocks) > 1.0:
            self._clocks = clocks
            self.disturbed()
        if self.wait() > 0:
            return 0
        jobs = await self._store.take_expired(_LIMIT, own=own)
        self._next = time.monotonic() + (0.0 if jobs else self.interval)
        if not jobs:
            return 0
        outcomes = [
            worker_lost(
                job,
                Policy.of(
                    job, self._registry.types.get(job.type), self._settings.default_retry, self._settings.max_reschedules
                ),
            )
            for job in jobs
        ]
        settlements = [outcome.settlement(job) for outcome, job in zip(outcomes, jobs, strict=True)]
        results = await self._store.settle(settlements, orphaned=True)
        written = [each.kind for each, result in zip(settlements, results, strict=True) if result.lost is None]
        failed = sum(kind is SettlementKind.FAILED for kind in written)
        self.recovered += len(written)
        logger.warning(
            "worker %s: took over %d jobs of lost workers: %d will be tried again, %d failed for good",
            one_line(self._name),
            len(written),
            len(written) - failed,
            failed,
        )
        return len(written)
