"""What workers need of a client for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.client._session import Session
    from aioqueue.client._ticks import Decide
    from aioqueue.vocabulary._schedules import Tick, Ticked

__all__ = ["Ticking"]


class Ticking:
    """The verbs of a client for workers that decide ticks."""

    _session: Session

    async def decide_tick(self, tick: Tick, decide: Decide) -> Ticked:
        """Have one tick of a schedule decided, so that what it enqueues is enqueued as by this client: for workers.

        Arguments:
            tick: As it was worked out.
            decide: Gives it to the store, perhaps together with others.

        Returns:
            What became of it.

        Raises:
            ClientClosed: The client isn't open.
            NotSupported: Somebody is to be told of its job's end, and the store keeps no deliveries.
            Exception: What `decide` has raised, or an enqueue middleware.
        """
        return await self._session.opened().ticker.tick(tick, decide)
