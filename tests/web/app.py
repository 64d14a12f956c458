"""A server with a worker and a stream of events, for a process of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

import aioqueue.web
from aioqueue import Client, Registry, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

registry = Registry()
client = Client(os.environ["AIOQUEUE_URL"], poll_interval=0.05)


@registry.job
async def slow() -> str:
    await asyncio.sleep(1.0)
    return "done"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with client, Worker(client, registry):
        yield


app = FastAPI(lifespan=lifespan)
app.add_route("/events", aioqueue.web.events(client, lifetime=0.7))


@app.post("/jobs")
async def enqueue() -> str:
    return str((await client.enqueue(slow())).id)


@app.get("/page")
async def page() -> HTMLResponse:
    """What tells `?report=` of each event that the browser dispatches, one after the other."""
    return HTMLResponse("""<!doctype html><title>events</title><script>
        const report = new URLSearchParams(location.search).get("report");
        let telling = Promise.resolve();
        const tell = (told) => {
            telling = telling.then(() => fetch(report, {method: "POST", mode: "no-cors", body: JSON.stringify(told)}));
        };
        const source = new EventSource("/events");
        for (const kind of ["snapshot", "reset", "enqueued", "started", "completed"])
            source.addEventListener(kind, (event) => tell([kind, event.lastEventId, JSON.parse(event.data)]));
    </script>""")
