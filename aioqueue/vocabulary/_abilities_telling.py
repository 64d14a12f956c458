"""What a store may be able to tell others of: events to readers, ends of chains to receivers of webhooks. See `_abilities`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._event_log import EventPage
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState, DeliveryTry

__all__ = ["SupportsEvents", "SupportsWebhooks"]


@runtime_checkable
class SupportsEvents(Protocol):
    """A store that logs what happens to jobs while somebody reads it: what `Client.events` needs.

    The statement that changes a job writes its event, if a reader's row is valid then; nothing is written, and next to
    nothing is paid, while nobody reads. Of one job the events come in the order in which they happened. Rows are kept for
    `store_rules._events.KEPT_SECONDS`, and older ones are removed by `open_reader` and `keep_reader`. `Notification.events`
    says that there is something to read.

    A page with `reset` may lack events before those in it, and a cursor that isn't known gives one too. So does every page of
    a reader that isn't valid any more: events may not have been logged since, and another one has to be opened.
    """

    async def open_reader(self, duration: float) -> UUID:
        """Have events logged from now on, for `duration` seconds. Returns the reader's id."""
        ...

    async def keep_reader(self, reader: UUID, duration: float) -> bool:
        """Let it be valid for `duration` seconds from now; 0 ends it. Returns whether it still was valid: one that wasn't isn't
        made so again.
        """
        ...

    async def begin_events(self, reader: UUID, *, timeout: float = 5.0) -> EventPage:
        """Wait until each transaction that began before the reader has ended, since its events aren't logged. From then on all
        are. Returns an empty page with the cursor from which to go on; `reset` if the wait took longer than `timeout` seconds.
        """
        ...

    async def resume_events(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """Give what has happened since an event was seen, from the log: some that were seen before may come once more.

        `reset`, and no events, if that event isn't in the log, or there was a time since then in which no reader was valid.
        """
        ...

    async def read_events(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """Give what has become visible since the cursor was given, each once: about `limit` events at most, then go on."""
        ...


@runtime_checkable
class SupportsWebhooks(Protocol):
    """A store that keeps deliveries of webhooks: what `webhook=` needs.

    A delivery is written by the transaction that ends the chain, whoever ends it: a settlement, recovery, an operator, or the
    end of another chain. Its body is made then, by `store_rules._deliveries`. Listeners may hear of it in
    `Notification.deliveries`. One that is finished goes with its chain, and is removed by `Store.tend` thirty days later;
    one that is pending stays, though its chain is gone.
    """

    async def take_deliveries(self, limit: int, duration: float, *, without: Collection[str] = ()) -> Sequence[Delivery]:
        """Take due deliveries, in the order in which they became due: each counts one try more, and is nobody else's for
        `duration` seconds. Rows that somebody has locked are skipped.

        Arguments:
            limit: At most.
            duration: Seconds.
            without: Hosts (with the port, as in the URL's network location, in lower case) of which none is taken.
        """
        ...

    async def next_delivery(self) -> float | None:
        """Seconds until the first pending delivery is due, 0 if one is now; None without any."""
        ...

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """Keep what became of tries, each on its own, unless somebody else has taken the delivery since."""
        ...

    async def list_deliveries(
        self, *, chain_id: UUID | None = None, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> DeliveryPage:
        """One page of deliveries, the newest first. Bounded in cost."""
        ...

    async def replay_deliveries(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """Make deliveries pending and due now, with their tries counted anew, whatever became of them. Their ids and bodies
        stay. Returns whether each was there.
        """
        ...
