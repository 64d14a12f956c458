"""The URL and the options of a store, read and checked before anything connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg

from aioqueue._time import seconds
from aioqueue.errors import ConfigurationError
from aioqueue.postgres._schema import Schema
from aioqueue.postgres._source import Connection, Source, UserPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Options", "read_options"]

_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
_OWN = (
    "schema",
    "timeout",
    "notify",
    "listen_url",
    "pgbouncer",
    "prepared_statements",
    "statement_cache_size",
    "pool_size",
)
_POOL_SIZE = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What a store needs to know.

    Attributes:
        schema: Where its tables are.
        source: Where connections come from.
        listen_source: Where the listening one comes from.
        notify: Whether notifications are sent and listened for.
        pool_size: Connections beside the reserved ones, at most.
    """

    schema: Schema
    source: Source
    listen_source: Source
    notify: bool
    pool_size: int


def _flag(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ConfigurationError(f"{name} must be true or false, not {value!r}")


def _number(value: object, name: str, *, least: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def _timeout(value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ConfigurationError(f"timeout must be seconds, not {value!r}") from None
    return seconds(cast("float", value), "timeout", positive=True)


def _split(url: str) -> tuple[str, dict[str, str], str]:
    """Give the URL for asyncpg, our own options of its query, and a description without a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the URL can't be read: {error}") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"a PostgreSQL URL begins with postgresql://, not {parts.scheme or 'nothing'}://")
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in query if name in _OWN}
    rest = [(name, value) for name, value in query if name not in _OWN]
    host = parts.hostname or next((value for name, value in rest if name == "host"), "") or "localhost"
    shown = f"postgresql://{host}{f':{port}' if port else ''}{quote(parts.path)}"
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), "")), own, shown


def _connector(url: str, *, prepared: bool, cache_size: int | None, timeout: float) -> Callable[[], Awaitable[Connection]]:
    settings: dict[str, Any] = {"timeout": timeout}
    if not prepared:
        settings["statement_cache_size"] = 0
    elif cache_size is not None:
        settings["statement_cache_size"] = cache_size

    async def connect() -> Connection:
        return cast("Connection", await cast("Any", asyncpg).connect(url, **settings))

    return connect


def _pool_connector(pool: Any) -> Callable[[], Awaitable[Connection]]:
    """Connect as the pool does: the reserved connections, one of them in another event loop, can't come out of it."""
    try:
        arguments, keywords = list(pool._connect_args), dict(pool._connect_kwargs)
        own_connect = pool._connect
    except AttributeError:
        raise ConfigurationError("pool= takes an asyncpg pool; give connect= for other sources of connections") from None

    async def connect() -> Connection:
        return cast("Connection", await own_connect(*arguments, **keywords))

    return connect


def read_options(url: str, given: Mapping[str, Any]) -> Options:
    """Read the URL and the options.

    Raises:
        ConfigurationError: One can't be used.
    """
    pool, connect = given.get("pool"), given.get("connect")
    options = {name: value for name, value in given.items() if name not in ("pool", "connect")}
    if pool is not None and connect is not None:
        raise ConfigurationError("give pool= or connect=, not both")
    if unknown := sorted(set(options) - set(_OWN)):
        raise ConfigurationError(
            f"unknown options for PostgreSQL: {', '.join(unknown)}; known are {', '.join(_OWN)}, pool, connect"
        )
    server, own, description = _split(url)
    own = {**own, **{name: value for name, value in options.items() if value is not None}}
    cache_size = (
        _number(own["statement_cache_size"], "statement_cache_size", least=0) if "statement_cache_size" in own else None
    )
    pooled = _flag(own.get("pgbouncer", False), "pgbouncer")
    prepared = _flag(own.get("prepared_statements", not pooled), "prepared_statements") and cache_size != 0
    timeout = _timeout(own.get("timeout", 60.0))
    if connect is None and pool is None:
        opener = _connector(server, prepared=prepared, cache_size=cache_size, timeout=timeout)
    elif pool is not None:
        opener = _pool_connector(pool)
    else:
        opener = cast("Callable[[], Awaitable[Connection]]", connect)
    source = Source(opener, description, prepared=prepared, timeout=timeout, pool=cast("UserPool | None", pool))
    listen_source = source
    if "listen_url" in own:
        listen_server, _, listen_description = _split(str(own["listen_url"]))
        direct = _connector(listen_server, prepared=True, cache_size=None, timeout=timeout)
        listen_source = Source(direct, listen_description, timeout=timeout)
    return Options(
        schema=Schema(own.get("schema", "aioqueue")),
        source=source,
        listen_source=listen_source,
        notify=_flag(own.get("notify", True), "notify"),
        pool_size=_number(own.get("pool_size", _POOL_SIZE), "pool_size", least=1),
    )
