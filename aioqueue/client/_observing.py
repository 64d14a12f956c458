"""What a client tells of what happens: its own doing and its workers', and what the store has logged of everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.client._event_streams import EventStream
from aioqueue.client._handle import ids_of
from aioqueue.client._subscription import Wanted
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from aioqueue.client._handle import JobHandle
    from aioqueue.client._session import Session
    from aioqueue.definitions._job_type import JobType
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

    def events(
        self,
        *,
        types: Iterable[JobType[..., Any, Any] | str] = (),
        job_id: UUID | str | JobHandle[Any] | None = None,
        chain_id: UUID | str | JobHandle[Any] | None = None,
        after: int | None = None,
    ) -> EventStream:
        """Give what happens to jobs, whoever does it and in whatever process, after the commit.

            async with client.events(types=[fetch]) as stream:
                jobs = await client.list_jobs(types=[fetch])  # nothing that happens after this is missing
                async for event in stream:
                    ...

        Of one job the events come in the order in which they happened, each once. A `Reset` among them says that some may be
        missing: when the process was cut off from the database, or the stream is read too slowly. The store writes events only
        while somebody reads them, and keeps them for minutes; all streams of a client read them together.

        Arguments:
            types: Only these job types' (or names').
            job_id: Only this very job's; an id, its text or a handle.
            chain_id: Only this chain's: by its first job's id.
            after: The greatest `sequence` that was seen, of an earlier stream: then what has happened since comes first, and
                some may come once more. A `Reset` does if that isn't in the log.

        Returns:
            The stream; nothing is read before it's entered, or asked for its first event.

        Raises:
            ValueError: It's no id.
            ConfigurationError: `types` can't be used.
            ClientClosed: The client isn't open.
            NotSupported: The store keeps no log of events.
        """
        feed = self._session.opened().events
        feed.check()
        wanted = Wanted(
            types=JobFilter(types=types).types,
            job_id=None if job_id is None else ids_of([job_id])[0],
            chain_id=None if chain_id is None else ids_of([chain_id])[0],
        )
        return EventStream(feed, wanted, after)
