"""What happens to jobs, for browsers: server-sent events, in any ASGI application.

    app = FastAPI(lifespan=lifespan)
    app.add_route("/events", aioqueue.web.events(client, authorise=may_see))

`aioqueue.web.aiohttp` has the same as a handler for aiohttp.

| file | what it does |
|---|---|
| `_asgi`, `aiohttp` | the stream as an ASGI application, for Starlette and FastAPI; as a handler of aiohttp |
| `_streams` | what is sent: a snapshot, events, comments, for a bounded time |
| `_connections` | the end of one whose reader doesn't read |
| `_frames` | how a frame is written, and what it tells by default |
| `_request` | who asks, and for what |
"""

from __future__ import annotations

from aioqueue.web._asgi import EventsApp, events
from aioqueue.web._request import StreamRequest

__all__ = ["EventsApp", "StreamRequest", "events"]
