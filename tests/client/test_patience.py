"""How long an enqueue is tried again: for `retry_for` seconds, by a clock that goes on whenever nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING

import pytest

from aioqueue.client import Client
from aioqueue.errors import StoreContended, StoreUnavailable
from tests.client.fake_store import FakeStore
from tests.client.jobs import add

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class HurriedSelector(selectors.SelectSelector):
    """Waits for nobody: the time that it should have waited is added to its loop's clock."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.skipped += max(timeout or 0.0, 0.0)
        return super().select(0)


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self.hurried = HurriedSelector()
        super().__init__(self.hurried)

    def time(self) -> float:
        return super().time() + self.hurried.skipped


class Away(FakeStore):
    """A store of which every insert fails."""

    def __init__(self, error: StoreUnavailable) -> None:
        super().__init__()
        self.faults = {"insert": [error] * 10_000, "transaction.insert": [error] * 10_000}


async def enqueue_one(client: Client) -> None:
    await client.enqueue(add(1, 2))


async def enqueue_with_key(client: Client) -> None:
    await client.enqueue(add(1, 2).options(key="a", unique=True))


async def enqueue_many(client: Client) -> None:
    await client.enqueue_many([add(1, 2), add(3, 4)])


async def seconds_of(enqueue: Callable[[Client], Coroutine[None, None, None]], store: Away, retry_for: float) -> float:
    """How long it's tried."""
    loop = asyncio.get_running_loop()
    async with Client(store, retry_for=retry_for) as client:
        began = loop.time()
        with pytest.raises(StoreUnavailable):
            await enqueue(client)
        return loop.time() - began


@pytest.mark.parametrize("retry_for", [10.0, 60.0])
@pytest.mark.parametrize(
    ("enqueue", "error"),
    [
        (enqueue_one, StoreUnavailable("no connection")),
        (enqueue_many, StoreUnavailable("no connection")),
        (enqueue_with_key, StoreUnavailable("no connection")),
        (enqueue_with_key, StoreContended("somebody has the key")),
        (enqueue_many, StoreContended("somebody has the key")),
    ],
)
def test_an_enqueue_is_tried_again_for_as_long_as_was_asked(
    enqueue: Callable[[Client], Coroutine[None, None, None]], error: StoreUnavailable, retry_for: float
) -> None:
    store = Away(error)
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        took = runner.run(seconds_of(enqueue, store, retry_for))
    assert retry_for - 0.01 <= took < retry_for + 1
    assert store.calls["insert"] >= retry_for / 2.0  # the longest pause; now and then in between, to the end
