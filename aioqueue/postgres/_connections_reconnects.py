"""How often connections that are kept open had to be opened anew, since they were lost."""

from __future__ import annotations

import threading

__all__ = ["LEASE", "NOTIFICATIONS", "Reconnects"]

LEASE = "lease"
NOTIFICATIONS = "notifications"


class Reconnects:
    """The numbers of one opening of a store. For any thread: each worker's lease thread counts, too.

    Attributes:
        counts: By what the connection is for.
    """

    def __init__(self) -> None:
        self.counts = {LEASE: 0, NOTIFICATIONS: 0}
        self._lock = threading.Lock()

    def count(self, connection: str) -> None:
        """Count that one is there again."""
        with self._lock:
            self.counts[connection] += 1
