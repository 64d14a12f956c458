"""What is logged in a thread that may not wait for handlers of logging's is handed on by another one.

A handler may hang: its disk, its terminal, or whoever it sends records to. In the thread that renews leases that would cost
the lease.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["logging_apart"]

logger = logging.getLogger("aioqueue.worker")

_MOST_RECORDS = 200
"""That wait while a handler hangs; what is logged beyond them is lost, as is what one raises for, and told as a number."""
_LAST_SECONDS = 0.5
"""For what waits when the thread ends."""


class _Apart(logging.Filter):
    """A filter of our loggers: takes the records of some threads out, and hands them on from a thread that lives so long."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a forked process the threads are gone, and the lock may be held by one of them."""
        self._threads: set[int] = set()
        self._changed = threading.Condition()
        self._records: deque[logging.LogRecord] = deque()
        self._lost = 0
        self._handing_on = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record goes on at once; logging calls it."""
        if threading.get_ident() not in self._threads:
            return True
        with self._changed:
            if len(self._records) < _MOST_RECORDS:
                self._records.append(record)
            else:
                self._lost += 1
            if self._handing_on:
                return False
            self._handing_on = True
        try:
            threading.Thread(target=self._hand_on, name="aioqueue log", daemon=True).start()
        except RuntimeError:  # there are no more threads, or the interpreter ends
            self._handing_on = False
        return False

    @contextmanager
    def taking(self) -> Generator[None]:
        """Within the block, hand on what this thread logs; at its end wait for that, but not for long."""
        for logger in list(logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger) and logger.name.partition(".")[0] == "aioqueue":
                logger.addFilter(self)  # once, however often
        self._threads.add(threading.get_ident())
        try:
            yield
        finally:
            self._threads.discard(threading.get_ident())
            with self._changed:
                self._changed.wait_for(lambda: not self._handing_on, _LAST_SECONDS)

    def _hand_on(self) -> None:
        while True:
            with self._changed:
                record = self._records.popleft() if self._records else None
                lost = 0
                if record is None:
                    lost, self._lost = self._lost, 0
                    if not lost:
                        self._stop_handing_on()
                        return
            try:
                if record is not None:
                    logging.getLogger(record.name).handle(record)
                else:
                    logger.warning(
                        "%d records of the thread that renews leases were lost: a logging handler took too long, or raised",
                        lost,
                        extra=event("log.records_lost", count=lost),
                    )
            except Exception:  # noqa: BLE001 - classified: a handler of the user's that raises costs its record, which is counted
                with self._changed:
                    self._lost += lost or 1
                    if record is None and not self._records:  # the number is told after the next record: this might never end
                        self._stop_handing_on()
                        return

    def _stop_handing_on(self) -> None:
        """Say, with the lock held, that this thread ends."""
        self._handing_on = False
        self._changed.notify_all()


_apart = _Apart()
logging_apart = _apart.taking

os.register_at_fork(after_in_child=_apart.forget)
