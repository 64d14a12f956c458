"""Ending a connection: with a farewell to the server, at once, or after its event loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioqueue.runtime._log import event
from aioqueue.runtime._shield import hold_off_scopes, to_the_end

if TYPE_CHECKING:
    from aioqueue.postgres._connections_driver import Connection

__all__ = [
    "CLOSE_SECONDS",
    "PATIENCE_SECONDS",
    "close_connection",
    "close_socket",
    "loop_has_ended",
    "terminate",
    "warn_of_ended_loop",
]

logger = logging.getLogger("aioqueue.postgres")

CLOSE_SECONDS = 3.0
PATIENCE_SECONDS = 0.5
"""How long a caller that is cancelled, or whose deadline is over, still waits for its connection's sake."""


async def close_connection(connection: Connection) -> None:
    """Say farewell to the server within `CLOSE_SECONDS`, or cut the connection off."""
    if connection.is_closed():
        return
    if loop_has_ended():
        close_socket(connection)
        return
    try:
        with suppress(Exception):  # whatever the farewell fails with, the connection is cut off below
            await to_the_end(connection.close(timeout=CLOSE_SECONDS / 2), CLOSE_SECONDS, once_cancelled=PATIENCE_SECONDS)
    finally:
        if not connection.is_closed():
            terminate(connection)
        with hold_off_scopes():
            await asyncio.sleep(0)  # a transport closes its socket in the loop's next round


def loop_has_ended() -> bool:
    """Whether there's no event loop any more in which anything could be waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def warn_of_ended_loop() -> None:
    """Say that a statement's caller has gone together with its event loop."""
    logger.warning(
        "the event loop was closed while a statement ran: nobody hears what became of it",
        extra=event("store.loop_closed_early"),
    )


def terminate(connection: Connection) -> None:
    """Close a connection without waiting for anything, whatever has become of its event loop."""
    if loop_has_ended():
        close_socket(connection)
    else:
        connection.terminate()


def close_socket(connection: Connection) -> None:
    """Close the socket of a connection whose event loop is closed. Nothing public does so without a warning for each part."""
    with suppress(Exception):  # private parts, which may have another shape: it's collected, with a warning
        given: Any = connection
        given._aborted = True
        transport = given._transport
        inner: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        for each in (transport, inner):
            if hasattr(each, "_closed"):
                each._closed = True
            if getattr(each, "_sock", None) is not None:
                each._sock.close()
                each._sock = None
