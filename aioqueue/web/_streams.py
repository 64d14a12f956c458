"""What a stream sends: a snapshot, then events, and now and then a comment, for a bounded time."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aioqueue.errors import AioqueueError, ConfigurationError, JobNotFound
from aioqueue.events import JobEvent, Reset
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import Job
from aioqueue.vocabulary._time import seconds
from aioqueue.web._frames import COMMENT, fields_of_event, fields_of_job, fields_of_stats, frame, kind_of
from aioqueue.web._request import read_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

    from aioqueue.client import Client, EventStream
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.web._request import Asked, StreamRequest

__all__ = ["HEADERS", "Authorise", "Choose", "Streams", "made_streams"]

logger = logging.getLogger("aioqueue.web")

Authorise: TypeAlias = "Callable[[StreamRequest], bool | Awaitable[bool]]"
"""Says whether a request may see the stream that it asks for."""
Choose: TypeAlias = "Callable[[JobEvent | Job | Stats, dict[str, Any], StreamRequest], Mapping[str, Any] | None]"
"""Says what is sent of an event, or of a snapshot's job or figures; None for nothing."""

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",  # nginx would keep frames back
}

_LAST_WRITES_SECONDS = 0.5
"""For what streams still write when they're told to end."""
_AUTHORISE_SECONDS = 10.0
"""That `authorise` may take: until it has answered, a server that stops waits for the request."""
_RETRY_MILLISECONDS = 1_000
"""After which a browser comes back when a stream has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    authorise: Authorise | None
    choose: Choose | None
    lifetime: float
    keep_alive: float


class Streams:
    """The streams of one endpoint.

    Arguments:
        client: Open while somebody reads.
        settings: See `made_streams`.
    """

    def __init__(self, client: Client, settings: _Settings) -> None:
        self._client = client
        self._settings = settings
        self._open: dict[EventStream, asyncio.Timeout] = {}
        self.stopped = False

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def stop(self) -> None:
        """End all streams, and those that are asked for from now on at once: the server is about to stop."""
        self.stopped = True
        for stream, within in list(self._open.items()):
            stream.close()
            if not within.expired():  # it may be writing to a reader that doesn't read
                within.reschedule(asyncio.get_running_loop().time() + _LAST_WRITES_SECONDS)

    async def refusal(self, request: StreamRequest) -> int | None:
        """The HTTP status with which a request is refused; None if it may be answered."""
        try:
            read_request(request)
        except ValueError:
            return 400
        if self._settings.authorise is None:
            return None
        try:
            allowed = self._settings.authorise(request)
            if inspect.isawaitable(allowed):
                async with asyncio.timeout(_AUTHORISE_SECONDS):
                    allowed = await allowed
        except Exception:  # a hang is one, too
            logger.exception("whether a stream of events may be seen can't be said", extra=event("web.authorise_failed"))
            return 500
        return None if allowed is True else 403

    async def serve(self, request: StreamRequest, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write a stream, to its end, within its time: the browser comes back then, and goes on where it was.

        What goes wrong ends it sooner. What a reader doesn't take in time is bounded: see `EventStream`.

        Arguments:
            request: It may see the stream.
            write: Sends bytes, and waits until they're taken.
        """
        loop = asyncio.get_running_loop()
        # Not all at once, when a server has started and everybody has come back.
        end = loop.time() + self._settings.lifetime * random.uniform(0.8, 1.0)  # noqa: S311 - not for secrets
        try:
            async with asyncio.timeout_at(end) as within:
                await write(b"retry: %d\n\n" % _RETRY_MILLISECONDS)
                if not self.stopped:
                    await self._serve(request, read_request(request), write, within)
        except TimeoutError:
            return
        except AioqueueError as error:
            logger.info("a stream of events has ended early: %s", type(error).__name__, extra=event("web.stream_ended"))

    async def _serve(
        self, request: StreamRequest, asked: Asked, write: Callable[[bytes], Awaitable[None]], within: asyncio.Timeout
    ) -> None:
        stream = self._client.events(types=asked.types, job_id=asked.job_id, chain_id=asked.chain_id, after=asked.after)
        self._open[stream] = within
        try:
            async with stream:
                if asked.after is None:
                    await write(await self._snapshot(request, asked))
                await self._write_events(stream, request, asked, write)
        finally:
            del self._open[stream]

    async def _write_events(
        self, stream: EventStream, request: StreamRequest, asked: Asked, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        greatest = asked.after or 0
        while True:
            try:
                async with asyncio.timeout(self._settings.keep_alive):
                    happened = await anext(stream, None)
            except TimeoutError:
                await write(COMMENT)
                continue
            if happened is None:
                return
            if isinstance(happened, Reset):
                await write(frame("reset", {"at": happened.at, "reason": happened.reason}))
                await write(await self._snapshot(request, asked))
                continue
            # One that comes late, or once more, must not take the place from which the browser goes on back.
            number = happened.sequence or 0
            made = self._frame(kind_of(happened), happened, request, number if number > greatest else None)
            greatest = max(greatest, number)
            if made:
                await write(made)

    async def _snapshot(self, request: StreamRequest, asked: Asked) -> bytes:
        """How it stands now. Without an id: it doesn't move the place from which the browser goes on."""
        client = self._client
        if asked.job_id is None and asked.chain_id is None:
            figures = await client.stats()
            return self._frame("snapshot", figures, request, types=asked.types)
        try:
            job = await (client.job(asked.job_id) if asked.job_id is not None else client.chain(asked.chain_id or ""))
        except JobNotFound:
            return frame("snapshot", {"job_id": asked.job_id or asked.chain_id, "state": None})
        return self._frame("snapshot", job, request)

    def _frame(
        self,
        name: str,
        about: JobEvent | Job | Stats,
        request: StreamRequest,
        event_id: int | None = None,
        types: tuple[str, ...] = (),
    ) -> bytes:
        """One frame, of what may be told; empty for nothing."""
        try:
            told = _told(about, types)
            choose = self._settings.choose
            chosen = told if choose is None else choose(about, told, request)
            return b"" if chosen is None else frame(name, chosen, event_id)
        except Exception:
            logger.exception("what is told of an event can't be said: it isn't told", extra=event("web.choose_failed"))
            return b""


def _told(about: JobEvent | Job | Stats, types: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(about, JobEvent):
        return fields_of_event(about)
    return fields_of_job(about) if isinstance(about, Job) else fields_of_stats(about, types)


def made_streams(
    client: Client,
    *,
    authorise: Authorise | None,
    choose: Choose | None,
    lifetime: float | timedelta,
    keep_alive: float | timedelta,
) -> Streams:
    """Make the streams of one endpoint; the faces say what the arguments mean.

    Raises:
        ConfigurationError: A duration isn't above 0.
    """
    durations = {name: seconds(each, name) for name, each in (("lifetime", lifetime), ("keep_alive", keep_alive))}
    for name, each in durations.items():
        if each <= 0:
            raise ConfigurationError(f"{name} has to be above 0, not {each:g}")
    return Streams(client, _Settings(authorise=authorise, choose=choose, **durations))
