"""A server with a worker and a stream of events, for a process of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

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
