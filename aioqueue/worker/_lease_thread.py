"""Renews the lease from a thread of its own, so that a handler that blocks the event loop loses nothing.

C code that never frees the GIL still starves the thread. A handler that blocks the loop for over five minutes is taken
for stuck: the lease is left to lapse, so that other workers get the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from aioqueue.worker._backoff import Backoff
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioqueue._job import Claim
    from aioqueue._settings import WorkerSettings
    from aioqueue.abc import Renewal, Store
    from aioqueue.worker._holdings import Slot

__all__ = ["LeaseThread"]

logger = logging.getLogger("aioqueue.worker")

_BLOCKED = 5.0
_STUCK = 300.0
_LOOK = 1.0


class LeaseThread:
    """The thread. All callbacks are called in the event loop.

    Arguments:
        store: Gives the session that the thread uses.
        settings: How long a lease lasts, and how often it's renewed.
        held: What the worker holds; read from the thread.
        on_renewal: Gets the lease's id and each answer.
        on_error: Gets each error.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        held: Mapping[Claim, Slot],
        *,
        on_renewal: Callable[[int, Renewal], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._session = store.lease_session(timeout=settings.lease / 6)
        self._duration = settings.lease
        self._every = settings.renew_every
        self._held = held
        self._on_renewal = on_renewal
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._condition = threading.Condition()
        self._lease_id: int | None = None
        self._next = 0.0
        self._stopped = False
        self._asked: float | None = None
        self._warned = 0.0
        self._thread: threading.Thread | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self, name: str) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._serve, name=f"aioqueue lease of {name}", daemon=True)
        self._thread.start()

    def use(self, lease_id: int | None) -> None:
        """Renew this lease from now on; none, if it's None."""
        with self._condition:
            self._lease_id = lease_id
            self._next = time.monotonic() + self._every
            self._condition.notify()

    def renew_now(self) -> None:
        """Don't wait for the time to come."""
        with self._condition:
            self._next = 0.0
            self._condition.notify()

    def stop(self) -> None:
        """Let the thread end; `ended` is done when it has."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        backoff = Backoff(0.1, min(3.0, self._every))
        try:
            while (lease_id := self._wait()) is not None:
                try:
                    if lease_id:
                        renewal = self._session.renew(lease_id, self._duration, list(self._held))
                        backoff.reset()
                        self._tell(self._on_renewal, lease_id, renewal)
                except Exception as error:  # noqa: BLE001 - handed to the worker, and tried again
                    self._retry_in(backoff.next())
                    self._tell(self._on_error, error)
        finally:
            try:
                self._session.close()
            except Exception as error:  # noqa: BLE001 - logged
                logger.warning("the lease's connection couldn't be closed: %s", one_line(repr(error)))
            self._tell(self._end)

    def _wait(self) -> int | None:
        """Wait until it's time. Returns the lease to be renewed, 0 for none, and None at the end."""
        while True:
            blocked = self._watch()
            with self._condition:
                if self._stopped:
                    return None
                now = time.monotonic()
                if self._lease_id is not None and now >= self._next and blocked < _STUCK:
                    self._next = now + self._every
                    return self._lease_id
                until_next = max(self._next - now, 0.0) if self._lease_id is not None and blocked < _STUCK else _LOOK
                self._condition.wait(min(until_next, _LOOK))

    def _retry_in(self, wait: float) -> None:
        with self._condition:
            self._next = min(self._next, time.monotonic() + wait)

    def _watch(self) -> float:
        """See whether the event loop still answers. Returns the seconds since when it doesn't."""
        now = time.monotonic()
        asked = self._asked
        if asked is None:
            if not self._held:  # nothing of a user's runs
                return 0.0
            self._asked, self._warned = now, _BLOCKED
            self._tell(self._answer)
            return 0.0
        blocked = now - asked
        if blocked >= self._warned:
            self._warned = _STUCK if self._warned < _STUCK <= blocked * 2 else blocked * 2
            self._name_the_blocker(blocked)
        return blocked

    def _answer(self) -> None:
        self._asked = None

    def _name_the_blocker(self, blocked: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        where = "".join(traceback.format_stack(frame, limit=12)) if frame is not None else "unknown"
        del frame
        jobs = ", ".join(f"{slot.job.type} {slot.job.id}" for slot in list(self._held.values())[:10])
        what = "the lease is left to lapse" if blocked >= _STUCK else "the lease is still renewed"
        logger.warning(
            "the event loop has been blocked for %.0f s (%s): use a `def` handler, or a thread. Running: %s. Stuck at: %s",
            blocked,
            what,
            one_line(jobs),
            one_line(where[-900:]),
        )

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: this worker was forgotten
            self._stopped = True

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
