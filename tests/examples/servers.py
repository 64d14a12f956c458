"""The shop's servers as real processes, on one database, and what has to be true of it afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from uuid import UUID

import anyio
import httpx
from sqlalchemy import select

from aioqueue import Client, JobState
from examples.shop.database import Order, Shipment, open_database
from tests.processes import FORBIDDEN, PATIENCE, ROOT, Ledger, until

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from aioqueue import Job

WATCHED = "tests.examples.shop_watched"
PLAIN = "examples.shop"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def uvicorn(framework: str, *options: str, watched: bool = True) -> list[str]:
    """The command line of a server; `{port}` stands for the port."""
    app = [f"{WATCHED}:{framework}_app", "--factory"] if watched else [f"{PLAIN}.{framework}_app:app"]
    return ["-m", "uvicorn", *app, "--port", "{port}", *options]


def gunicorn(app: str, *options: str) -> list[str]:
    worker = "uvicorn.workers.UvicornWorker"
    return ["-m", "gunicorn", app, "-k", worker, "-b", "127.0.0.1:{port}", "--graceful-timeout", "60", *options]


def command(framework: str) -> list[str]:
    """How the framework's server is started in the tests."""
    return ["-m", WATCHED, "aiohttp", "{port}"] if framework == "aiohttp" else uvicorn(framework)


_CUT_OFF = re.compile(
    r"Error handling request from \S+\nTraceback \(most recent call last\):\n(?:  .*\n)+ConnectionResetError: Connection lost\n"
)
"""What aiohttp says of a request whose body hadn't come when the stop closed its connection."""


@dataclass(frozen=True)
class Placed:
    """An order that a server has accepted."""

    order_id: int
    job_id: UUID


class Server:
    """One server process, possibly with children.

    Arguments:
        arguments: Python's command line; `{port}` stands for the port.
        environment: All of its variables.
        log: Where its output goes.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._arguments = arguments
        self._environment = environment
        self.log = log
        self.port = 0
        self._start()

    def _start(self) -> None:
        self.port = free_port()
        arguments = [each.replace("{port}", str(self.port)) for each in self._arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that the whole family can be killed
            )

    async def ready(self) -> Self:
        """Wait until it answers, and its worker works."""
        tries = 5

        async def healthy() -> bool:
            nonlocal tries
            if self.process.poll() is not None:
                output = self.output()
                tries -= 1
                assert tries > 0, "no free port"
                assert "in use" in output, f"the server ended with {self.process.returncode}:\n{output}"
                self._start()  # another program was given the port meanwhile
            try:
                return (await http.get(self.url("/health"))).status_code == 200
            except httpx.TransportError:
                return False

        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            await until(healthy, f"the server's readiness\n{self.output()}")
        return self

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self, *, codes: Collection[int] = (0, -signal.SIGTERM, -signal.SIGINT, 130, 143)) -> None:
        """Wait for its end, which is a clean one.

        Raises:
            AssertionError: It isn't.
        """
        await until(lambda: self.process.poll() is not None, f"the server's end\n{self.output()}")
        output = _CUT_OFF.sub("", self.output())
        assert self.process.returncode in codes, f"exit code {self.process.returncode}:\n{output}"
        for phrase in (*FORBIDDEN, "Traceback"):
            assert phrase not in output, f"{phrase!r} in\n{output}"

    def kill(self) -> None:
        """Kill it and its children, if any of them is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Shop:
    """One database, its servers, and the orders that they have accepted."""

    def __init__(self, url: str, folder: Path) -> None:
        self.database = url
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.placed: list[Placed] = []
        self._servers: list[Server] = []

    # -- processes ------------------------------------------------------------------------------------------------

    def environment(self, **variables: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "default::ResourceWarning",
            "AIOQUEUE_URL": self.database,
            "AIOQUEUE_GRACE": "60s",
            "SHOP_LEDGER": str(self.ledger.path.absolute()),
            **variables,
        }

    async def start(self, arguments: list[str], **variables: str) -> Server:
        """Start a server, and wait until it's ready."""
        log = self.folder / f"server-{len(self._servers)}.log"
        server = Server(arguments, self.environment(**variables), log)
        self._servers.append(server)
        return await server.ready()

    def close(self) -> None:
        for server in self._servers:
            server.kill()

    # -- orders ---------------------------------------------------------------------------------------------------

    async def place(self, server: Server, item: str, *, http: httpx.AsyncClient | None = None) -> Placed:
        """Place an order, which has to be accepted."""
        if http is None:
            async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
                return await self.place(server, item, http=http)
        response = await http.post(server.url("/orders"), json={"item": item})
        assert response.status_code == 202, response.text
        body = response.json()
        placed = Placed(body["order_id"], UUID(body["job_id"]))
        self.placed.append(placed)
        return placed

    async def place_until_it_stops(self, server: Server, started: anyio.Event) -> None:
        """Place orders, one after the other, until the server accepts none any more."""
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            while True:
                try:
                    await self.place(server, "quick", http=http)
                except httpx.TransportError:
                    return
                started.set()

    async def status(self, server: Server, placed: Placed) -> dict[str, str]:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            response = await http.get(server.url(f"/jobs/{placed.job_id}"))
        assert response.status_code == 200, response.text
        body: dict[str, str] = response.json()
        return body

    def open(self, gate: str) -> None:
        (self.folder / f"open-{gate}").touch()

    def events(self, event: str, item: str) -> int:
        return sum(entry.note == item for entry in self.ledger.entries(event))

    async def begun(self, item: str, times: int) -> None:
        """Wait until so many parcels with the item are being packed."""
        await until(lambda: self.events("start", item) >= times, f"{times} × {item} begun: {self.ledger.entries()}")

    # -- what has to be true --------------------------------------------------------------------------------------

    async def jobs(self) -> list[Job]:
        found: list[Job] = []
        cursor: str | None = None
        async with Client(self.database) as client:
            while True:
                page = await client.list_jobs(types=["shop.ship"], limit=1000, cursor=cursor)
                found += page.jobs
                if (cursor := page.cursor) is None:
                    return found

    async def check_all_shipped(self, *, attempts: int | None = 1) -> None:
        """Wait until every job has ended, and see that nothing was lost or done twice.

        Arguments:
            attempts: How many attempts every job has used; None for any number.
        """

        async def finished() -> bool:
            return all(job.state.finished for job in await self.jobs())

        await until(finished, "all jobs finished", within=PATIENCE)
        jobs = await self.jobs()
        async with open_database(self.database) as sessions, sessions() as session:
            orders = set((await session.scalars(select(Order.id))).all())
            shipments = {row.order_id: row.parcel for row in (await session.scalars(select(Shipment))).all()}
        assert {job.state for job in jobs} <= {JobState.COMPLETED}, jobs
        if attempts is not None:
            assert {job.attempt for job in jobs} <= {attempts}, jobs
        # An order and its job are one transaction; what was answered is there.
        assert len(jobs) == len(orders)
        assert sorted(shipments) == sorted(orders)
        assert sorted(job.output for job in jobs) == sorted(shipments.values())
        outputs = {job.id: job.output for job in jobs}
        assert all(outputs[each.job_id] == shipments[each.order_id] for each in self.placed)
        # The ledger, where there is one: every parcel was packed to its end once.
        if self.ledger.path.exists():
            ends = Counter(entry.job for entry in self.ledger.entries("end"))
            assert ends == Counter(str(job.id) for job in jobs), ends


def pids(output: str) -> set[int]:
    """The server processes that a log of uvicorn or gunicorn names."""
    return {int(each) for each in re.findall(r"Started server process \[(\d+)\]", output)}
