"""The URLs that webhooks are sent to: which are taken, and whose limit counts for one."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from aioqueue.vocabulary._safe_text import safe_repr

__all__ = ["LONGEST_URL_CHARACTERS", "read_webhook_url", "webhook_host"]

LONGEST_URL_CHARACTERS = 2_048

_LONGEST_HOST_CHARACTERS = 260
_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
# Of a URL, RFC 3986 takes neither: some readers end the host at a backslash, others don't.
_FORBIDDEN = re.compile(r"""[\\"<>^`{|}]""")
_HOST = re.compile(r"[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def read_webhook_url(url: object) -> str:
    """Check a URL that messages are to be sent to, as far as that can be done without asking anybody.

    What its host's name leads to is looked at when a message is sent, by the worker that does.

    Returns:
        The URL as it was given.

    Raises:
        ValueError: It's none that is taken. The message doesn't show more of it than its host: the rest may be secret.
        TypeError: It isn't text.
    """
    if not isinstance(url, str):
        raise TypeError(f"webhook= is the URL that is told, as text, not {safe_repr(url)}")
    if len(url) > LONGEST_URL_CHARACTERS:
        raise ValueError(f"a webhook's URL has up to {LONGEST_URL_CHARACTERS:,} characters, not {len(url):,}")
    if _PRINTABLE.fullmatch(url) is None or _FORBIDDEN.search(url) is not None:
        raise ValueError(
            "a webhook's URL has only the characters that URLs may have: percent-encode the others, and write a host's name "
            "in its ASCII form"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"a webhook's URL must be one: {_reason(error)}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("a webhook's URL begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError(
            "a webhook's URL has no user and password: it's stored with the job. Receivers check the signature instead"
        )
    if parts.fragment:
        raise ValueError("a webhook's URL has no fragment (#…): it isn't sent")
    if parts.hostname is None or _HOST.fullmatch(_bracketed(parts.hostname)) is None or port == 0:
        raise ValueError(f"a webhook's URL needs a host, and a port from 1 to 65535 if it has one: {parts.netloc[:80]!r}")
    return str(url)


def webhook_host(url: str) -> str:
    """Whose limit counts for a URL: its host and port, in lower case; the port that the scheme implies left out.

    Takes whatever is stored, and raises nothing: what can't be read is a host of its own.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if not host or parts is None:
        return "?"
    name = _bracketed(host.rstrip("."))
    shown = name if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f"{name}:{port}"
    return "".join(each if "!" <= each <= "~" else "?" for each in shown[:_LONGEST_HOST_CHARACTERS])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reason(error: ValueError) -> str:
    text = str(error)
    return text if "port" in text.lower() or "ipv6" in text.lower() else "its host can't be read"
