"""Renews leases from a thread of its own, so that a handler that blocks the event loop loses nothing.

C code that never frees the GIL still starves the thread. A handler that blocks the loop for over five minutes is taken
for stuck: the leases are left to lapse, so that other workers get the jobs.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._log import event
from aioqueue.runtime._log_apart import logging_apart
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._text import one_line
from aioqueue.worker._watchdog import STUCK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioqueue.vocabulary._answers import Renewal
    from aioqueue.vocabulary._job import Claim
    from aioqueue.vocabulary._store_parts import LeaseSession
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._watchdog import Watchdog

__all__ = ["KeptLease", "LeaseThread"]

logger = logging.getLogger("aioqueue.worker")

_FAILED_SECONDS = 1.0
"""Between something unforeseen and the next try."""
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 3.0
_UNFORESEEN = (Exception, SystemExit, KeyboardInterrupt)
"""What a user's `connect=` may raise in the thread: whatever it is, the thread goes on."""


@dataclass(eq=False, slots=True)
class KeptLease:
    """A lease that is renewed. The thread writes what it knows, the event loop reads it.

    Attributes:
        id: The lease's.
        duration: Seconds that it's valid for without being renewed.
        renew_every: Seconds between renewals.
        ends: When it's over, by the monotonic clock: `duration` after the moment just before the newest renewal that was
            granted was sent. By the database's clock it ends a little later.
        due: When it's to be renewed next, by the same clock.
        failing: Whether the newest renewal has failed.
        failed_at: When it did.
        alarmed: Whether it was told that the end is near.
        excused: Whether a try was repeated since the process itself had been stopped during it.
    """

    id: int
    duration: float
    renew_every: float
    ends: float
    due: float = 0.0
    failing: bool = False
    failed_at: float = 0.0
    alarmed: bool = False
    excused: bool = False

    def urgency(self, now: float) -> tuple[bool, bool, bool, float]:
        """By which the next one to be renewed is chosen: the least comes first.

        Of those whose time has come it's the one that ends first, since it can spare no time for the others. But while renewals
        fail each of them is tried, so that it's known of each, and one that is over already doesn't keep the others waiting.
        """
        return self.due > now, self.ends <= now, self.failing, self.ends

    def near_its_end(self, now: float) -> bool:
        """Whether less than a third of it is left."""
        return self.ends - now < self.duration / 3

    def can_be_answered_for(self, now: float) -> bool:
        """Whether jobs may be claimed for it: it's valid, and if renewals fail there is time left to repair that."""
        return now < self.ends and not (self.failing and self.near_its_end(now))


