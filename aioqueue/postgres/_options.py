"""The URL and the options of a store, read and checked before anything connects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from aioqueue.errors import ConfigurationError
from aioqueue.postgres._connections_source import Source
from aioqueue.postgres._options_address import read_address
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aioqueue.postgres._connections_driver import Connection, UserPool

__all__ = ["Options", "read_options"]

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
_OBJECTS = ("pool", "connect", "lease_connect")
_POOL_SIZE = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What a store needs to know.

    Attributes:
        schema: Where its tables are.
        source: Where connections come from.
        listen_source: Where the listening one comes from.
        lease_source: Where a worker's lease thread connects, in its own event loop.
        lease_option: The option with the function of the user's that it calls; None if there is none.
        notify: Whether notifications are sent and listened for.
        pool_size: Connections for users' transactions, at most.
    """

    schema: Schema
    source: Source
    listen_source: Source
    lease_source: Source
    lease_option: str | None
    notify: bool
    pool_size: int

    @property
    def description(self) -> str:
        """The store without a password, for logs and errors."""
        return f"{self.source.description} (schema {self.schema.quoted})"


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


def _connector(url: str, *, prepared: bool, cache_size: int | None, timeout: float) -> Callable[[], Awaitable[Connection]]:
    # Our statements are few and stay the same. A timer for each would keep the context of whoever was first to run it.
    settings: dict[str, Any] = {"timeout": timeout, "max_cached_statement_lifetime": 0}
    if not prepared:
        settings["statement_cache_size"] = 0
    elif cache_size is not None:
        settings["statement_cache_size"] = cache_size

    async def connect() -> Connection:
        return cast("Connection", await cast("Any", asyncpg).connect(url, **settings))

    return connect


def _pool_connector(pool: Any) -> Callable[[], Awaitable[Connection]]:
    """Connect as the pool does: what isn't for users' transactions can't come out of it."""
    if not all(hasattr(pool, name) for name in ("_connect", "_connect_args", "_connect_kwargs")):
        raise ConfigurationError("pool= takes an asyncpg pool; give connect= for other sources of connections")

    async def connect() -> Connection:
        # Looked up anew each time: the pool may be told of new arguments, such as another password.
        return cast("Connection", await pool._connect(*pool._connect_args, **pool._connect_kwargs))

    return connect


def _lease_option(given: Mapping[str, Any]) -> str | None:
    """The option with the user's function that the lease thread calls, if there is one."""
    for name in ("lease_connect", "connect"):
        if given.get(name) is not None:
            return name
    pool = given.get("pool")
    if pool is None or (pool._connect is cast("Any", asyncpg).connect and not callable(pool._connect_kwargs.get("password"))):
        return None
    return "pool"


def _functions(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The options that are objects of the user's: pool, connect and lease_connect."""
    pool, connect, lease_connect = (given.get(name) for name in _OBJECTS)
    if pool is not None and connect is not None:
        raise ConfigurationError("give pool= or connect=, not both")
    for name, function in (("connect", connect), ("lease_connect", lease_connect)):
        if function is not None and not callable(function):
            raise ConfigurationError(
                f"{name}= takes an async function that opens an asyncpg connection, not {type(function).__qualname__}"
            )
    return pool, connect, lease_connect


def read_options(url: str, given: Mapping[str, Any]) -> Options:
    """Read the URL and the options.

    Raises:
        ConfigurationError: One can't be used.
    """
    pool, connect, lease_connect = _functions(given)
    options = {name: value for name, value in given.items() if name not in _OBJECTS}
    if unknown := sorted(set(options) - set(_OWN)):
        raise ConfigurationError(
            f"unknown options for PostgreSQL: {', '.join(unknown)}; known are {', '.join((*_OWN, *_OBJECTS))}"
        )
    address = read_address(url, _OWN)
    server, description = address.url, address.description
    own = {**address.options, **{name: value for name, value in options.items() if value is not None}}
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
        prepared = prepared and pool._connect_kwargs.get("statement_cache_size") != 0
    else:
        opener = cast("Callable[[], Awaitable[Connection]]", connect)
    source = Source(opener, description, prepared=prepared, timeout=timeout, pool=cast("UserPool | None", pool))
    listen_source = source
    if "listen_url" in own:
        listening = read_address(str(own["listen_url"]), _OWN)
        direct = _connector(listening.url, prepared=True, cache_size=None, timeout=timeout)
        listen_source = Source(direct, listening.description, timeout=timeout)
    lease_opener = cast("Callable[[], Awaitable[Connection]]", lease_connect) if lease_connect is not None else opener
    most = int(pool.get_max_size()) if pool is not None else _POOL_SIZE
    return Options(
        schema=Schema(own.get("schema", "aioqueue")),
        source=source,
        listen_source=listen_source,
        lease_source=replace(source, connect=lease_opener, pool=None),
        lease_option=_lease_option(given),
        notify=_flag(own.get("notify", True), "notify"),
        pool_size=_number(own.get("pool_size", most), "pool_size", least=1),
    )
