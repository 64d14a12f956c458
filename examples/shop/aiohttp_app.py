"""aiohttp: `python -m examples.shop.aiohttp_app --port 8080`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING
from uuid import UUID

from aiohttp import web

from aioqueue import Client, JobNotFound, JobState, Worker
from examples.shop.database import DATABASE_URL, Order, Sessions, open_database
from examples.shop.jobs import database, registry, ship

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["make_app"]

SESSIONS = web.AppKey("sessions", Sessions)
CLIENT = web.AppKey("client", Client)
WORKER = web.AppKey("worker", Worker)


async def queue(app: web.Application) -> AsyncIterator[None]:
    """Open everything; at the end close it in reverse, so that the worker stops first, within its grace."""
    async with (
        open_database() as app[SESSIONS],
        Client(DATABASE_URL) as app[CLIENT],
        Worker(app[CLIENT], registry, resources={database: app[SESSIONS]}) as app[WORKER],
    ):
        yield


async def place_order(request: web.Request) -> web.Response:
    """Store an order and the job that ships it, in one transaction, committed before the response is made."""
    try:
        new = await request.json()
        order = Order(item=str(new["item"]), quantity=int(new.get("quantity", 1)))
    except (ValueError, TypeError, KeyError, AttributeError):
        return web.json_response({"error": 'send {"item": "…", "quantity": 1}'}, status=422)
    async with request.app[SESSIONS].begin() as session:
        session.add(order)
        await session.flush()
        job = await request.app[CLIENT].enqueue(ship(order.id), tx=session)
    return web.json_response({"order_id": order.id, "job_id": str(job.id)}, status=202)


async def show_job(request: web.Request) -> web.Response:
    """Tell how far it is."""
    try:
        job = await request.app[CLIENT].handle(ship, UUID(request.match_info["job_id"])).snapshot()
    except (ValueError, JobNotFound):
        return web.json_response({"error": "there is no such job"}, status=404)
    return web.json_response({"state": job.state, "parcel": job.output if job.state is JobState.COMPLETED else None})


async def show_health(request: web.Request) -> web.Response:
    """Answer 503 when the worker doesn't work: the reasons are in its log."""
    health = request.app[WORKER].health()
    body = {"busy": health.busy, "concurrency": health.concurrency}
    return web.json_response(body, status=200 if health.ok else 503)


def make_app() -> web.Application:
    """Put it together."""
    app = web.Application()
    app.cleanup_ctx.append(queue)
    app.add_routes([web.post("/orders", place_order), web.get("/jobs/{job_id}", show_job), web.get("/health", show_health)])
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.shop.aiohttp_app")
    parser.add_argument("--port", type=int, default=8080)
    web.run_app(make_app(), host="127.0.0.1", port=parser.parse_args().port)
