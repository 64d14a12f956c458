"""Sources, settings, event loops, processes, and passwords."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioqueue.client import Client
from aioqueue.errors import AioqueueError, ClientClosed, ConfigurationError
from tests.client.fake_store import FakeStore
from tests.client.jobs import add

pytestmark = pytest.mark.anyio


async def test_a_client_that_isnt_open(url: str) -> None:
    client = Client(url)
    with pytest.raises(ClientClosed, match="async with"):
        await client.enqueue(add(1, 2))
    with pytest.raises(ClientClosed):
        await client.stats()
    with pytest.raises(ClientClosed):
        async with client.transaction():
            pass
    with pytest.raises(ClientClosed):
        client.check_open()
    await client.close()
    assert "closed" in repr(client)


async def test_start_stop_and_start_again(url: str) -> None:
    client = Client(url)
    for _ in range(3):
        async with client:
            await client.enqueue(add(1, 2))
            assert "open" in repr(client)
            with pytest.raises(ConfigurationError, match="open already"):
                await client.open()
        await client.close()
    async with client:
        assert len((await client.list_jobs()).jobs) == 3


async def test_handles_are_good_for_every_opening_of_their_client(url: str) -> None:
    client = Client(url)
    async with client:
        client.check_open()
        handle = await client.enqueue(add(1, 2))
        kept = client.handle(add, handle.id)
    for each in (handle, kept, client.handle(add, str(handle.id))):
        with pytest.raises(ClientClosed):
            await each.snapshot()
        async with client:
            assert (await each.snapshot()).id == handle.id


async def test_several_clients_in_one_loop(url: str, tmp_path: Path) -> None:
    async with Client(url) as first, Client(url) as second, Client(f"sqlite:///{tmp_path / 'other.db'}") as third:
        handle = await first.enqueue(add(1, 2))
        assert (await second.store.fetch([handle.id]))[0] is not None
        assert await third.store.fetch([handle.id]) == [None]


def test_one_client_per_event_loop(url: str) -> None:
    async def use() -> None:
        async with Client(url) as client:
            await client.enqueue(add(1, 2))

    asyncio.run(use())
    asyncio.run(use())


async def test_another_event_loop_is_told(client: Client) -> None:
    def elsewhere() -> tuple[BaseException | None, ...]:
        async def use() -> tuple[BaseException | None, ...]:
            return tuple(await asyncio.gather(client.enqueue(add(1, 2)), client.close(), return_exceptions=True))

        return asyncio.run(use())

    for error in await asyncio.to_thread(elsewhere):
        assert isinstance(error, ClientClosed)
        assert "another event loop" in str(error)
    await client.enqueue(add(1, 2))


def test_a_client_forgotten_in_a_loop_that_is_over_may_be_opened_again(url: str) -> None:
    fake = FakeStore()
    client = Client(fake)

    async def forget() -> None:
        await client.open()
        await client.enqueue(add(1, 2))

    async def use() -> None:
        async with client:
            await client.enqueue(add(1, 2))

    asyncio.run(forget())
    with pytest.warns(ResourceWarning, match="never closed"):
        asyncio.run(use())
    assert not fake.opened


async def test_the_source_is_the_environments_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIOQUEUE_URL", f"sqlite:///{tmp_path / 'named.db'}")
    async with Client():
        pass
    assert (tmp_path / "named.db").exists()
    monkeypatch.delenv("AIOQUEUE_URL")
    async with Client():
        pass
    assert (tmp_path / "aioqueue.db").exists()


@pytest.mark.parametrize("source", ["jobs.db", "", "mysql://u:hunter2@h/d", "sqlite:/x?p=hunter2", 7, object()])
async def test_sources_that_are_refused_without_being_shown(source: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Client(source)
    assert "hunter2" not in str(caught.value)
    if isinstance(source, str):
        assert "sqlite://" in str(caught.value)
        assert "postgresql://" in str(caught.value)


async def test_a_store_takes_no_options() -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        Client(FakeStore(), schema="x")


@pytest.mark.parametrize("setting", ["poll_interval", "retry_for", "uncommitted_grace", "close_timeout"])
async def test_settings_out_of_range(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=setting):
        Client(FakeStore(), **{setting: -1})


async def test_a_password_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client = Client("postgresql://user:hunter2@127.0.0.1:1/database")
    with pytest.raises((AioqueueError, OSError)) as caught:
        await client.open()
    assert "hunter2" not in f"{client!r} {caught.value!r} {caught.value} {caplog.text}"


async def test_a_fork_is_told_and_opens_its_own(client: Client, url: str) -> None:
    await client.enqueue(add(1, 2))
    opened = client._session.opened()
    opened.home.process = os.getpid() + 1  # as it is in a child
    with pytest.raises(ClientClosed, match="fork"):
        await client.enqueue(add(1, 2))
    with pytest.raises(ClientClosed, match="fork"):
        await client.stats()
    opened.home.process = os.getpid()


async def test_closing_in_a_child_leaves_the_parents_connections_alone(
    fake: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await Client(fake).open()
    monkeypatch.setattr("aioqueue.runtime._home._this_process", os.getpid() + 1)
    await client.close()
    assert fake.calls["close"] == 0
    async with client:
        await client.enqueue(add(1, 2))


FORK = """
import asyncio, os, sys
from aioqueue.client import Client
from aioqueue.errors import ClientClosed

client = Client(sys.argv[1])

async def parent():
    await client.open()
    await client.enqueue_by_name("x.y")
    child = os.fork()
    if child == 0:
        try:
            await client.enqueue_by_name("x.y")
        except ClientClosed as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    await client.enqueue_by_name("x.y")
    assert len((await client.list_jobs()).jobs) == 2
    await client.close()
    return os.waitstatus_to_exitcode(status)

sys.exit(asyncio.run(parent()))
"""

FORGOTTEN = """
import asyncio, sys
from aioqueue.client import Client

async def main():
    client = await Client(sys.argv[1]).open()
    handle = await client.enqueue_by_name("x.y")
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0)
    keep.append((client, waiting))

keep = []
asyncio.run(main())
"""


@pytest.mark.parametrize("script", [FORK, FORGOTTEN], ids=["fork", "forgotten"])
def test_processes_that_fork_or_forget_to_close_end(script: str, url: str) -> None:
    ended = subprocess.run([sys.executable, "-c", script, url], timeout=120, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
