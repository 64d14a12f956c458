"""One trace from a request through a chain to its last job: the request enqueues a job, which continues with another.

    pip install aioqueue-jobs[otel] fastapi uvicorn
    uvicorn examples.traced:app
    curl -X POST localhost:8000/orders/17

Each span is printed when it ends; with an exporter for OTLP in place of the console's they're sent to a backend. The worker
runs in the same process here. In another one it's the same trace, since the job carries its context through the database.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from aioqueue import Call, Client, Registry, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

registry = Registry()
client = Client()
tracer = trace.get_tracer("shop")


@registry.job
async def charge(order_id: int) -> Call[str]:
    """Take the money, and go on with the receipt: its attempt's span is a child of this one's."""
    with tracer.start_as_current_span("call the bank"):  # a child of the attempt's span
        pass
    return send_receipt(order_id)


@registry.job
async def send_receipt(order_id: int) -> str:
    """Tell the customer, and say what the chain has come to."""
    print(f"order {order_id}: thank you")
    return f"receipt {order_id}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Configure the SDK once, and run a worker beside the application."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # unless somebody has done so
        provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
        trace.set_tracer_provider(provider)
    async with client, Worker(client, registry):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order_id}")
async def order(order_id: int) -> dict[str, str]:
    """Accept an order. The package opentelemetry-instrumentation-fastapi would make this span by itself."""
    with tracer.start_as_current_span("POST /orders/{order_id}", kind=trace.SpanKind.SERVER):
        handle = await client.enqueue(charge(order_id))
    return {"job": str(handle.id)}
