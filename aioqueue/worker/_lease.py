"""The worker's leases: opened before the first claim, kept by the leases' thread, given up when they're lost."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.definitions._settings import longest_try
from aioqueue.errors import ClientClosed
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker._lease_thread import KeptLease, LeaseThread
from aioqueue.worker._text import one_line
from aioqueue.worker._unheld import Unheld

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from aioqueue.abc import Store
    from aioqueue.vocabulary._answers import Renewal
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Holdings, Slot
    from aioqueue.worker._lease_groups import LeaseGroup
    from aioqueue.worker._recovery import Recovery
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._watchdog import Watchdog
    from aioqueue.worker._writer import Writer

__all__ = ["Claimable", "Leases"]

logger = logging.getLogger("aioqueue.worker")

_FROZEN_SECONDS = 5.0


class Claimable(NamedTuple):
    """What may be claimed, and for which leases: as `Store.claim` wants it."""

    lease_id: int
    types: Sequence[str]
    leases: Mapping[str, int] | None


class Leases:
    """What the event loop knows of the leases, and what it does when their thread brings news.

    Arguments:
        store: Where they are.
        groups: One lease each.
        name: The worker's.
        holdings: What is lost together with a lease.
        writer: Gives back what turns out to be ours without our knowing.
        wakeup: Wakes the loop.
        recovery: Told when something keeps us from the database.
        watchdog: Looks at the event loop, from the leases' thread.
        troubles: Where errors show.
        singleton: The name that only one valid lease may have, and the first one of these is to have; None for none.

    Attributes:
        groups: As given: each knows its lease, while it has one.
    """

    def __init__(
        self,
        store: Store,
        groups: Sequence[LeaseGroup],
        name: str,
        *,
        holdings: Holdings,
        writer: Writer,
        wakeup: Wakeup,
        recovery: Recovery,
        watchdog: Watchdog,
        troubles: Troubles,
        singleton: str | None = None,
    ) -> None:
        self._store = store
        self._singleton = singleton
        self.groups = groups
        self._name = one_line(name)
        self._worker = name
        self._holdings = holdings
        self._wakeup = wakeup
        self._recovery = recovery
        self._troubles = troubles
        self._unheld = Unheld(name, holdings, writer)
        self._loop = asyncio.get_running_loop()
        self._by_id: dict[int, LeaseGroup] = {}
        self._all: Claimable | None = None
        self._refused = False
        self._lost: dict[int, float] = {}
        self._connected = self._over = False
        self._opening: asyncio.Task[int] | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._longest_try = longest_try(min(group.duration for group in groups))
        self._thread = LeaseThread(
            store.lease_session(timeout=self._longest_try),
            name,
            self._longest_try,
            holdings.held,
            several=len(groups) > 1,
            watchdog=watchdog,
            on_renewal=self._renewed,
            on_error=self._renewal_failed,
        )
        self._thread.start()

    # -- what the others ask ------------------------------------------------------------------------------------------

    @property
    def valid(self) -> bool:
        """Whether there are all, the database has confirmed each within its duration, and the thread goes on renewing them.

        For any thread.
        """
        now = time.monotonic()
        leases = [group.lease for group in self.groups]
        return self._thread.alive and all(lease is not None and now < lease.ends for lease in leases)

    @property
    def own(self) -> Collection[int]:
        """Leases that this worker takes nothing from: those it has, and lost ones while bodies of them still run here."""
        if not self._lost:
            return tuple(self._by_id)
        now = time.monotonic()
        running = {slot.job.lease_id for slot in self._holdings.running.values()}
        self._lost = {lease_id: until for lease_id, until in self._lost.items() if until > now and lease_id in running}
        return (*self._by_id, *self._lost)

    @property
    def complete(self) -> bool:
        """Whether there are all, as far as is known."""
        return self._all is not None

    def changed(self, lease_ids: Collection[int]) -> None:
        """Something has happened to these leases: renew those that are ours at once, which tells what it was."""
        if not self._by_id.keys().isdisjoint(lease_ids):
            self.renew_now()

    def renew_now(self) -> None:
        """Renew all of them at once, instead of when their time comes: something makes it doubtful that they're ours."""
        self._thread.renew_now([group.lease for group in self._by_id.values() if group.lease is not None])

    async def opened(self) -> None:
        """Open what is missing, and have it renewed.

        Raises:
            SingletonHeld: Another worker has the name.
            StoreError: One can't be opened.
            CancelledError: The worker ends.
            ConfigurationError: The thread can't connect, or the database's role may not do what a worker does.
        """
        if self._all is not None:
            return
        if not self._connected:
            await self._thread.connect()
            self._connected = True
        # While one is opened another may be lost.
        while (missing := next((group for group in self.groups if group.lease is None), None)) is not None:
            if self._over:
                raise asyncio.CancelledError
            await self._open(missing)
        self._all = self._put_together(self.groups)

    async def _open(self, group: LeaseGroup) -> None:
        before = time.monotonic()
        opening = self._opening = self._loop.create_task(
            self._store.open_lease(
                self._worker,
                group.duration,
                extra=group is not self.groups[0],
                types=group.types,
                slots=group.slots,
                singleton=self._singleton if group is self.groups[0] else None,
            ),
            name="aioqueue opening of a lease",
        )
        # If this is cancelled, the answer may be on its way: `end` waits for it, so that no lease is left behind.
        lease_id = await asyncio.shield(opening)
        if self._opening is not opening:  # the worker's end has taken it over
            raise asyncio.CancelledError
        self._opening = None
        group.lease = KeptLease(lease_id, group.duration, group.renew_every, ends=before + group.duration)
        self._by_id[lease_id] = group
        self._thread.keep(group.lease)
        self._recovery.in_contact()

    def claimable(self) -> Claimable | None:
        """What may be claimed now: nothing for a lease that may be over before anybody could answer for it."""
        now = time.monotonic()
        usable = [group for group in self.groups if group.lease is not None and group.lease.can_be_answered_for(now)]
        if len(usable) == len(self.groups):
            return self._all
        self._refused = True
        if over := [group.lease for group in self.groups if group.lease is not None and not group.lease.failing]:
            self._thread.renew_now([lease for lease in over if now >= lease.ends])
        return self._put_together(usable) if usable else None

    def _put_together(self, groups: Sequence[LeaseGroup]) -> Claimable:
        first = groups[0]
        assert first.lease is not None
        if len(groups) == 1:
            return Claimable(first.lease.id, first.types, None)
        of_types = {name: group.lease.id for group in groups[1:] if group.lease is not None for name in group.types}
        return Claimable(first.lease.id, (*first.types, *of_types), of_types)

    def claiming(self) -> AbstractContextManager[None]:
        """Within the block a claim is under way: what the database knows as ours may be on its way to us."""
        return self._unheld.claiming()

    def may_start(self, lease_id: int) -> bool:
        """Whether a job that was claimed for this lease may be begun."""
        group = self._by_id.get(lease_id)
        return group is not None and group.lease is not None and time.monotonic() < group.lease.ends

    # -- the end ------------------------------------------------------------------------------------------------------

    async def end(self, *, keep: bool, longest: float, late: float) -> None:
        """Renew them no more, and end them, with which all that they still hold is given back.

        Arguments:
            keep: Leave those to run out instead of which something still runs, or isn't written.
            longest: Seconds that ending them may take.
            late: Seconds to wait for a lease whose opening was interrupted.
        """
        ids = list(self._by_id)
        self._over = True
        self._forget_all()
        if (opened_late := await self._late(late)) is not None:
            ids.append(opened_late)
        ids = [lease_id for lease_id in ids if lease_id not in self._in_use(keep=keep)]
        if not ids:
            return
        ending = [self._loop.create_task(self._store.release(each, [], end=True), name="aioqueue lease's end") for each in ids]
        try:
            await asyncio.wait(ending, timeout=longest)
        finally:
            for task in ending:
                task.cancel()
                leave(task)
        await asyncio.sleep(0)
        for task in ending:
            if not task.done() or task.cancelled():
                why = f"it took longer than {longest:.1f} s"
            elif (error := task.exception()) is not None:
                why = one_line(repr(error))
            else:
                continue
            extra = event("lease.not_ended", worker=self._worker)
            logger.warning("worker %s: the lease wasn't ended: %s", self._name, why, extra=extra)

    def _in_use(self, *, keep: bool) -> set[int]:
        """Leases under which something still runs; and, if such are to be kept, those of which something isn't written."""
        running = [slot for slot in self._holdings.running.values() if slot.lost in (None, LostReason.LAPSED)]
        return {slot.job.lease_id for slot in (*running, *(self._holdings.held.values() if keep else ()))}

    def _forget_all(self) -> None:
        self._thread.drop_all()
        self._by_id.clear()
        self._all = None
        for group in self.groups:
            group.lease = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

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
        """Renew none any more, and let the thread end. May be called twice."""
        self._over = True
        self._forget_all()
        self._thread.stop()

    async def close(self, longest: float) -> None:
        """End the thread, and wait for it for at most `longest` seconds."""
        self.let_go()
        await asyncio.wait([self._thread.ended], timeout=longest)

    # -- what the thread brings ---------------------------------------------------------------------------------------

    def _renewed(self, lease: KeptLease, renewal: Renewal) -> None:
        group = self._by_id.get(lease.id)
        if group is None:
            return
        self._recovery.in_contact()
        self._stop_timer(lease)
        if not any(each.lease is not None and each.lease.failing for each in self.groups):
            self._troubles.clear("renew")
        if not renewal.valid:
            self._lose(group, lease)
            return
        self._holdings.counters.renewals += 1
        if self._refused:
            self._refused = False
            self._wakeup.wake()  # claims were refused meanwhile
        for claim, reason in renewal.lost.items():
            slot = self._holdings.running.get(claim)
            if slot is not None:
                self._holdings.lose([slot], reason)
        if renewal.asked_to_stop or self._holdings.asked:
            self._holdings.ask_to_end(lease.id, renewal.asked_to_stop)
        self._unheld.seen(lease.id, renewal.unheld)

    def _lose(self, group: LeaseGroup, lease: KeptLease) -> None:
        extra = event("lease.lost", worker=self._worker, lease_id=lease.id)
        logger.warning("worker %s: the lease %d is lost; its jobs are no longer ours", self._name, lease.id, extra=extra)
        self._holdings.counters.leases_lost += 1
        del self._by_id[lease.id]
        group.lease = self._all = None
        self._lost[lease.id] = time.monotonic() + lease.duration
        self._unheld.forget(lease.id)
        self._holdings.ask_to_end(lease.id, {})
        self._recovery.disturbed()
        self._holdings.lose(self._held_under(lease), LostReason.TAKEN)
        self._wakeup.wake()

    def _held_under(self, lease: KeptLease) -> list[Slot]:
        return [slot for slot in self._holdings.held.values() if slot.job.lease_id == lease.id]

    def _renewal_failed(self, lease: KeptLease, error: BaseException) -> None:
        if lease.id not in self._by_id:
            return
        if isinstance(error, ClientClosed):
            self._wakeup.fail(error)
        self._holdings.counters.renewals_failed += 1
        self._troubles.add("renew", error, told=True)
        self._recovery.disturbed()
        self._watch_the_end(lease)

    def _watch_the_end(self, lease: KeptLease) -> None:
        """Renewals fail: see to it that nothing runs any more when the lease is over, since others may run it then."""
        self._stop_timer(lease)
        if not lease.failing or lease.id not in self._by_id:
            return
        now = time.monotonic()
        if now < lease.ends:
            self._timers[lease.id] = self._loop.call_later(lease.ends - now, self._watch_the_end, lease)
        elif now - lease.failed_at > self._longest_try + _FROZEN_SECONDS:
            # This process stood still since then, and doesn't know what a renewal would be told by now: ask first.
            self._thread.renew_now([lease])
        else:
            self._cancel_under(lease)

    def _cancel_under(self, lease: KeptLease) -> None:
        slots = [slot for slot in self._held_under(lease) if slot.task is not None]
        if not slots:
            return
        logger.error(
            "worker %s: the lease %d is over, and can't be renewed: what runs under it (%d jobs) is cancelled, since other "
            "workers may run it now",
            self._name,
            lease.id,
            len(slots),
            extra=event("lease.over", worker=self._worker, lease_id=lease.id, jobs=len(slots)),
        )
        self._unheld.let_go(lease.id, [slot.claim for slot in slots])
        self._holdings.lose(slots, LostReason.LAPSED)

    def _stop_timer(self, lease: KeptLease) -> None:
        timer = self._timers.pop(lease.id, None)
        if timer is not None:
            timer.cancel()
