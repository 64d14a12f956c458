"""The store's verbs for deliveries of webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._webhooks import Deliveries
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState, DeliveryTry

__all__ = ["WebhookVerbs"]


class WebhookVerbs:
    """What `aioqueue.abc.SupportsWebhooks` asks for."""

    @property
    def _deliveries(self) -> Deliveries:
        """Those of the open store."""
        raise NotImplementedError

    def _tell(self, notification: Notification) -> None:
        """Tell this process's listeners."""
        raise NotImplementedError

    async def take_deliveries(self, limit: int, duration: float, *, without: Collection[str] = ()) -> Sequence[Delivery]:
        """See `aioqueue.abc.SupportsWebhooks.take_deliveries`."""
        return await self._deliveries.take(limit, duration, without)

    async def next_delivery(self) -> float | None:
        """See `aioqueue.abc.SupportsWebhooks.next_delivery`."""
        return await self._deliveries.due()

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """See `aioqueue.abc.SupportsWebhooks.write_tries`."""
        await self._deliveries.write(tries)

    async def list_deliveries(
        self, *, chain_id: UUID | None = None, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> DeliveryPage:
        """See `aioqueue.abc.SupportsWebhooks.list_deliveries`."""
        return await self._deliveries.page(chain_id, state, limit, cursor)

    async def replay_deliveries(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsWebhooks.replay_deliveries`."""
        there = await self._deliveries.replay(ids)
        if any(there):
            self._tell(Notification(deliveries=True))
        return there
