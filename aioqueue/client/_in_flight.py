"""Which calls are being enqueued at the moment: those that wait for one are stored after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call import Call
from aioqueue.definitions._graph import graph_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["InFlight"]


class InFlight:
    """The calls whose enqueueing, outside of a user's transaction, hasn't ended yet. All of a client's tasks share it."""

    __slots__ = ("_ids", "_waiting")

    def __init__(self) -> None:
        self._ids: set[int] = set()  # as numbers: hashing a UUID is a call in Python, for each job
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self, calls: Iterable[Call[Any]]) -> None:
        """Say that calls are being enqueued. Always `end` it."""
        self._ids.update([call.id.int for call in calls])

    def end(self, calls: Iterable[Call[Any]]) -> None:
        """Say that they aren't any more: they're stored, or may be enqueued again."""
        self._ids.difference_update([call.id.int for call in calls])
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def graph_of(self, calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
        """Find what is enqueued with calls, once all that they wait for is stored or may be enqueued with them.

        Several tasks may enqueue calls that need the same one: the first enqueues it, and it has to be there for the others.
        """
        graph = graph_of(calls)
        while graph is not calls and self._ids and any(self._is_one(source) for call in graph for source in call.waits_for):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
            graph = graph_of(calls)
        return graph

    def _is_one(self, source: object) -> bool:
        return isinstance(source, Call) and source.id.int in self._ids
