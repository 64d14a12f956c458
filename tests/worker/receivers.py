"""Receivers of webhooks: real servers, which answer as a test says, or not at all."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["CERTIFICATE", "SECRET", "Receiver", "Received", "receiver"]

SECRET = "whsec_" + "A" * 32
CERTIFICATE = Path(__file__).parent / "receiver.pem"
"""Of `hooks.test`, with its key."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Received:
    """One request."""

    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What one server has got, and how it answers.

    Attributes:
        answers: The next answers; after the last one that it's well. None: it says nothing, and keeps the connection.
        received: The requests.
        connections: How many have come.
        open: How many are there now.
    """

    port: int = 0
    answers: list[bytes | None] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in?token=secret"

    async def got(self, count: int) -> list[Received]:
        """Wait for so many requests."""
        while len(self.received) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.received

    def release(self) -> None:
        """Answer those to whom nothing was said."""
        self._released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(Received(line.split(" ")[1], headers, body))
            self._changed.set()
            answer = self.answers.pop(0) if self.answers else OK
            if answer is None:
                await self._released_or_left(reader)
                answer = OK
            writer.write(answer)
            await writer.drain()
            await reader.read()  # until the other side has had enough
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _released_or_left(self, reader: asyncio.StreamReader) -> None:
        """Say nothing until somebody says `release`, or the other side closes."""
        waiting = [asyncio.ensure_future(self._released.wait()), asyncio.ensure_future(reader.read(1))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)


@asynccontextmanager
async def receiver(*answers: bytes | None, tls: bool = False) -> AsyncIterator[Receiver]:
    """A server for the length of a block."""
    made = Receiver(answers=list(answers))
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(made.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
