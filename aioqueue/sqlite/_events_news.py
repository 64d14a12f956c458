"""Whether something new stands in the log of events, for those of this process that read it."""

from __future__ import annotations

import sqlite3
import time

__all__ = ["NEWEST", "News"]

NEWEST = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)"
"""The number of the newest event, which may have been removed since."""


class News:
    """What the processes' listeners hear of the log: nothing, as long as nobody in this process reads it.

    It's used in the writer's thread, but for `until`, which is set from the event loop.
    """

    def __init__(self) -> None:
        self.until = 0.0
        """Until when somebody in this process reads, by the monotonic clock."""
        self._seen = -1

    def look(self, connection: sqlite3.Connection) -> bool:
        """Whether something was logged since the last look."""
        if time.monotonic() >= self.until:
            return False
        # It's asked after a commit, which has succeeded whatever becomes of this.
        try:
            newest: int = connection.execute(f"SELECT {NEWEST}").fetchone()[0]
        except sqlite3.Error:
            return False
        known, self._seen = self._seen, newest
        return newest != known
