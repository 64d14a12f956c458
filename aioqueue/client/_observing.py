"""What a client tells of what happens: its own doing and its workers', and what the store has logged of everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.client._session import Session
    from aioqueue.definitions._observers import Observation, Observer, Observers

__all__ = ["Observing"]


class Observing:
    """The verbs of a client for whoever wants to see what happens."""

    _session: Session

    @property
    def observers(self) -> Observers:
        """Whom a worker tells what happens; `observe` adds one."""
        return self._session.observers

    def observe(self, observer: Observer) -> Observation:
        """Call a function with each event of this client and of the workers that use it, after the commit: see
        `aioqueue.events`.

        It's called in the event loop, in a task apart: what it raises is logged, and what it waits for holds nobody up. One
        that is too slow misses events, and gets a `Reset` in their place. Told is what this client enqueues, other than in a
        `tx=` of which it doesn't see the commit, and all that its workers do; what other processes do, and operators, and what
        follows from that for jobs that wait, is told by `events`.

        Arguments:
            observer: A function, or an `async def`; it gets an `aioqueue.events.Event`.

        Returns:
            Its observation: `stop()` ends it, and so does the end of a `with` block. Closing the client doesn't.

        Raises:
            TypeError: It can't be called.
        """
        return self._session.observers.add(observer)
