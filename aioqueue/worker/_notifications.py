"""What the store tells a worker: that there are jobs to look for, or that something has happened to a lease of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._notification import Notification
    from aioqueue.worker._gates import Gates
    from aioqueue.worker._lease import Leases
    from aioqueue.worker._schedules import Schedules
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._webhooks import Webhooks

__all__ = ["Notifications"]


class Notifications:
    """Hears what the store tells, and hands it on. `Run` subscribes it.

    Arguments:
        types: Names of the job types that the worker claims.
        wakeup: Wakes its loop.
        leases: Its leases.
        schedules: Decides their ticks.
        webhooks: Sends these, if it does.
        gates: Whether claims look at gates.
    """

    def __init__(
        self,
        types: Sequence[str],
        wakeup: Wakeup,
        leases: Leases,
        schedules: Schedules,
        webhooks: Webhooks | None,
        gates: Gates,
    ) -> None:
        self._types = frozenset(types)
        self._wakeup = wakeup
        self._leases = leases
        self._schedules = schedules
        self._webhooks = webhooks
        self._gates = gates

    def heard(self, notification: Notification) -> None:
        """Called by the store, in the event loop."""
        if notification.leases:
            self._leases.changed(notification.leases)
        if notification.schedules:
            self._schedules.soon()
        if notification.deliveries and self._webhooks is not None:
            self._webhooks.soon()
        if notification.gates and self._gates.looked_at:
            self._wakeup.wake()
        if notification.types is None or not self._types.isdisjoint(notification.types):
            if notification.delay <= 0:
                self._wakeup.wake()
            else:
                self._wakeup.wake_in(notification.delay)
