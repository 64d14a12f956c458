"""What waits for the reader of one stream of events."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.definitions._logged_events import from_log
from aioqueue.events import Reset

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from aioqueue.events import JobEvent
    from aioqueue.vocabulary._event_log import LoggedEvent

__all__ = ["Subscription", "Wanted"]

_MOST_BUFFERED = 5_000
"""Events that wait for the reader of one stream; then they're dropped, and it gets a `Reset` in their place."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a stream gives.

    Attributes:
        types: Full names of job types; none means all.
        job_id, chain_id: One job's, or one chain's; None means all.
    """

    types: frozenset[str] = frozenset()
    job_id: UUID | None = None
    chain_id: UUID | None = None

    def fits(self, logged: LoggedEvent) -> bool:
        """Whether it gives this one."""
        return (
            (not self.types or logged.job_type in self.types)
            and (self.job_id is None or logged.job_id == self.job_id)
            and (self.chain_id is None or logged.chain_id == self.chain_id)
        )


class Subscription:
    """What waits for the reader of one stream. The feed knows it as long as the stream is there.

    Arguments:
        wanted: Which events.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._waiting: deque[LoggedEvent] = deque()
        self._early: set[int] = set()
        self._reset = ""
        self._error: BaseException | None = None
        self._begun = False
        self._changed = asyncio.Event()

    def put(self, events: Iterable[LoggedEvent]) -> None:
        """Add what has happened."""
        if self._early:
            events = [each for each in events if not self._is_early(each.sequence)]
        self._waiting.extend(filter(self._wanted.fits, events))
        if len(self._waiting) > _MOST_BUFFERED:
            self.reset("the events weren't read fast enough")
        if self._waiting:
            self._changed.set()

    def put_before(self, earlier: Iterable[LoggedEvent]) -> None:
        """Add what had happened before, unless it's known to have gaps already.

        What is among both is given once: what was read with it may be handed on already, and may still be to be handed on.
        """
        if self._reset:
            return
        before = {each.sequence: each for each in filter(self._wanted.fits, earlier)}
        self._early = set(before)
        later = [each for each in self._waiting if not self._is_early(each.sequence)]
        self._waiting = deque([*before.values(), *later])
        self._changed.set()

    def _is_early(self, sequence: int) -> bool:
        early = sequence in self._early
        self._early.discard(sequence)
        return early

    def begin(self) -> None:
        """Say that all that happens from now on is handed on."""
        self._begun = True
        self._changed.set()

    async def begun(self) -> None:
        """Wait until all that happens is handed on; raises what has kept it from that."""
        while not self._begun:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def reset(self, reason: str) -> None:
        """Have it begin anew: events may be missing."""
        self._waiting.clear()
        self._reset = reason
        self._changed.set()

    def end(self) -> None:
        """Give nothing more."""
        self._waiting.clear()
        self._reset, self._error = "", StopAsyncIteration()
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Give nothing more but an error, behind what is there."""
        self._error = error
        self._changed.set()

    async def next(self) -> JobEvent | Reset:
        """The next one, as soon as there is one; raises what keeps it from giving more."""
        while True:
            if self._reset:
                reason, self._reset = self._reset, ""
                return Reset(at=datetime.now(UTC), reason=reason)
            if self._waiting:
                return from_log(self._waiting.popleft())
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
