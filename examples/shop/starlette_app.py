"""Starlette: `uvicorn examples.shop.starlette_app:app`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypedDict
from uuid import UUID

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from aioqueue import Client, JobNotFound, JobState, Worker
from examples.shop.database import DATABASE_URL, Order, open_database
from examples.shop.jobs import database, registry, ship

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from examples.shop.database import Sessions

__all__ = ["app"]


class State(TypedDict):
    """What the lifespan opens, and every request has."""

    sessions: Sessions
    client: Client
    worker: Worker


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[State]:
    """Open everything; at the end close it in reverse, so that the worker stops first, within its grace."""
    async with (
        open_database() as sessions,
        Client(DATABASE_URL) as client,
        Worker(client, registry, resources={database: sessions}) as worker,
    ):
        yield State(sessions=sessions, client=client, worker=worker)


async def place_order(request: Request) -> JSONResponse:
    """Store an order and the job that ships it, in one transaction, committed before the response is made."""
    try:
        new = await request.json()
        order = Order(item=str(new["item"]), quantity=int(new.get("quantity", 1)))
    except (ValueError, TypeError, KeyError, AttributeError):
        return JSONResponse({"error": 'send {"item": "…", "quantity": 1}'}, 422)
    async with request.state.sessions.begin() as session:
        session.add(order)
        await session.flush()
        job = await request.state.client.enqueue(ship(order.id), tx=session)
    return JSONResponse({"order_id": order.id, "job_id": str(job.id)}, 202)


async def show_job(request: Request) -> JSONResponse:
    """Tell how far it is."""
    client: Client = request.state.client
    try:
        job = await client.handle(ship, UUID(request.path_params["job_id"])).snapshot()
    except (ValueError, JobNotFound):
        return JSONResponse({"error": "there is no such job"}, 404)
    return JSONResponse({"state": job.state, "parcel": job.output if job.state is JobState.COMPLETED else None})


async def show_health(request: Request) -> JSONResponse:
    """Answer 503 when the worker doesn't work: the reasons are in its log."""
    health = request.state.worker.health()
    return JSONResponse({"busy": health.busy, "concurrency": health.concurrency}, 200 if health.ok else 503)


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/orders", place_order, methods=["POST"]),
        Route("/jobs/{job_id}", show_job),
        Route("/health", show_health),
    ],
)
