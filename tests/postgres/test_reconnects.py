"""Connections that were cut are counted when they're there again: in the metrics, for as long as the process lives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, Registry
from aioqueue.abc import SupportsReconnects
from aioqueue.telemetry._counters import LEDGER
from aioqueue.telemetry._prometheus import exposition
from aioqueue.worker import Worker
from tests.postgres.stores import opened, port_of, proxied
from tests.processes import until
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _only_this_test() -> Iterator[None]:
    LEDGER.forget()
    yield
    LEDGER.forget()


def reconnects(connection: str) -> int:
    (line,) = [
        line
        for line in exposition().decode().splitlines()
        if line.startswith(f'aioqueue_reconnects_total{{connection="{connection}"}} ')
    ]
    return int(float(line.split()[1]))


async def test_the_listening_connection(postgres_url: str) -> None:
    told = anyio.Event()
    async with Proxy(port_of(postgres_url)) as proxy, Client(postgres_url, listen_url=proxied(postgres_url, proxy)) as client:
        with client.store.subscribe(lambda _: told.set()):
            for times in range(3):
                await told.wait()  # what was told while nobody listened
                told = anyio.Event()
                assert reconnects("notifications") == times
                proxy.cut()
            await until(lambda: reconnects("notifications") == 3, "the last one")
    assert reconnects("notifications") == 3
    assert reconnects("lease") == 0


async def test_a_worker_s_lease_connection(postgres_url: str) -> None:
    registry = Registry()
    registry.job(lambda: None, name="nothing")
    async with (
        Proxy(port_of(postgres_url)) as proxy,
        Client(proxied(postgres_url, proxy), notify=False) as client,
        Worker(client, registry, lease=3),
    ):
        assert reconnects("lease") == 0
        proxy.cut()
        await until(lambda: reconnects("lease") == 1, "a renewal over another connection")
    assert reconnects("lease") == 1


async def test_what_connects_for_the_first_time_was_not_lost(postgres_url: str) -> None:
    async with Proxy(port_of(postgres_url)) as proxy, opened(proxied(postgres_url, proxy)) as store:
        assert isinstance(store, SupportsReconnects)
        for _ in range(2):
            session = store.lease_session()
            await asyncio.to_thread(session.connect)
            await asyncio.to_thread(session.close)
        assert store.reconnects["lease"] == 0
    assert not store.reconnects
