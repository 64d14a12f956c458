"""What operators ask about webhooks: which messages there are, what became of them, and to send some once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.client._filters import check_limit
from aioqueue.client._handle import ids_of
from aioqueue.errors import NotSupported
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._identifiers import read_id
from aioqueue.vocabulary._safe_text import safe_repr
from aioqueue.vocabulary._webhooks import Delivery, DeliveryState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._handle import JobHandle
    from aioqueue.vocabulary._webhooks import DeliveryPage

__all__ = ["list_deliveries", "replay_deliveries"]

_MOST_AT_ONCE = 1_000


async def list_deliveries(
    store: Store, job: UUID | str | JobHandle[Any] | None, state: DeliveryState | str | None, limit: int, cursor: str | None
) -> DeliveryPage:
    """One page of messages, as `Client.deliveries` promises.

    Raises:
        ValueError: The id isn't one, the state isn't known, or the cursor isn't one of ours.
        ConfigurationError: The limit is out of its range.
        NotSupported: The store keeps none.
    """
    check_limit(limit)
    wanted = None if state is None else _read_state(state)
    keeper = _keeper(store)
    chain_id: UUID | None = None
    if job is not None:
        (chain_id,) = ids_of([job])
        (end,) = await store.fetch_ends([chain_id])
        chain_id = chain_id if end is None else end.chain_id  # of a chain that is gone messages may be left
    return await keeper.list_deliveries(chain_id=chain_id, state=wanted, limit=limit, cursor=cursor)


async def replay_deliveries(store: Store, deliveries: Sequence[Delivery | UUID | str]) -> list[bool]:
    """Have messages sent once more, as `Client.replay_deliveries` promises.

    Raises:
        ValueError: An id isn't one.
        NotSupported: The store keeps none.
    """
    ids = [each.id if isinstance(each, Delivery) else _read_delivery_id(each) for each in deliveries]
    keeper = _keeper(store)
    answers: list[bool] = []
    for start in range(0, len(ids), _MOST_AT_ONCE):
        answers += await keeper.replay_deliveries(ids[start : start + _MOST_AT_ONCE])
    return answers


def _read_state(state: Any) -> DeliveryState:
    try:
        return DeliveryState(state)
    except ValueError:
        raise ValueError(f"state is {', '.join(DeliveryState)}, or None for all, not {safe_repr(state)}") from None


def _read_delivery_id(value: Any) -> UUID:
    try:
        return read_id(value)
    except ValueError:
        raise ValueError(
            "a delivery is one of those that `await client.deliveries(job)` gives, or its id, a UUID or the text of one, "
            f"not {safe_repr(value)}"
        ) from None


def _keeper(store: Store) -> SupportsWebhooks:
    if not isinstance(store, SupportsWebhooks):
        raise NotSupported(f"{store.description} keeps no deliveries of webhooks", ability="webhooks")
    return store
