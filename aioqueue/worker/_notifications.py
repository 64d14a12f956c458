"""What the store tells a worker: that there are jobs to look for, or that something has happened to a lease of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._notification import Notification
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Notifications"]


class Notifications:
    """Hears what the store tells, and hands it on. `Run` subscribes it.

    Arguments:
        types: Names of the job types that the worker claims.
        wakeup: Wakes its loop.
        leases: Its leases.
    """

    def __init__(self, types: Sequence[str], wakeup: Wakeup, leases: Leases) -> None:
        self._types = frozenset(types)
        self._wakeup = wakeup
        self._leases = leases

    def heard(self, notification: Notification) -> None:
        """Called by the store, in the event loop."""
        if notification.leases:
            self._leases.changed(notification.leases)
        if notification.types is None or not self._types.isdisjoint(notification.types):
            if notification.delay <= 0:
                self._wakeup.wake()
            else:
                self._wakeup.wake_in(notification.delay)
