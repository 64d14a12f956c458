"""Notices that the database's file was deleted or replaced while it's open: what is written then goes nowhere."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from aioqueue.errors import StoreUnavailable
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileWatch"]

logger = logging.getLogger("aioqueue.sqlite")

_LOOK_SECONDS = 1.0


class FileWatch:
    """Compares the file at a path with the one that was opened. It's used from several threads.

    An open file that was deleted takes writes as before, and they're gone with the process. So once the file isn't the one
    that was opened any more, that's final: the store has to be opened again, and then uses what is there.

    Arguments:
        path: The database file.
        compare: Whether inodes are compared: network file systems may number a file anew.
    """

    def __init__(self, path: Path, *, compare: bool = True) -> None:
        self._path = path
        self._compare = compare
        self._opened: tuple[int, int] | None = None
        self._look_at = 0.0
        self._log_missed = False
        self.trouble = ""
        """What is wrong; empty when all is well."""

    def opened(self) -> None:
        """The file has been opened, and exists: from now on it's watched. Only the first call counts."""
        if self._opened is None:
            self._opened = self._identity()

    def check(self) -> None:
        """Look, if it's time.

        Raises:
            StoreUnavailable: The file isn't the one that was opened.
        """
        self.look()
        if self.trouble:
            raise StoreUnavailable(self.trouble)

    def look(self) -> None:
        """Compare the file with the one that was opened, if that wasn't done a moment ago."""
        now = time.monotonic()
        if self.trouble or self._opened is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        found = self._identity()
        if found != self._opened:
            self._lost("deleted" if found is None else "replaced")

    def look_at_log(self) -> None:
        """Look for the write-ahead log too, which exists for as long as a connection is open. Called with one that is."""
        missing = not os.path.exists(f"{self._path}-wal")
        if missing and self._log_missed and not self.trouble:
            self._lost("robbed of its write-ahead log (the file that ends in -wal)")
        self._log_missed = missing

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return self._opened  # it can't be told at the moment
        return (status.st_dev, status.st_ino) if self._compare else (0, 0)

    def _lost(self, how: str) -> None:
        self.trouble = (
            f"{self._path} was {how} while it was open, and what was written to it lately may be lost: "
            "close the client and open it again"
        )
        logger.error("%s", self.trouble, extra=event("store.file_replaced"))
