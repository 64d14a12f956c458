"""The stream of events as an ASGI application: for Starlette, FastAPI, and whatever else speaks ASGI."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from aioqueue.web._connections import let_go
from aioqueue.web._request import StreamRequest
from aioqueue.web._streams import HEADERS, made_streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

    from aioqueue.client import Client
    from aioqueue.web._streams import Authorise, Choose, Streams

    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]

__all__ = ["EventsApp", "events"]

_LAST_WRITE_SECONDS = 0.1
"""For a reader that hasn't taken what it was sent before: then the server closes the connection."""


def events(
    client: Client,
    *,
    authorise: Authorise | None = None,
    choose: Choose | None = None,
    lifetime: float | timedelta = 30.0,
    keep_alive: float | timedelta = 10.0,
) -> EventsApp:
    """Make a stream of server-sent events: `app.add_route("/events", aioqueue.web.events(client))`.

    `new EventSource("/events?chain=0190…")` gets a `snapshot` first, then what happens: one event for each class of
    `aioqueue.events`, named as `completed` or `phase_started`. When it breaks off the browser comes back by itself, and gets
    what it has missed; a `reset`, and another snapshot, if that can't be known. `type`, `job` and `chain` in the query say what
    it's about; without them it's about all jobs.

    Neither arguments, outputs nor errors are told, unless `choose` adds them.

    Arguments:
        client: Open while the application serves. All streams read its log together.
        authorise: Called with each request, may be an `async def`: only True lets it in. What raises, or takes over 10
            seconds, is a 500. Without one everybody sees everything.
        choose: Called with what is to be told (an event, or a snapshot's `Job` or `Stats`), with the fields that are told by
            default, and with the request; returns the fields to send, or None for nothing.
        lifetime: Seconds after which a stream ends, and the browser comes back: a server that stops waits that long at most.
            `stop` ends all at once.
        keep_alive: Seconds after which a stream without events sends a comment.

    Returns:
        An ASGI application, to be routed to, or mounted.

    Raises:
        ConfigurationError: A duration isn't above 0.
    """
    return EventsApp(made_streams(client, authorise=authorise, choose=choose, lifetime=lifetime, keep_alive=keep_alive))


class EventsApp:
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

    def stop(self) -> None:
        """End all streams now: for a program that hears of its end before its server waits for them."""
        self._streams.stop()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        if scope["type"] != "http":
            raise RuntimeError(f"a stream of events is served over HTTP, not as {scope['type']!r}")
        request = _request(scope)
        status = 405 if scope["method"] != "GET" else await self._streams.refusal(request)
        if status is not None:
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await _until_left(self._stream(request, send, _transport(receive)), receive)

    async def _stream(self, request: StreamRequest, send: Send, transport: Any) -> None:
        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._streams.serve(request, write)
        await let_go(transport)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITE_SECONDS):
                await send({"type": "http.response.body", "body": b""})


async def _until_left(streaming: Any, receive: Receive) -> None:
    """Run a stream until its end, or until its reader has gone. Both are over when this returns, whoever cancels it."""
    tasks = [asyncio.ensure_future(streaming), asyncio.ensure_future(_disconnected(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not tasks[0].cancelled():
        tasks[0].result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _transport(receive: Receive) -> Any:
    """The connection, if it can be had: ASGI doesn't show it, and uvicorn's `receive` belongs to what has it."""
    return getattr(getattr(receive, "__self__", None), "transport", None)


def _request(scope: Mapping[str, Any]) -> StreamRequest:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return StreamRequest(headers, query, scope)
