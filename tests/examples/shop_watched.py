"""The shop with a ledger of what was packed, and parcels that wait for the test.

`uvicorn --factory tests.examples.shop_watched:fastapi_app` and so on are the example's own servers. The item `gate-NAME`
isn't packed before a file `open-NAME` lies beside the ledger. The item `stubborn` is never packed, and can't be cancelled.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from aioqueue import Client, ClientClosed, current_attempt
from examples.shop import jobs
from tests.processes import Ledger, die_with_parent

if TYPE_CHECKING:
    from aiohttp import web
    from fastapi import FastAPI
    from starlette.applications import Starlette

    from examples.shop.database import Order

LEDGER = Ledger(os.environ["SHOP_LEDGER"])

if "SHOP_FORKED" not in os.environ:
    die_with_parent()


async def _pack(order: Order) -> str:
    attempt = current_attempt()

    def write(event: str) -> None:
        LEDGER.write(event, str(attempt.job.id), attempt.number, attempt.worker_id, order.item)

    write("start")
    while order.item == "stubborn":
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(3600)
    try:
        if order.item.startswith("gate-"):
            gate = Path(LEDGER.path).with_name(order.item.replace("gate-", "open-"))
            while not gate.exists():
                await anyio.sleep(0.02)
    except anyio.get_cancelled_exc_class():
        write("cancelled")
        raise
    write("end")
    return f"P{order.id:06}"


jobs.pack = _pack


def fastapi_app() -> FastAPI:
    from examples.shop.fastapi_app import app  # lazy: each server imports its own framework only

    return app


def starlette_app() -> Starlette:
    from examples.shop.starlette_app import app  # lazy, as above

    return app


def forked_app() -> FastAPI:
    """Made before the fork, with a client that was opened there too."""
    import asyncio

    from examples.shop.fastapi_app import app  # lazy, as above

    early = Client()
    asyncio.run(early.open())

    @app.get("/early")
    async def use_early() -> str:
        try:
            await early.stats()
        except ClientClosed as error:
            return str(error)
        return "it was used"

    return app


def aiohttp_app() -> web.Application:
    from examples.shop.aiohttp_app import make_app  # lazy, as above

    return make_app()


if __name__ == "__main__":
    if sys.argv[1] == "script":
        from examples.shop import script

        del sys.argv[1]
        sys.exit(script.main())
    from aiohttp import web

    web.run_app(aiohttp_app(), host="127.0.0.1", port=int(sys.argv[2]))