class LeaseThread:
    """The thread. All callbacks are called in the event loop.

    Arguments:
        session: What it uses.
        name: The worker's.
        longest_try: Seconds that a call of the session may take.
        held: What the worker holds; read from the thread.
        several: Whether there's more than one lease.
        watchdog: Looks at the event loop, from the thread.
        on_renewal: Gets the lease and each answer.
        on_error: Gets the lease and each error.
    """

    def __init__(
        self,
        session: LeaseSession,
        name: str,
        longest_try: float,
        held: dict[Claim, Slot],
        *,
        several: bool,
        watchdog: Watchdog,
        on_renewal: Callable[[KeptLease, Renewal], None],
        on_error: Callable[[KeptLease, BaseException], None],
    ) -> None:
        self._session = session
        self._name = one_line(name)
        self._longest_try = longest_try
        self._held = held
        self._several = several
        self._watchdog = watchdog
        self._on_renewal = on_renewal
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._condition = threading.Condition()
        self._kept: dict[int, KeptLease] = {}
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        self._not_before = 0.0
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._connecting: asyncio.Future[None] | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        """Start the thread, in an empty context. Called once."""
        self._thread = threading.Thread(target=self._serve, name=f"aioqueue lease of {self._name}", daemon=True)
        contextvars.Context().run(self._thread.start)  # a thread may inherit the context that starts it (Python 3.14)

    @property
    def alive(self) -> bool:
        """Whether it runs, or is still to be told that it needn't."""
        return self._stopped or (self._thread is not None and self._thread.is_alive())

    async def connect(self) -> None:
        """Open the thread's connection, from the thread.

        Raises:
            StoreUnavailable: The database can't be reached at the moment.
            ConfigurationError: The thread can't connect in the way that was configured.
        """
        future = self._connected = self._loop.create_future()
        with self._condition:
            self._connecting = future
            self._condition.notify()
        await future

    def keep(self, lease: KeptLease) -> None:
        """Renew this lease from now on."""
        with self._condition:
            lease.due = time.monotonic() + lease.renew_every
            self._kept[lease.id] = lease
            self._condition.notify()

    def drop_all(self) -> None:
        """Renew none of them any more: they were lost, or are being ended."""
        with self._condition:
            self._kept.clear()

    def renew_now(self, leases: Iterable[KeptLease]) -> None:
        """Renew these at once, instead of when their time comes."""
        with self._condition:
            for lease in leases:
                lease.due = 0.0
            self._not_before = 0.0
            self._condition.notify()

    def stop(self) -> None:
        """Let the thread end; `ended` is done when it has."""
        self._connected.cancel()  # whoever waits for it would wait for ever
        with self._condition:
            self._stopped = True
            self._condition.notify()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with logging_apart():
            try:
                while not self._stopped:
                    self._do_next()
            finally:
                try:
                    self._session.close()
                except _UNFORESEEN as error:
                    logger.warning(
                        "worker %s: the lease's connection couldn't be closed: %s",
                        self._name,
                        one_line(repr(error)),
                        extra=event("lease.connection_not_closed", worker=self._name),
                    )
                self._tell(self._end)

    def _do_next(self) -> None:
        try:
            if (work := self._wait()) is not None:
                work()
        except Exception:
            logger.exception(
                "worker %s: the lease's thread has failed, and goes on",
                self._name,
                extra=event("lease.thread_failed", worker=self._name),
            )
            with self._condition:
                self._condition.wait(_FAILED_SECONDS)

    def _wait(self) -> Callable[[], None] | None:
        """Wait until there is something to do, and give what that is; None when the thread is to end."""
        while True:
            blocked = self._watchdog.look(self._tell)
            with self._condition:
                if self._stopped:
                    return None
                if self._connecting is not None:
                    return self._connect
                now = time.monotonic()
                wait = self._watchdog.look_every
                if self._kept and blocked < STUCK_SECONDS:
                    first = min(self._kept.values(), key=lambda lease: lease.urgency(now))
                    if first.due <= now >= self._not_before:
                        first.due = now + first.renew_every
                        return functools.partial(self._renew, first)
                    earliest = min(lease.due for lease in self._kept.values())
                    wait = min(wait, max(earliest, self._not_before) - now)
                self._condition.wait(wait)

    def _connect(self) -> None:
        future, self._connecting = self._connecting, None
        assert future is not None
        try:
            self._session.connect()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the connection
            self._tell(_fail, future, error)
        except (SystemExit, KeyboardInterrupt) as error:
            self._tell(_fail, future, ConfigurationError(f"connecting in the lease's thread raises {error!r}"))
        else:
            self._tell(_succeed, future)

    def _renew(self, lease: KeptLease) -> None:
        sent = time.monotonic()
        try:
            renewal = self._session.renew(lease.id, lease.duration, self._held_under(lease))
        except _UNFORESEEN as error:
            self._failed(lease, error, sent)
            return
        if renewal.valid:
            lease.ends = sent + lease.duration
            lease.failing = lease.alarmed = lease.excused = False
        else:
            with self._condition:
                self._kept.pop(lease.id, None)
        self._backoff.reset()
        self._tell(self._on_renewal, lease, renewal)

    def _held_under(self, lease: KeptLease) -> list[Claim]:
        if not self._several:
            return list(self._held)
        return [claim for claim, slot in self._held.copy().items() if slot.job.lease_id == lease.id]

    def _failed(self, lease: KeptLease, error: BaseException, sent: float) -> None:
        if lease.id not in self._kept:  # nobody waits for it any more
            return
        now = time.monotonic()
        if now - sent > 2 * self._longest_try + _FAILED_SECONDS and not lease.excused:
            # It was this process that stood still: what it waited for may have come long ago. Once, or a machine that is
            # always so slow would never be said to fail.
            lease.excused = True
            lease.due = now
            return
        first, lease.failing, lease.failed_at = not lease.failing, True, now
        with self._condition:
            self._not_before = lease.due = now + min(self._backoff.next(), lease.renew_every)
        left, reason = lease.ends - now, one_line(f"{type(error).__name__}: {error}")
        if lease.near_its_end(now) and not lease.alarmed:
            lease.alarmed = True
            logger.error(
                "worker %s: the lease %d can't be renewed, and ends %s: no more jobs are claimed for it, and what runs under "
                "it then is cancelled, since other workers may run it: %s",
                self._name,
                lease.id,
                f"in {left:.1f} s" if left > 0 else "now",
                reason,
                extra=event("lease.ending", worker=self._name, lease_id=lease.id),
            )
        elif first:
            logger.warning(
                "worker %s: renew fails, and is tried again (the lease %d ends in %.1f s): %s",
                self._name,
                lease.id,
                left,
                reason,
                extra=event("lease.renewal_failed", worker=self._name, lease_id=lease.id),
            )
        self._tell(self._on_error, lease, error)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: this worker was forgotten
            self._stopped = True

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
