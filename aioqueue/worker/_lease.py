"""The worker's lease: opened before the first claim, kept by the lease's thread, given up when it's lost."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue._job import LostReason
from aioqueue.errors import ClientClosed
from aioqueue.worker._lease_thread import LeaseThread
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioqueue._job import Claim
    from aioqueue._settings import WorkerSettings
    from aioqueue.abc import Renewal, Store
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Lease"]

logger = logging.getLogger("aioqueue.worker")


class Lease:
    """What the event loop knows of the lease, and what it does when the lease's thread brings news.

    Arguments:
        store: Where it is.
        settings: How long it lasts, and how often it's renewed.
        name: The worker's.
        holdings: What is lost together with it.
        writer: Gives back what turns out to be ours without our knowing.
        wakeup: Wakes the loop.
        recovery: Told when something keeps us from the database.
        troubles: Where errors show.

    Attributes:
        id: None while there is none.
        valid_until: When it ends, as far as is known here, by the monotonic clock.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        name: str,
        *,
        holdings: Holdings,
        writer: Writer,
        wakeup: Wakeup,
        recovery: Recovery,
        troubles: Troubles,
    ) -> None:
        self._store = store
        self._duration = settings.lease
        self._name = name
        self._holdings = holdings
        self._writer = writer
        self._wakeup = wakeup
        self._recovery = recovery
        self._troubles = troubles
        self._loop = asyncio.get_running_loop()
        self._claiming = False
        self._suspects: frozenset[Claim] = frozenset()
        self._opening: asyncio.Task[int] | None = None
        self._thread = LeaseThread(store, settings, holdings.held, on_renewal=self._renewed, on_error=self._renewal_failed)
        self._thread.start(name)
        self.id: int | None = None
        self.valid_until = 0.0

    @property
    def valid(self) -> bool:
        """Whether the database has confirmed it within its duration."""
        return time.monotonic() < self.valid_until

    @property
    def own(self) -> tuple[int, ...]:
        """The leases that are ours: nobody takes its own."""
        return () if self.id is None else (self.id,)

    async def opened(self) -> int:
        """Give the lease's id; open one, and have it renewed, if there is none.

        Raises:
            StoreError: It can't be opened.
        """
        if self.id is not None:
            return self.id
        before = time.monotonic()
        opening = self._opening = self._loop.create_task(
            self._store.open_lease(self._name, self._duration), name="aioqueue opening of a lease"
        )
        # If this is cancelled, the answer may be on its way: `end` waits for it, so that no lease is left behind.
        self.id = await asyncio.shield(opening)
        self._opening = None
        self.valid_until = before + self._duration
        self._thread.use(self.id)
        return self.id

    @contextmanager
    def claiming(self) -> Generator[None]:
        """Within the block a claim is under way: what the database knows as ours may be on its way to us."""
        self._claiming = True
        try:
            yield
        finally:
            self._claiming = False

    def renew_now(self) -> None:
        """Don't wait for the time to come: there is doubt."""
        self._thread.renew_now()

    async def end(self, *, keep: bool, longest: float, late: float) -> None:
        """Renew it no more, and end it, with which all that it still holds is given back.

        Arguments:
            keep: Leave it to run out instead: something of it still runs, or isn't written.
            longest: Seconds that ending it may take.
            late: Seconds to wait for a lease whose opening was interrupted.
        """
        lease_id, self.id = self.id, None
        self._thread.use(None)
        if lease_id is None:
            lease_id = await self._late(late)
        if lease_id is None or keep:
            return
        try:
            async with asyncio.timeout(longest):
                await self._store.release(lease_id, [], end=True)
        except Exception as error:  # noqa: BLE001 - logged; the lease runs out by itself
            logger.warning("worker %s: the lease wasn't ended: %s", one_line(self._name), one_line(repr(error)))

    async def _late(self, longest: float) -> int | None:
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

    def let_go(self) -> None:
        """Let the thread end. May be called twice."""
        self._thread.stop()

    async def close(self, longest: float) -> None:
        """End the thread, and wait for it for at most `longest` seconds."""
        self.let_go()
        await asyncio.wait([self._thread.ended], timeout=longest)

    # -- what the thread brings ---------------------------------------------------------------------------------------

    def _renewed(self, lease_id: int, renewal: Renewal) -> None:
        self._troubles.clear("renew")
        if lease_id != self.id:
            return
        self._recovery.in_contact()
        if not renewal.valid:
            logger.warning("worker %s: the lease %d is lost; its jobs are no longer ours", one_line(self._name), lease_id)
            self.id = None
            self.valid_until = 0.0
            self._thread.use(None)
            self._recovery.disturbed()
            self._holdings.lose(self._holdings.held.values(), LostReason.TAKEN)
            self._wakeup.wake()
            return
        if not self.valid:
            self._wakeup.wake()  # claims were refused meanwhile
        self.valid_until = time.monotonic() + self._duration
        for claim, reason in renewal.lost.items():
            slot = self._holdings.running.get(claim)
            if slot is not None:
                self._holdings.lose([slot], reason)
        self._give_back_unheld(lease_id, renewal)

    def _give_back_unheld(self, lease_id: int, renewal: Renewal) -> None:
        """What is ours by the database's word, and not by our own, at two renewals: a claim's answer was lost."""
        if self._claiming:
            self._suspects = frozenset()
            return
        unheld = frozenset(claim for claim in renewal.unheld if claim not in self._holdings.held)
        for claim in unheld & self._suspects:
            logger.warning("worker %s: job %s is given back: the answer to its claim was lost", one_line(self._name), claim.id)
            self._writer.give_back(lease_id, claim)
        self._suspects = unheld

    def _renewal_failed(self, error: Exception) -> None:
        if isinstance(error, ClientClosed):
            self._wakeup.fail(error)
        self._troubles.add("renew", error)
        self._recovery.disturbed()
