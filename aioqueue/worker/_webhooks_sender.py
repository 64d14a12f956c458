"""Sends one message of a webhook: signed, to an address that was looked at, and bounded in every respect.

Whoever chooses the URL doesn't get the worker to reach what only it can reach: the host's name is resolved here, each time;
the connection goes to the address that was checked, and to no other; nothing is followed, and no proxy, no password and no
cookie of the machine's is used.
"""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
from standardwebhooks import Webhook

from aioqueue.store_rules._deliveries import LONGEST_RESPONSE_CHARACTERS
from aioqueue.vocabulary._safe_text import type_name, visible
from aioqueue.vocabulary._webhook_url import read_webhook_url
from aioqueue.worker._threads import HandlerThreads, Raised
from aioqueue.worker._webhooks_answer import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._webhooks import Delivery
    from aioqueue.worker._addresses import AllowedReceivers

__all__ = ["Sender"]

_LARGEST_ANSWER_BYTES = 4 * 1024
"""Of the body of an answer, no more is read."""

_MOST_ADDRESSES = 20
"""Of one host, that are looked at."""
_MOST_TRIED = 3
"""Of them, to which a connection is tried, until one takes it."""


class _Unsendable(Exception):
    """Why a message can't be sent, for people."""


class Sender:
    """Sends messages, several at once. It belongs to the event loop in which it's made.

    Arguments:
        name: The worker's.
        secrets: To sign with, the newest first: receivers take a message if they know one of them.
        allowed: What may be reached though it isn't public.
        longest: Seconds that a try may take, from the look-up of the host's name to the end of the answer.
    """

    def __init__(self, name: str, secrets: Sequence[str], allowed: AllowedReceivers, *, longest: float) -> None:
        self._keys = [Webhook(each) for each in secrets]
        self._allowed = allowed
        self._longest = longest
        self._threads = HandlerThreads(f"webhooks of {name}")
        # The lowest layer of the client, which does nothing but what it's told. No connection is used twice: they're kept by
        # address, and behind one address there may be many hosts.
        self._transport = httpx.AsyncHTTPTransport(
            verify=httpx.create_ssl_context(),
            trust_env=False,
            http2=False,
            retries=0,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def send(self, delivery: Delivery) -> Answer:
        """Try once. Whatever the receiver does, it ends in time; it raises nothing but what cancels it."""
        try:
            async with asyncio.timeout(self._longest):
                return await self._send(delivery)
        except _Unsendable as error:
            return Answer(None, str(error))
        except TimeoutError:
            return Answer(None, f"no answer within {self._longest:g} s", unreachable=True)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            # Of what is in a client's error, nothing but its kind and what the network said: no part of the URL's.
            return Answer(None, _bounded(f"{type_name(error)}: {error}"), unreachable=isinstance(error, httpx.TransportError))

    async def aclose(self) -> None:
        """Close what is open."""
        self._threads.close()
        await self._transport.aclose()

    async def _send(self, delivery: Delivery) -> Answer:
        try:
            parts = urlsplit(read_webhook_url(delivery.url))
        except ValueError as error:
            raise _Unsendable(f"the URL isn't one that messages are sent to: {error}") from None
        host = (parts.hostname or "").rstrip(".")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        *others, last = await self._addresses(host, port)
        timeouts = {"connect": self._longest / 3, "read": self._longest, "write": self._longest, "pool": self._longest}
        for address in (*others, last):
            literal = f"[{address}]" if ":" in address else address
            request = httpx.Request(
                "POST",
                httpx.URL(f"{parts.scheme}://{literal}:{port}{target}"),
                headers=self._headers(delivery, parts.netloc),
                content=delivery.body,
                # The certificate has to be the named host's, and not the address's.
                extensions={"sni_hostname": host, "timeout": timeouts},
            )
            try:
                response = await self._transport.handle_async_request(request)
                break
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if address == last:  # nothing was sent to any of them
                    raise
        else:
            raise AssertionError("there is an address")
        try:
            return Answer(response.status_code, await self._beginning(response), _retry_after(response))
        finally:
            await response.aclose()

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Look the host's name up: the addresses that may be reached, the best first.

        Raises:
            _Unsendable: There is none.
        """
        found = await self._threads.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), lambda: None)
        if isinstance(found, Raised):
            if isinstance(found.error, (OSError, UnicodeError)):
                raise _Unsendable(f"the host's name leads to no address: {_bounded(str(found.error))}")
            raise found.error
        infos: Any = found
        addresses = [str(info[4][0]) for info in infos[:_MOST_ADDRESSES]]
        allowed = self._allowed.among(host.lower(), port, addresses)
        if not allowed:
            raise _Unsendable(
                "the host's address isn't public, and webhook_allow (AIOQUEUE_WEBHOOK_ALLOW) doesn't name it: "
                f"{', '.join(dict.fromkeys(addresses))}"
            )
        return allowed[:_MOST_TRIED]

    def _headers(self, delivery: Delivery, netloc: str) -> dict[str, str]:
        now, name = datetime.fromtimestamp(int(time.time()), UTC), str(delivery.id)
        body = delivery.body.decode()
        return {
            "Host": netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(delivery.body)),
            "Accept-Encoding": "identity",
            "Connection": "close",
            "User-Agent": "aioqueue",
            "webhook-id": name,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(key.sign(name, now, body) for key in self._keys),
        }

    async def _beginning(self, response: httpx.Response) -> str:
        """The beginning of an answer's body. One whose body doesn't come is an answer all the same."""
        read = bytearray()
        try:
            async with asyncio.timeout(self._longest / 3):
                async for part in response.aiter_raw():
                    read += part[: _LARGEST_ANSWER_BYTES - len(read)]
                    if len(read) >= _LARGEST_ANSWER_BYTES:
                        break
        except (TimeoutError, httpx.HTTPError, httpx.StreamError, OSError):
            pass
        return _bounded(bytes(read).decode(errors="replace"))


def _bounded(text: str) -> str:
    shown = visible(text[:LONGEST_RESPONSE_CHARACTERS])
    return shown[:LONGEST_RESPONSE_CHARACTERS]


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds, as one that is busy may say; the form with a date isn't read."""
    text = response.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
