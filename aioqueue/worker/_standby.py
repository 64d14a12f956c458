"""What a worker does that is to be the only one of its name while another has the name: it ends, waits, or stands by."""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING

from aioqueue.errors import SingletonHeld, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._lease import Leases

__all__ = ["Standby"]

logger = logging.getLogger("aioqueue.worker")

_LEAST_SECONDS = 0.05
"""Between two tries, and behind the end of a lease that isn't renewed."""


class Standby:
    """Opens a worker's leases, of which one has the worker's name among single workers, if it has such a name.

    Nothing but that lease says who has the name: it's renewed by the leases' thread, whatever the event loop does, and as long
    as anything runs under it.

    Arguments:
        leases: The worker's.
        settings: The worker's.
        name: The worker's, in logs and listings.

    Attributes:
        held: Who has the name, as far as is known; None once it's this worker's.
        had_it: Whether this worker has had the name.
        retry_in: Seconds until another try is worth it; 0 once the leases are open.
    """

    def __init__(self, leases: Leases, settings: WorkerSettings, name: str) -> None:
        self._leases = leases
        self._settings = settings
        self._name = name
        self._until = self._next_try = 0.0
        self._maybe_own_until = 0.0
        self.held: SingletonHeld | None = None
        self.had_it = False
        self.retry_in = 0.0

    @property
    def told(self) -> str | None:
        """That another worker has the name, in words; None if this one has it, or needs none. For any thread."""
        held = self.held
        return None if held is None else one_line(f"standing by for {held.name} (held by {held.worker})")

    async def opened(self) -> None:
        """Open what is missing of the leases, unless another worker has the name: then `retry_in` says when to try again.

        Raises:
            SingletonHeld: Another worker has the name, and that isn't to be waited for, or not for any longer.
            StoreError: A lease can't be opened.
            CancelledError: The worker ends.
            ConfigurationError: As `Leases.opened`.
        """
        if self.held is not None and (left := self._next_try - time.monotonic()) > 0:
            self.retry_in = left  # the main loop is woken by each job that becomes due, too
            return
        try:
            await self._leases.opened()
        except SingletonHeld as held:
            self._hear(held)
        except StoreUnavailable:
            # It may have been opened, and the answer was lost: then nobody renews it, and it's in our way until it's over.
            self._maybe_own_until = time.monotonic() + self._settings.lease
            raise
        else:
            if self.held is not None:
                self._tell_taken(self.held)
            self.held, self.retry_in = None, 0.0
            self.had_it = True

    def _hear(self, held: SingletonHeld) -> None:
        now = time.monotonic()
        if self.held is None:
            self._until = self._patience(held, now)
        if held.worker == self._name and self._maybe_own_until > now:
            self._until = max(self._until, self._maybe_own_until)
        first, self.held = self.held is None, held
        if now >= self._until:
            raise held
        if first:
            self._tell_standing_by(held)
        pause = self._settings.poll_interval * random.uniform(0.9, 1.1)  # noqa: S311 - keeps workers apart
        self.retry_in = max(_LEAST_SECONDS, min(pause, held.ends_in + _LEAST_SECONDS, self._until - now))
        self._next_try = now + self.retry_in

    def _patience(self, held: SingletonHeld, now: float) -> float:
        """Until when it's waited, by the monotonic clock."""
        if self._settings.standby:
            return math.inf
        if self._settings.wait:  # a holder that is dead doesn't have it for longer
            return now + max(self._settings.lease, held.ends_in) + _LEAST_SECONDS
        return 0.0

    def _tell_standing_by(self, held: SingletonHeld) -> None:
        logger.info(
            "worker %s: %s",
            one_line(self._name),
            self.told,
            extra=event("worker.standing_by", worker=self._name, singleton=held.name, held_by=held.worker),
        )

    def _tell_taken(self, held: SingletonHeld) -> None:
        logger.info(
            "worker %s: it has the name %s from now on",
            one_line(self._name),
            one_line(held.name),
            extra=event("worker.took_over", worker=self._name, singleton=held.name, held_by=held.worker),
        )
