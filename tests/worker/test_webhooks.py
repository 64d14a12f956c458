"""Webhooks of a worker that runs, sent to real servers: whatever becomes of them, jobs go on."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from standardwebhooks import Webhook

from aioqueue import Client, ConfigurationError, Fail, Registry, Worker
from aioqueue.abc import SupportsWebhooks
from aioqueue.errors import StoreUnavailable
from aioqueue.events import Event, WebhookDelivered, WebhookUndelivered
from aioqueue.telemetry._counters import LEDGER
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry
from aioqueue.worker import _webhooks
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._webhooks import became_of
from aioqueue.worker._webhooks_answer import Answer
from aioqueue.worker._webhooks_told import log_try
from tests.telemetry.spans import Recorded
from tests.worker.insides import parts
from tests.worker.receivers import SECRET, receiver
from tests.worker.test_webhooks_sender import delivery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aioqueue.vocabulary._webhooks import Delivery

pytestmark = pytest.mark.anyio

FAILURE = b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"
registry = Registry()


@registry.job
async def add(one: int, two: int) -> int:
    return one + two


@registry.job
async def fail() -> None:
    raise Fail("it broke")


class Troubled(MemoryStore):
    """Raises, or hangs, in these verbs, as often as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles_of: dict[str, list[Exception | asyncio.Event]] = {}
        self.called: dict[str, int] = {}

    async def perform(self, verb: str, work: Callable[[], Any]) -> Any:
        self.called[verb] = self.called.get(verb, 0) + 1
        if self.troubles_of.get(verb):
            trouble = self.troubles_of[verb].pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble.wait()
        return await super().perform(verb, work)


@pytest.fixture
def store() -> Troubled:
    return Troubled()


@pytest.fixture
async def client(store: Troubled) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


def worker(client: Client, **settings: Any) -> Worker:
    return Worker(client, registry, **{"webhook_secret": SECRET, "webhook_allow": ["127.0.0.0/8"], "grace": 5, **settings})


async def deliveries(store: SupportsWebhooks) -> dict[str, Delivery]:
    return {str(each.job_id): each for each in (await store.list_deliveries(limit=100)).deliveries}


async def until(store: SupportsWebhooks, state: DeliveryState, count: int = 1) -> list[Delivery]:
    """Wait until so many deliveries are in a state."""
    while True:
        found = [each for each in (await deliveries(store)).values() if each.state is state]
        if len(found) >= count:
            return found
        await asyncio.sleep(0)


async def nothing_is_sent(running: Worker) -> None:
    """Wait until no message is on its way, nor what became of one."""
    webhooks = parts(running).webhooks
    assert webhooks is not None
    await webhooks.finish()


