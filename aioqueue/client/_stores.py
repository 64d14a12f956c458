"""Finds the store for what the user gave: a URL, a pool, a connect function, or a store."""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from aioqueue.abc import Store
from aioqueue.definitions._environment import DEFAULT_URL, URL_VARIABLE, Environment
from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from aioqueue.abc import StoreFactory

__all__ = ["store_maker"]

_GROUP = "aioqueue.stores"
_POOL_SCHEME = "postgresql"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def store_maker(source: object | None, options: Mapping[str, Any]) -> Callable[[], Store]:
    """Read what a client was given.

    Arguments:
        source: A URL, a `Store`, an asyncpg pool; None for `AIOQUEUE_URL`, else `sqlite:///aioqueue.db`.
        options: For the store's factory, such as `pool=` or `connect=`.

    Returns:
        Makes the store, new for each opening of the client, unless the user gave one.

    Raises:
        ConfigurationError: It can't be used. The text never has the URL, which may hold a password.
    """
    if isinstance(source, Store):
        if options:
            raise ConfigurationError(f"a store takes no more options: {', '.join(sorted(options))}")
        store: Store = source
        return lambda: store
    options = dict(options)
    if source is not None and not isinstance(source, str):
        if "pool" in options or not callable(getattr(source, "acquire", None)):
            raise ConfigurationError(
                f"a client needs a URL such as {DEFAULT_URL!r}, a Store, or an asyncpg pool, not {type(source).__qualname__}"
            )
        options["pool"] = source
        source = None
    own_connections = options.get("pool") is not None or options.get("connect") is not None
    if source is None and own_connections:
        source = f"{_POOL_SCHEME}://"
    url = Environment().url() if source is None else source
    from_variable = source is None and url != DEFAULT_URL
    with _naming_the_variable(from_variable=from_variable):
        factory = _factory(url)

    def make() -> Store:
        with _naming_the_variable(from_variable=from_variable):
            return factory(url, **options)

    return make


@contextmanager
def _naming_the_variable(*, from_variable: bool) -> Generator[None]:
    """Let an error about the URL say that it came from the variable. Its value isn't shown: it may hold a password."""
    try:
        yield
    except ConfigurationError as error:
        if not from_variable:
            raise
        raise ConfigurationError(f"{URL_VARIABLE}: {error}") from None


def _factory(url: str) -> StoreFactory:
    found = {each.name: each for each in entry_points(group=_GROUP)}
    known = ", ".join(f"{name}://" for name in sorted(found))
    if (match := _SCHEME.match(url)) is None:
        raise ConfigurationError(
            f"a store's URL begins with its scheme, and this one has none; known are {known}. "
            "A file is sqlite:///relative/path.db or sqlite:////absolute/path.db"
        )
    scheme = match[1].lower()
    if scheme not in found:
        raise ConfigurationError(
            f"no store is installed for {scheme}://; known are {known or 'none: is aioqueue installed as a package?'}"
        )
    try:
        return cast("StoreFactory", found[scheme].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"the store for {scheme}:// ({found[scheme].value}) can't be imported: {error}") from error
