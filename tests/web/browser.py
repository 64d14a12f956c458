"""A reader of server-sent events over a plain connection, as a browser is one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

__all__ = ["Browser", "Frame", "frames_of"]


@dataclass
class Frame:
    """One frame, as a browser dispatches it."""

    event: str = "message"
    id: str | None = None
    data: dict[str, Any] = field(default_factory=dict[str, Any])


def frames_of(text: str) -> list[Frame]:
    """Parse whole frames as the standard says; comments and `retry` dispatch nothing."""
    found: list[Frame] = []
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        lines = [line.partition(":")[::2] for line in block.split("\n") if not line.startswith(":")]
        fields = {name: value.removeprefix(" ") for name, value in lines if name}
        if "data" in fields:
            found.append(Frame(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"])))
    return found


class Browser:
    """One connection: `async with Browser(port, "/events?job=…") as browser`. It knows the newest id, as a browser does."""

    def __init__(self, port: int, path: str = "/events", last_id: str | None = None) -> None:
        self._port, self._path = port, path
        self.last_id = last_id
        self.status = 0
        self.headers = ""

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        last = "" if self.last_id is None else f"Last-Event-ID: {self.last_id}\r\n"
        self._writer.write(f"GET {self._path} HTTP/1.0\r\nHost: localhost\r\n{last}\r\n".encode())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    async def head(self) -> int:
        """Read the response's beginning; returns the status."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.headers = head.decode().lower()
        self.status = int(head.split(b" ", 2)[1])
        return self.status

    async def frames(self) -> AsyncIterator[Frame]:
        """What comes, to the end of the stream."""
        if not self.status:
            await self.head()
        while True:
            try:
                block = await self._reader.readuntil(b"\n\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            for each in frames_of(block.decode()):
                if each.id is not None:
                    self.last_id = each.id
                yield each

    async def take(self, number: int) -> list[Frame]:
        """So many frames."""
        found: list[Frame] = []
        async for each in self.frames():
            found.append(each)
            if len(found) == number:
                break
        return found
