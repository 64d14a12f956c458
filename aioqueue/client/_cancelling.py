"""Asks chains to end: for the client's verbs, and for handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["cancelling"]


def cancelling(store: Operable, reason: str) -> Callable[[Sequence[UUID]], Awaitable[dict[UUID, Cancellation]]]:
    """Give what asks the chains with these ids to end, and tells what became of each.

    Arguments:
        store: What is asked.
        reason: For people.

    Raises:
        TypeError: The reason isn't text.
    """
    if not isinstance(reason, str):
        raise TypeError(f"a reason is text, not {reason!r:.100}")

    async def cancel(ids: Sequence[UUID]) -> dict[UUID, Cancellation]:
        return dict(zip(ids, await store.cancel(ids, reason), strict=True))

    return cancel