async def test_each_end_is_told_once_signed(client: Client, store: Troubled, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    before = LEDGER.total().webhooks_delivered
    async with receiver() as server, worker(client):
        handles = [await client.enqueue(each.options(webhook=server.url)) for each in (add(1, 2), fail())]
        waiting = await client.enqueue(add(3, 4).options(webhook=server.url, delay=3600))
        await client.cancel(waiting, reason="enough")
        received = await server.got(3)
        await until(store, DeliveryState.DELIVERED, 3)
    told = {}
    for each in received:
        Webhook(SECRET).verify(each.body, each.headers)
        message = orjson.loads(each.body)
        told[message["data"]["id"]] = message["type"], message["data"].get("output"), message["data"].get("error")
    assert {told[str(each.id)][0] for each in handles} == {"job.completed", "job.failed"}
    assert told[str(handles[0].id)][1] == 3
    assert told[str(handles[1].id)][2]["message"] == "it broke"
    assert told[str(waiting.id)][0] == "job.cancelled"
    assert len({each.headers["webhook-id"] for each in received}) == 3
    assert {(each.tries, each.status, each.response) for each in (await deliveries(store)).values()} == {(1, 200, "ok")}
    assert LEDGER.total().webhooks_delivered == before + 3
    assert "127.0.0.1" in caplog.text
    assert SECRET not in caplog.text
    assert "token" not in caplog.text


def sent_of(told: list[Event]) -> list[tuple[type[Event], int | None]]:
    return [(type(each), each.status) for each in told if isinstance(each, WebhookDelivered | WebhookUndelivered)]


async def test_observers_and_traces_show_each(client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch) -> None:
    spans, told = Recorded(monkeypatch), list[Event]()
    async with receiver(FAILURE, b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n") as server:
        with client.observe(told.append):
            async with worker(client):
                await client.enqueue(add(1, 2).options(webhook=server.url))
                await server.got(1)
                await client.enqueue(add(1, 2).options(webhook=server.url))
                await until(store, DeliveryState.FAILED)
                await client.enqueue(add(1, 2).options(webhook=server.url))
                await until(store, DeliveryState.DELIVERED)
                while len(sent_of(told)) < 2:
                    await asyncio.sleep(0)
    assert sent_of(told) == [(WebhookUndelivered, 410), (WebhookDelivered, 200)]
    sent = spans.named("webhook")
    assert [each.attributes["http.response.status_code"] for each in sent] == [500, 410, 200]
    assert [each.status.is_ok for each in sent] == [False, False, True]
    assert "secret" not in "".join(each.to_json() for each in sent)


async def test_receivers_that_hang_fill_no_slot_and_hold_up_no_other(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_webhooks, "LONGEST_TRY_SECONDS", 0.5)
    async with AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(receiver(*[None] * 100)) for _ in range(10)]
        well = await stack.enter_async_context(receiver())
        async with worker(client, concurrency=2) as running:
            for server in hanging:
                await client.enqueue_many([add(1, number).options(webhook=server.url) for number in range(5)])
            while not all(server.connections for server in hanging):
                await asyncio.sleep(0)
                assert sum(server.open for server in hanging) <= 16
                assert max(server.open for server in hanging) <= 4
            handles = await client.enqueue_many([add(1, number).options(webhook=well.url) for number in range(20)])
            assert [await each.result(timeout=60) for each in handles] == [1 + number for number in range(20)]
            assert running.health().ok
            await well.got(20)
        assert {each.state for each in (await deliveries(store)).values()} == {DeliveryState.PENDING, DeliveryState.DELIVERED}


async def test_a_failed_try_is_repeated_with_the_same_id_and_body(client: Client, store: Troubled) -> None:
    async with receiver(FAILURE, FAILURE) as server:
        async with worker(client) as running:
            handle = await client.enqueue(add(1, 2).options(webhook=server.url))
            for tries, seconds in ((1, 6), (2, 400)):
                await server.got(tries)
                await nothing_is_sent(running)
                each = (await deliveries(store))[str(handle.id)]
                assert (each.state, each.tries, each.status, each.response) == (DeliveryState.PENDING, tries, 500, "no")
                store.advance(seconds)
                store.database.tell(Notification(deliveries=True))
            (delivered,) = await until(store, DeliveryState.DELIVERED)
        assert delivered.tries == 3
        assert len({(each.headers["webhook-id"], each.body) for each in server.received}) == 1
        for each in server.received:
            Webhook(SECRET).verify(each.body, each.headers)


@pytest.mark.parametrize(
    ("tries", "status", "retry_after", "state", "delay"),
    [
        (1, 200, None, DeliveryState.DELIVERED, 0),
        (1, 299, None, DeliveryState.DELIVERED, 0),
        (1, 302, None, DeliveryState.PENDING, 5),
        (2, 404, None, DeliveryState.PENDING, 300),
        (3, None, None, DeliveryState.PENDING, 1800),
        (9, 500, None, DeliveryState.PENDING, 86_400),
        (10, 500, None, DeliveryState.FAILED, 0),
        (10, 200, None, DeliveryState.DELIVERED, 0),
        (1, 410, None, DeliveryState.FAILED, 0),
        (1, 429, 120.0, DeliveryState.PENDING, 120),
        (1, 503, 1e6, DeliveryState.PENDING, 86_400),
        (0, 500, None, DeliveryState.PENDING, 5),
    ],
)
def test_what_becomes_of_a_try(
    tries: int, status: int | None, retry_after: float | None, state: DeliveryState, delay: float
) -> None:
    tried = became_of(replace(delivery("https://h/"), tries=tries), Answer(status, "", retry_after))
    assert (tried.state, tried.status, tried.tries) == (state, status, tries)
    assert tried.delay == pytest.approx(delay, rel=0.11)


async def test_a_stop_waits_for_what_is_being_sent(client: Client, store: Troubled) -> None:
    async with receiver(None) as server:
        running = worker(client)
        async with running:
            await client.enqueue(add(1, 2).options(webhook=server.url))
            await server.got(1)
            webhooks = parts(running).webhooks
            assert webhooks is not None
            (sending,) = webhooks._sending
            running.stop()
            await client.enqueue(add(1, 2).options(webhook=server.url))
            await asyncio.wait([sending], timeout=0.05)
            assert not sending.done()
            server.release()
            await asyncio.wait([sending])
        assert [each.state for each in (await deliveries(store)).values()] == [DeliveryState.DELIVERED]


async def test_a_stop_by_force_doesnt_and_others_send_it_again(
    client: Client, store: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiver(None) as server:
        async with worker(client) as running:
            await client.enqueue(add(1, 2).options(webhook=server.url))
            await server.got(1)
            running.stop(force=True)
        assert "webhooks are still being sent" in caplog.text
        store.advance(61)
        async with worker(client):
            first, second = await server.got(2)
            (delivered,) = await until(store, DeliveryState.DELIVERED)
        assert (delivered.tries, first.headers["webhook-id"], first.body) == (2, second.headers["webhook-id"], second.body)


@pytest.mark.parametrize("verb", ["take_deliveries", "next_delivery", "write_tries"])
async def test_a_store_that_fails_there_holds_up_no_job(
    client: Client, store: Troubled, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_webhooks, "_STATEMENT_SECONDS", 0.05)
    store.troubles_of[verb] = [StoreUnavailable("away"), RuntimeError("odd")]
    if verb == "take_deliveries":
        store.troubles_of[verb].append(asyncio.Event())  # it hangs
    monkeypatch.setattr(_webhooks, "Backoff", lambda *_: Backoff(0.01, 0.01))
    async with receiver() as server, worker(client) as running:
        handle = await client.enqueue(add(1, 2).options(webhook=server.url))
        assert await handle.result(timeout=60) == 3
        assert running.health().ok
        await until(store, DeliveryState.DELIVERED)
        assert len(server.received) == 1
        assert not store.troubles_of[verb]


async def test_a_send_that_breaks_or_is_cancelled_harms_no_other(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiver() as server, worker(client) as running:
        webhooks = parts(running).webhooks
        assert webhooks is not None
        real, odd = webhooks._sender.send, [RuntimeError("odd"), asyncio.CancelledError()]

        async def send(each: Delivery) -> Answer:
            if odd:
                raise odd.pop()
            return await real(each)

        monkeypatch.setattr(webhooks._sender, "send", send)
        await client.enqueue_many([add(1, number).options(webhook=server.url) for number in range(3)])
        await until(store, DeliveryState.DELIVERED)
        store.advance(61)
        store.database.tell(Notification(deliveries=True))
        await until(store, DeliveryState.DELIVERED, 3)
        await nothing_is_sent(running)


async def test_who_cancels_all_tasks_stops_it_for_a_moment(
    client: Client, store: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_webhooks, "Backoff", lambda *_: Backoff(0.01, 0.01))
    async with receiver() as server, worker(client):
        (sending,) = (task for task in asyncio.all_tasks() if task.get_name() == "aioqueue webhooks")
        sending.cancel()  # before its first step
        await client.enqueue(add(1, 2).options(webhook=server.url))
        await until(store, DeliveryState.DELIVERED)
        (sending,) = (task for task in asyncio.all_tasks() if task.get_name() == "aioqueue webhooks")
        sending.cancel()
        await client.enqueue(add(1, 2).options(webhook=server.url))
        await until(store, DeliveryState.DELIVERED, 2)


async def test_once_sends_what_is_due_and_ends(client: Client, store: Troubled) -> None:
    async with receiver(FAILURE) as server:
        await client.enqueue_many([add(1, number).options(webhook=server.url) for number in range(6)])
        result = await worker(client).run_once()
        assert (result.completed, len(server.received)) == (6, 6)
        states = sorted(each.state for each in (await deliveries(store)).values())
        assert states == [DeliveryState.DELIVERED] * 5 + [DeliveryState.PENDING]


async def test_without_a_secret_a_worker_sends_nothing_and_asks_for_nothing(client: Client, store: Troubled) -> None:
    async with receiver() as server, worker(client, webhook_secret=None):
        handle = await client.enqueue(add(1, 2).options(webhook=server.url))
        assert await handle.result(timeout=60) == 3
    assert server.connections == 0
    assert not {"take_deliveries", "next_delivery"} & store.called.keys()
    assert [each.tries for each in (await deliveries(store)).values()] == [0]


async def test_what_isnt_installed_is_named_at_the_start(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aioqueue.worker._webhooks_sender")
    monkeypatch.setitem(sys.modules, "standardwebhooks", None)
    with pytest.raises(ConfigurationError, match=r"standardwebhooks, which isn't installed.*aioqueue-jobs\[webhooks\]"):
        await worker(client).run_once()
    await worker(client, webhook_secret=None).run_once()


async def test_a_slow_one_whose_delivery_was_taken_by_another_changes_nothing(store: Troubled, client: Client) -> None:
    await client.enqueue(add(1, 2).options(webhook="https://hooks.example/"))
    await worker(client, webhook_secret=None).run_once()
    (slow,) = await store.take_deliveries(1, 1)
    store.advance(2)
    (fast,) = await store.take_deliveries(1, 60)
    tries: Sequence[DeliveryTry] = [DeliveryTry(id=slow.id, tries=slow.tries, state=DeliveryState.FAILED)]
    await store.write_tries(tries)
    assert next(iter((await deliveries(store)).values())) == fast


@pytest.mark.parametrize(
    ("status", "response", "said"),
    [
        (500, "secret", "(status 500)"),
        (None, "RemoteProtocolError: illegal status line: secret", "(RemoteProtocolError)"),
        (None, "the host's address isn't public, and webhook_allow doesn't name it: secret", "webhook_allow doesn't name it)"),
        (None, None, "(no answer)"),
    ],
)
def test_the_log_says_why_there_is_no_answer(
    caplog: pytest.LogCaptureFixture, status: int | None, response: str | None, said: str
) -> None:
    tried = DeliveryTry(id=new_id(), tries=1, state=DeliveryState.PENDING, delay=5.0, status=status, response=response)
    log_try("w", delivery("http://hooks.test/"), tried, "hooks.test")
    assert caplog.messages[0].endswith(said)
    assert "secret" not in caplog.text
