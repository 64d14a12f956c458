"""The end of a stream whose reader doesn't read: nothing waits for what it will never take."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["let_go"]

TAKEN_SECONDS = 1.0
"""Within which what was sent has to be taken when a stream ends."""
_LOOK_SECONDS = 0.02


async def let_go(transport: Any) -> None:
    """See that a connection can be closed: a server that stops waits until its reader has taken all, and may wait for ever.

    Arguments:
        transport: The connection's, of asyncio; without one, as some servers don't show it, nothing happens.
    """
    size = getattr(transport, "get_write_buffer_size", None)
    if size is None:
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + TAKEN_SECONDS
    while size():
        if loop.time() >= until:
            transport.abort()
            await asyncio.sleep(0)  # the server is told
            return
        await asyncio.sleep(_LOOK_SECONDS)
