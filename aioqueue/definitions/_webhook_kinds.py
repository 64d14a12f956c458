"""Kinds of settings about webhooks: where messages go, what they're signed with, and what may be reached."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any, cast

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._webhook_url import read_webhook_url

__all__ = ["Receivers", "Secrets", "WebhookURL"]

_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


class WebhookURL:
    """The URL of a receiver."""

    metavar = "URL"

    def from_text(self, text: str, name: str) -> str:
        """Read what stands in a variable or after an option."""
        return self.from_argument(text, name)

    def from_argument(self, value: object, name: str) -> str:
        """Check that messages can be sent to it."""
        try:
            return read_webhook_url(value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{name} must be a URL: {error}") from None

    def written(self, value: Any) -> str:
        """As it's typed."""
        return str(value)


class Secrets:
    """Keys to sign with, in the form of Standard Webhooks: `whsec_` and the Base64 of 24 to 64 random bytes.

    Several are separated by spaces or commas, the newest first. No error shows one.
    """

    metavar = "SECRET"

    def from_text(self, text: str, name: str) -> tuple[str, ...]:
        """Read at least one."""
        return self._checked(text.replace(",", " ").split(), name)

    def from_argument(self, value: object, name: str) -> tuple[str, ...]:
        """Check one, or several."""
        if isinstance(value, str):
            return self.from_text(value, name)
        several = list(cast("Iterable[object]", value)) if isinstance(value, Iterable) else [None]
        return self._checked(several, name)

    def written(self, value: Any) -> str:
        """How many there are."""
        return f"{len(value)} secrets"

    def _checked(self, secrets: list[Any], name: str) -> tuple[str, ...]:
        if not secrets or not all(map(_is_key, secrets)):
            raise ConfigurationError(
                f"{name} must be whsec_ and the Base64 of {_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} random bytes, as "
                "`aioqueue webhooks secret` makes one; several are separated by spaces"
            )
        return tuple(dict.fromkeys(secrets))


def _is_key(secret: object) -> bool:
    if not isinstance(secret, str) or not secret.startswith(_PREFIX):
        return False
    text = secret.removeprefix(_PREFIX)
    try:
        return len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True)) in _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


class Receivers:
    """Networks, addresses, and names of hosts, which may have a port; in a variable they're separated by commas."""

    metavar = "NETWORKS"

    def from_text(self, text: str, name: str) -> tuple[str, ...]:
        """Read at least one."""
        return self._checked([each.strip() for each in text.split(",") if each.strip()], name)

    def from_argument(self, value: object, name: str) -> tuple[str, ...]:
        """Check that there are several: a text alone would be read letter by letter."""
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigurationError(f"{name} must be several, such as {name}=['10.0.0.0/8', 'hooks.internal'], not {value!r}")
        return self._checked(list(cast("Iterable[object]", value)), name)

    def written(self, value: Any) -> str:
        """As in a variable."""
        return ",".join(value)

    def _checked(self, given: list[Any], name: str) -> tuple[str, ...]:
        if not given:
            raise ConfigurationError(f"{name} must be networks or hosts, separated by commas")
        return tuple(_receiver(each, name) for each in given)


def _receiver(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} must be networks or hosts, as text, not {text!r:.100}")
    try:
        return str(ip_network(text))
    except ValueError:
        # What looks like numbers, and is no network, is one that was mistyped: as a host's name it would be looked up.
        if _HOST.fullmatch(text) is None or not any(each.isalpha() for each in text.partition(":")[0].rpartition(".")[2]):
            raise ConfigurationError(
                f"{name} must be networks (10.1.0.0/16, without bits of hosts), addresses, or hosts (hooks.internal, "
                f"localhost:8080), not {text!r:.100}"
            ) from None
        return text.lower()
