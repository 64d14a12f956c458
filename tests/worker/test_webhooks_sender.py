"""Sending one webhook to a real server: what's sent, what's read of the answer, and what can't be reached in this way."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._webhooks import Delivery, DeliveryState
from aioqueue.worker import _webhooks_sender
from aioqueue.worker._addresses import AllowedReceivers
from aioqueue.worker._webhooks_sender import Sender
from tests.worker.receivers import CERTIFICATE, SECRET, receiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio

OLDER = "whsec_" + "B" * 32
BODY = b'{"type":"job.completed","data":{"output":"\xc3\xbc"}}'
LOCAL = AllowedReceivers(["127.0.0.0/8"])


def delivery(url: str) -> Delivery:
    job_id = new_id()
    return Delivery(
        id=new_id(),
        job_id=job_id,
        chain_id=job_id,
        job_type="a",
        event="job.completed",
        url=url,
        body=BODY,
        state=DeliveryState.PENDING,
        tries=1,
        created_at=datetime.now(UTC),
    )


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    made = Sender("w", [SECRET, OLDER], LOCAL, longest=5.0)
    yield made
    await made.aclose()


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let names lead to addresses; gives the names that were looked up."""

    def names(**addresses: list[str]) -> list[str]:
        looked: list[str] = []
        real = socket.getaddrinfo

        def look(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
            name = str(host).replace(".", "_")
            if name not in addresses:
                return real(host, port, *arguments, **named)
            looked.append(host)
            found = addresses[name].pop(0) if len(addresses[name]) > 1 else addresses[name][0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found.split()]

        monkeypatch.setattr(socket, "getaddrinfo", look)
        return looked

    return names


async def test_what_is_sent(sender: Sender) -> None:
    async with receiver() as server:
        sent = delivery(server.url)
        answer = await sender.send(sent)
        again = await sender.send(replace(sent, tries=2))
        assert (answer.status, answer.text, again.status) == (200, "ok", 200)
        first, second = server.received
        assert server.connections == 2  # none is kept
    assert (first.target, first.headers["host"]) == ("/in?token=secret", f"127.0.0.1:{server.port}")
    assert first.body == second.body == BODY
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(sent.id)
    assert first.headers["content-type"] == "application/json"
    for secret in (SECRET, OLDER):
        Webhook(secret).verify(first.body, first.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "C" * 32).verify(first.body, first.headers)
    assert set(first.headers) == {
        *("host", "content-type", "content-length", "accept-encoding", "connection", "user-agent"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
    }


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302, ""),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\na\x00\x1b[31m\r\n", 500, "a\\x00\\x1b[31m\\r\\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 100_000, 200, "x" * 1000),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", 200, "nope"),
        (b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n\xff\xfe", 200, "��"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        (b"nonsense\r\n\r\n", None, "RemoteProtocolError: illegal status line: bytearray(b'nonsense')"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 200_000, None, "RemoteProtocolError: "),
    ],
)
async def test_answers(sender: Sender, answer: bytes, status: int | None, text: str) -> None:
    async with receiver(answer) as server:
        got = await sender.send(delivery(server.url))
    assert got.status == status
    assert got.text == text if status is not None else got.text.startswith(text[:21])
    assert len(got.text) <= 1000


async def test_an_answer_may_say_when_to_come_again(sender: Sender) -> None:
    async with receiver(
        b"HTTP/1.1 429 Slow\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Slow\r\nRetry-After: -1e9\r\nContent-Length: 0\r\n\r\n",
    ) as server:
        assert (await sender.send(delivery(server.url))).retry_after == 120
        assert (await sender.send(delivery(server.url))).retry_after is None


async def test_a_receiver_that_says_nothing_has_its_time_and_no_more() -> None:
    sender = Sender("w", [SECRET], LOCAL, longest=0.3)
    slow = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun"
    async with receiver(None, slow) as server:
        began = time.monotonic()
        hung = await sender.send(delivery(server.url))
        assert (hung.status, hung.unreachable, hung.text) == (None, True, "no answer within 0.3 s")
        begun = await sender.send(delivery(server.url))
        assert (begun.status, begun.text) == (200, "begun")  # it has said that it has taken it
        assert time.monotonic() - began < 30
    closed = await sender.send(delivery(server.url))
    assert (closed.status, closed.unreachable) == (None, True)
    await sender.aclose()


async def test_only_allowed_addresses_are_connected_to(resolve: Callable[..., list[str]]) -> None:
    async with receiver() as server:
        strict = Sender("w", [SECRET], AllowedReceivers(), longest=5.0)
        urls = [
            server.url,
            f"http://2130706433:{server.port}/",
            f"http://0x7f.1:{server.port}/",
            f"http://localhost:{server.port}/",
        ]
        urls += [f"http://[::ffff:127.0.0.1]:{server.port}/", f"http://[::1]:{server.port}/", "http://169.254.169.254/latest/"]
        urls += [f"http://hooks.test:{server.port}/", f"http://[64:ff9b::7f00:1]:{server.port}/"]
        resolve(hooks_test=["10.0.0.1 127.0.0.1"])
        for url in urls:
            answer = await strict.send(delivery(url))
            assert answer.status is None
            assert "isn't public" in answer.text or "no address" in answer.text, answer
        for url in ("http://user:pw@hooks.test/", "file:///etc/passwd", "gopher://hooks.test/", "http://h/\r\nX: 1", ""):
            assert "isn't one that messages are sent to" in (await strict.send(delivery(url))).text
        assert server.connections == 0
        await strict.aclose()


async def test_the_address_that_was_checked_is_the_one_connected_to(resolve: Callable[..., list[str]], sender: Sender) -> None:
    """A name that leads elsewhere at the second look is looked up once only; the port's server sees the name that was given."""
    async with receiver() as server:
        looked = resolve(hooks_test=["127.0.0.1", "10.0.0.1"])
        answer = await sender.send(delivery(f"http://hooks.test:{server.port}/x"))
        assert (answer.status, looked) == (200, ["hooks.test"])
        assert server.received[0].headers["host"] == f"hooks.test:{server.port}"
        assert "10.0.0.1" in (await sender.send(delivery(f"http://hooks.test:{server.port}/x"))).text
        assert server.connections == 1


async def test_the_certificate_is_that_of_the_name(resolve: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    trusting = Sender("w", [SECRET], LOCAL, longest=5.0)
    monkeypatch.delenv("SSL_CERT_FILE")
    resolve(hooks_test=["127.0.0.1"], other_test=["127.0.0.1"])
    async with receiver(tls=True) as server:
        assert (await trusting.send(delivery(f"https://hooks.test:{server.port}/"))).status == 200
        for name in ("other.test", "127.0.0.1"):
            refused = await trusting.send(delivery(f"https://{name}:{server.port}/"))
            assert refused.status is None
            assert "certificate" in refused.text.lower()
        assert len(server.received) == 1
    await trusting.aclose()


async def test_nothing_of_the_environment_is_used(sender: Sender, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    async with receiver() as proxy, receiver() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login me password secret\n")
        monkeypatch.setenv("NETRC", str(netrc))
        made = Sender("w", [SECRET], LOCAL, longest=5.0)
        assert (await made.send(delivery(server.url))).status == 200
        assert "authorization" not in server.received[0].headers
        assert proxy.connections == 0
        await made.aclose()


async def test_a_name_that_isnt_found_in_time_holds_up_nobody(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups have threads of their own: the event loop's, which connecting to the database needs, aren't used up."""
    held, real = asyncio.Event(), socket.getaddrinfo
    loop = asyncio.get_running_loop()

    def look(host: Any, *arguments: Any, **named: Any) -> Any:
        if host != "slow.test":
            return real(host, *arguments, **named)
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result()
        raise socket.gaierror("not found")

    monkeypatch.setattr(_webhooks_sender.socket, "getaddrinfo", look)
    slow = [asyncio.create_task(sender.send(delivery("http://slow.test/"))) for _ in range(40)]
    async with receiver() as server:
        assert (await sender.send(delivery(server.url))).status == 200
        await loop.run_in_executor(None, lambda: None)
    held.set()
    assert {(await each).text for each in slow} == {"the host's name leads to no address: not found"}
