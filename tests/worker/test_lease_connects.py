"""The leases' thread connects before the first claim: what can't work is told then. On both stores."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioqueue import Client, ConfigurationError, JobState, StoreUnavailable
from aioqueue.worker import Worker
from tests.worker.faults import Jobs, until

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

LIMIT = 120


class Connecting:
    """Makes lease sessions whose `connect` a test decides about."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.errors = list(errors)
        self.events: list[str] = []
        make = client.store.lease_session
        open_lease = client.store.open_lease

        async def opened(*arguments: Any, **named: Any) -> int:
            self.events.append("open_lease")
            return await open_lease(*arguments, **named)

        def session(**named: Any) -> Any:
            self.session = made = make(**named)
            connect = made.connect

            def connects() -> None:
                self.events.append("connect")
                if self.errors:
                    raise self.errors.pop(0)
                connect()

            monkeypatch.setattr(made, "connect", connects)
            return made

        monkeypatch.setattr(client.store, "lease_session", session)
        monkeypatch.setattr(client.store, "open_lease", opened)


async def test_the_leases_thread_connects_before_the_first_claim(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = Connecting(client, monkeypatch, StoreUnavailable("not yet"), StoreUnavailable("not yet"))
    async with Worker(client, jobs.registry) as worker:
        await until(lambda: worker.health().ok)
    assert connecting.events == ["connect", "connect", "connect", "open_lease"]


async def test_a_way_to_connect_that_the_thread_cannot_go_ends_the_start(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a job has run twice: such as a `connect=` that works in the client's event loop only."""
    wrong = ConfigurationError("connect= raises in the lease's thread")
    connecting = Connecting(client, monkeypatch, wrong, wrong)
    handle = await client.enqueue(jobs.quick())
    with pytest.raises(ConfigurationError, match="in the lease's thread"):
        await Worker(client, jobs.registry).run()
    with pytest.raises(ConfigurationError, match="in the lease's thread"):
        async with Worker(client, jobs.registry):
            raise AssertionError("never entered")
    assert connecting.events == ["connect", "connect"]
    assert (await handle.snapshot()).state is JobState.READY


async def test_a_connection_of_the_thread_that_hangs_does_not_hold_up_a_stop(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = Connecting(client, monkeypatch)
    began, let_go = asyncio.Event(), False
    loop = asyncio.get_running_loop()
    worker = Worker(client, jobs.registry, grace=0)
    make = client.store.lease_session

    def session(**named: Any) -> Any:
        made = make(**named)

        def hangs() -> None:
            loop.call_soon_threadsafe(began.set)
            while not let_go:
                time.sleep(0.01)

        monkeypatch.setattr(made, "connect", hangs)
        return made

    monkeypatch.setattr(client.store, "lease_session", session)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(LIMIT):
            await began.wait()
            worker.stop()
            await running
    finally:
        let_go = True
    assert connecting.events == []
