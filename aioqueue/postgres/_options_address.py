"""PostgreSQL URLs, read by hand: a character that should have been percent-encoded is named, and nothing else is shown.

Python's own parsers drop what comes after a `#`, take the rest of a password for a host or a path, or quote it in their
errors. The form is libpq's (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING), several hosts too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import parse_qsl, quote, urlencode

from aioqueue.errors import ConfigurationError

__all__ = ["Address", "read_address"]

_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(?::(?P<port>[0-9]*))?")
_LARGEST_PORT = 65535
# The values of these may hold an `@`; in another's it comes from a password with a `?` that wasn't encoded.
_WITH_AT = frozenset({"user", "password", "host", "options", "application_name"})


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says.

    Attributes:
        url: For asyncpg: with `postgresql` as its scheme, and without our own options.
        options: Our own options of its query.
        description: The server and the database, without a user or a password: for logs and errors.
    """

    url: str
    options: dict[str, str]
    description: str


def read_address(url: str, own: tuple[str, ...]) -> Address:
    """Read a URL.

    Arguments:
        url: Such as `postgresql://user:password@host:5432/database?schema=jobs`, or with several hosts,
            `postgresql://user@first:5432,second:5433/database?target_session_attrs=read-write`.
        own: Names of our own options.

    Raises:
        ConfigurationError: It can't be read; the text says which character to encode, and shows nothing of the URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError(f"a PostgreSQL URL begins with postgresql://, not {_shown_scheme(scheme, separator)}")
    for character in rest:
        if character <= " " or character == "\x7f":
            _encode(character)
        if character == "#":
            _encode("#")
    server, question, query = rest.partition("?")
    network, slash, database = server.partition("/")
    if "@" in database:
        # What looked like the end of the hosts, or of the password, was a part of it.
        _encode("/" if "@" not in network else "@")
    credentials, at, hosts = network.rpartition("@")
    if "@" in credentials:
        _encode("@")
    for character in "[]":
        if character in credentials:
            _encode(character)
    pairs = _query(query, credentials=bool(at))
    for host in hosts.split(","):
        _check_host(host)
    options = {name: value for name, value in pairs if name in own}
    others = [(name, value) for name, value in pairs if name not in own]
    shown = hosts or next((value for name, value in others if name == "host"), "") or "localhost"
    encoded = urlencode(others)
    return Address(
        url=f"postgresql://{network}{slash}{database}{question if encoded else ''}{encoded}",
        options=options,
        description=f"postgresql://{quote(shown, safe='[]:,/')}{slash}{quote(database, safe='%')}",
    )


def _shown_scheme(scheme: str, separator: str) -> str:
    return f"{scheme}://" if separator and scheme.replace("+", "").replace("-", "").isalnum() else "what it begins with"


def _query(query: str, *, credentials: bool) -> list[tuple[str, str]]:
    pairs = parse_qsl(query, keep_blank_values=True)
    if not credentials:
        for name, value in pairs:
            if "@" in name or ("@" in value and name not in _WITH_AT):
                _encode("?")
    if any(not name or "/" in name for name, _ in pairs):
        raise ConfigurationError("the query of the URL can't be read: it is name=value, joined by & (see `&` as %26)")
    return pairs


def _check_host(host: str) -> None:
    match = _HOST.fullmatch(host)
    if match is None or (match["port"] and not 0 < int(match["port"]) <= _LARGEST_PORT):
        raise ConfigurationError(
            "a host of the URL can't be read, or its port isn't a number from 1 to 65535. If what stands before it is a "
            "password, a character in it has to be percent-encoded: / as %2F, ? as %3F, # as %23, @ as %40"
        )


def _encode(character: str) -> NoReturn:
    name = {" ": "space", "\x7f": "control character"}.get(character, character if character > " " else "control character")
    raise ConfigurationError(
        f"the URL has a {name!s} where none can be: in a user, a password or a database's name write it as "
        f"%{ord(character):02X} (percent-encoded; urllib.parse.quote(password, safe='') does it)"
    )
