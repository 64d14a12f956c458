"""FastAPI: `uvicorn examples.shop.fastapi_app:app`, with `--workers 4` or `--reload` too.

The worker lives in the lifespan. A request's session, and the jobs that it enqueues, are one transaction, which is
committed before the response is sent: whoever reads 202 can rely on it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypedDict
from uuid import UUID  # noqa: TC003 - FastAPI reads the annotations

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, PositiveInt
from sqlalchemy.ext.asyncio import AsyncSession

from aioqueue import Client, JobNotFound, JobState, Worker
from aioqueue.client import BoundClient
from examples.shop.database import DATABASE_URL, Order, Sessions, open_database
from examples.shop.jobs import database, registry, ship

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["app"]


class State(TypedDict):
    """What the lifespan opens, and every request has."""

    sessions: Sessions
    client: Client
    worker: Worker


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    """Open everything; at the end close it in reverse, so that the worker stops first, within its grace."""
    async with (
        open_database() as sessions,
        Client(DATABASE_URL) as client,
        Worker(client, registry, resources={database: sessions}) as worker,
    ):
        yield State(sessions=sessions, client=client, worker=worker)


app = FastAPI(title="Shop", lifespan=lifespan)


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """One transaction for the request: committed after the endpoint has returned, rolled back if it raises."""
    sessions: Sessions = request.state.sessions
    async with sessions.begin() as session:
        yield session


# The scope "function" ends it before the response is sent. The default, "request", would commit after it: too late.
Session = Annotated[AsyncSession, Depends(open_session, scope="function")]


def bind_producer(request: Request, session: Session) -> BoundClient:
    """Give a producer whose jobs are part of the request's transaction."""
    client: Client = request.state.client
    return client.using(session)


Producer = Annotated[BoundClient, Depends(bind_producer)]


class NewOrder(BaseModel):
    """What a customer sends."""

    item: str
    quantity: PositiveInt = 1


class Accepted(BaseModel):
    """What the customer gets at once."""

    order_id: int
    job_id: UUID


class Status(BaseModel):
    """How far the order's job is."""

    state: JobState
    parcel: str | None


@app.post("/orders", status_code=202)
async def place_order(new: NewOrder, session: Session, producer: Producer) -> Accepted:
    """Store an order and the job that ships it: both, or neither."""
    order = Order(item=new.item, quantity=new.quantity)
    session.add(order)
    await session.flush()
    job = await producer.enqueue(ship(order.id))
    return Accepted(order_id=order.id, job_id=job.id)


@app.get("/jobs/{job_id}")
async def show_job(job_id: UUID, request: Request) -> Status:
    """Tell how far it is."""
    client: Client = request.state.client
    try:
        job = await client.handle(ship, job_id).snapshot()
    except JobNotFound as error:
        raise HTTPException(404, "there is no such job") from error
    return Status(state=job.state, parcel=job.output if job.state is JobState.COMPLETED else None)


@app.get("/health")
async def show_health(request: Request) -> dict[str, int]:
    """Answer 503 when the worker doesn't work: the reasons are in its log."""
    worker: Worker = request.state.worker
    health = worker.health()
    if not health.ok:
        raise HTTPException(503, "the worker is in trouble")
    return {"busy": health.busy, "concurrency": health.concurrency}
