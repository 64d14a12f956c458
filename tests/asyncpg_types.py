"""asyncpg asks the server once in each test process what PostgreSQL's own array types are, not again on each connection.

A plugin of pytest, loaded for all tests. What asyncpg asks is a recursive statement over the catalogs, of a session that knows
nothing of them yet: twice on each of our connections, which took two fifths of all that the server did for a test. The answer
is the same in all databases. Types that somebody has made are asked for as ever, and so is everything on connections that keep
no statements, as behind PgBouncer, where asyncpg goes another way. Worker processes that tests start are left alone, too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from asyncpg.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

_FIRST_OF_USERS = 16384
"""The types below are PostgreSQL's own, and have the same numbers on each server."""

_asked = Connection._introspect_types
_known: dict[tuple[object, frozenset[int]], Any] = {}


async def _introspect_types(connection: Any, oids: Iterable[int], timeout: float) -> tuple[Any, Any]:
    wanted = frozenset(oids)
    if max(wanted) >= _FIRST_OF_USERS or not connection._stmt_cache_enabled:
        return await _asked(connection, wanted, timeout)
    key = connection.get_server_version(), wanted
    if key not in _known:
        _known[key], _ = await _asked(connection, wanted, timeout)
    # Asking may have cost the statement that it is asked for, unless it was done with one that has a name: nothing was asked.
    return _known[key], SimpleNamespace(name="known")


def pytest_configure(config: pytest.Config) -> None:
    Connection._introspect_types = _introspect_types
