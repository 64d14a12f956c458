"""A TCP proxy between a client and PostgreSQL, for faults on the line: nothing happens by chance or by the clock.

    async with Proxy(server.port) as proxy:
        url = server.url(database, port=proxy.port)
        proxy.pause()                       # a black hole: connections stay open, nothing comes through
        proxy.resume()
        proxy.cut()                         # every connection is reset
        proxy.refuse()                      # new ones are refused, until accept()
        proxy.swallow(r"^COMMIT")           # the next COMMIT is carried out, but its answer is lost and the line cut
        await proxy.swallowed.wait()

It reads PostgreSQL's messages (version 3, without TLS, to which it answers no), but changes none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102


class _Messages:
    """Cuts one direction's bytes into messages of (type, body)."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        self._buffer += data
        messages: list[tuple[bytes, bytes]] = []
        while len(self._buffer) >= 5:
            length = 1 + int.from_bytes(self._buffer[1:5], "big")
            if len(self._buffer) < length:
                break
            messages.append((bytes(self._buffer[:1]), bytes(self._buffer[5:length])))
            del self._buffer[:length]
        return messages


class Connection:
    """One client's connection, with the server's end of it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._from_client, self._from_server = _Messages(), _Messages()
        self._statements: dict[bytes, str] = {}
        self._swallowing = False
        self.statements: list[str] = []
        """What the client has sent: queries, and prepared statements when they were executed."""

    def pause(self) -> None:
        """Let nothing through in either direction until `resume`; nothing is lost."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """Reset both ends at once; what was on its way is lost."""
        for end in (self._client, self._server):
            if end is not None:
                with contextlib.suppress(OSError):
                    raw = end[1].get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end[1].transport.abort()
        self._open.set()

    async def run(self) -> None:
        try:
            if await self._connect():
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(self._client, self._server, self._sent))
                    group.create_task(self._pump(self._server, self._client, self._answered))
        except* (ConnectionError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.cut()

    async def _connect(self) -> bool:
        """Answer no to encryption, connect to the server, and hand the start-up packet over."""
        reader, writer = self._client
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            writer.write(b"N")
        packet = head + await reader.readexactly(length - 8)
        await self._open.wait()
        self._server = await asyncio.open_connection("127.0.0.1", self._proxy.target)
        self._server[1].write(packet)
        if code == CANCEL_REQUEST:
            await self._server[1].drain()
            self._server[1].close()
            return False
        return True

    async def _pump(
        self,
        source: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None,
        target: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None,
        seen: Callable[[bytes], bool],
    ) -> None:
        assert source is not None
        assert target is not None
        while data := await source[0].read(65536):
            await self._open.wait()
            if self._proxy.delay:
                await asyncio.sleep(self._proxy.delay)
            if seen(data):
                target[1].write(data)
                await target[1].drain()
        raise ConnectionResetError  # one end has closed: so does the other

    def _sent(self, data: bytes) -> bool:
        for kind, body in self._from_client.feed(data):
            statement: str | None = None
            if kind == b"Q":
                statement = body.rstrip(b"\0").decode(errors="replace")
            elif kind == b"P":
                name, query, _ = body.split(b"\0", 2)
                self._statements[name] = query.decode(errors="replace")
            elif kind == b"B":
                _, name, _ = body.split(b"\0", 2)
                statement = self._statements.get(name, "")
            if statement is not None:
                self.statements.append(statement)
                if self._proxy.takes(statement):
                    self._swallowing = True
        return True

    def _answered(self, data: bytes) -> bool:
        messages = self._from_server.feed(data)
        if not self._swallowing:
            return True
        if any(kind == b"Z" for kind, _ in messages):  # the server is ready for the next one
            self.cut()
            self._proxy.swallowed.set()
        return False


class Proxy:
    """See above. Its connections belong to the event loop in which it was entered.

    Arguments:
        target: The server's port on 127.0.0.1.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay = 0.0
        """Seconds by which every piece of data is held up."""
        self.port = 0
        self.connections: list[Connection] = []
        self.swallowed = asyncio.Event()
        """Set when an answer has been swallowed and its connection cut."""
        self._pattern: re.Pattern[str] | None = None
        self._times = 0
        self._paused = False
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def accept(self) -> None:
        """Take connections (again), on the same port as before."""
        if self._listening is None:
            self._listening = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
            self.port = self._listening.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Take no new connections; those that are open stay."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def pause(self) -> None:
        """Let nothing through, on new connections either, until `resume`; nothing is lost."""
        self._paused = True
        for connection in self.connections:
            connection.pause()

    def resume(self) -> None:
        self._paused = False
        for connection in self.connections:
            connection.resume()

    def cut(self) -> None:
        """Reset every connection that is open."""
        for connection in list(self.connections):
            connection.cut()

    def swallow(self, pattern: str, *, times: int = 1) -> None:
        """Lose the answer to the next statements that match: the server carries them out, and commits those that are
        outside a transaction, but the client sees its connection reset. `^COMMIT` is for transactions.
        """
        self._pattern = re.compile(pattern, re.IGNORECASE | re.DOTALL)
        self._times = times
        self.swallowed.clear()

    def takes(self, statement: str) -> bool:
        """Whether the answer to this statement is to be swallowed; counts."""
        if self._pattern is None or not self._times or not self._pattern.search(statement):
            return False
        self._times -= 1
        return True

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        if self._paused:
            connection.pause()
        self.connections.append(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await connection.run()
        finally:
            self.connections.remove(connection)
            self._tasks.discard(task)
