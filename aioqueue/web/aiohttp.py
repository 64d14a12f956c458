"""The stream of events as a handler of aiohttp. Needs aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aioqueue.web._connections import let_go
from aioqueue.web._request import StreamRequest
from aioqueue.web._streams import HEADERS, made_streams

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import timedelta

    from aioqueue.client import Client
    from aioqueue.web._streams import Authorise, Choose, Streams

__all__ = ["EventsHandler", "events"]

_LOOK_SECONDS = 0.5
"""After which it's looked whether a reader is still there: aiohttp doesn't say by itself."""


def events(
    client: Client,
    *,
    authorise: Authorise | None = None,
    choose: Choose | None = None,
    lifetime: float | timedelta = 30.0,
    keep_alive: float | timedelta = 10.0,
) -> EventsHandler:
    """Make a stream of server-sent events: `app.router.add_get("/events", streams.handle)`.

    Also `app.on_shutdown.append(streams.stop)`, so that aiohttp needn't wait for them when it stops. Otherwise as
    `aioqueue.web.events`.
    """
    return EventsHandler(made_streams(client, authorise=authorise, choose=choose, lifetime=lifetime, keep_alive=keep_alive))


class EventsHandler:
    """An endpoint for streams of events; `events` makes it.

    Arguments:
        streams: What is sent.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    @property
    def streaming(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    async def stop(self, app: web.Application | None = None) -> None:
        """End all streams now: for `on_shutdown`."""
        del app
        self._streams.stop()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request."""
        query = {name: request.query.getall(name) for name in request.query}
        asked = StreamRequest({name.lower(): value for name, value in request.headers.items()}, query, request)
        # `add_get` lets HEAD through as well, whose answer has no body.
        status = 405 if request.method != "GET" else await self._streams.refusal(asked)
        if status is not None:
            return web.Response(status=status)
        response = web.StreamResponse(headers=HEADERS)
        with contextlib.suppress(ConnectionError):  # its reader has gone
            await response.prepare(request)
            await _until_left(self._streams.serve(asked, response.write), request)
            await let_go(request.transport)
        return response


async def _until_left(stream: Coroutine[Any, Any, None], request: web.Request) -> None:
    """Run a stream until its end, or until its reader has gone. It's over when this returns, whoever cancels it."""
    streaming = asyncio.ensure_future(stream)
    try:
        while not streaming.done() and request.transport is not None and not request.transport.is_closing():
            await asyncio.wait([streaming], timeout=_LOOK_SECONDS)
    finally:
        streaming.cancel()
        await asyncio.gather(streaming, return_exceptions=True)
    if not streaming.cancelled():
        streaming.result()
