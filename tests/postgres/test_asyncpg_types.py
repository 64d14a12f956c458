"""What the tests keep of asyncpg's questions about types changes no answers."""

from __future__ import annotations

from uuid import UUID, uuid4

import asyncpg
import pytest
from asyncpg.connection import Connection

from tests import asyncpg_types

pytestmark = pytest.mark.anyio


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """Which types asyncpg has asked for, by a process that knows none yet."""
    numbers: list[frozenset[int]] = []
    original = asyncpg_types._asked

    async def asks(connection: Connection, oids: frozenset[int], timeout: float) -> object:
        numbers.append(oids)
        return await original(connection, oids, timeout)

    monkeypatch.setattr(asyncpg_types, "_asked", asks)
    monkeypatch.setattr(asyncpg_types, "_known", {})
    return numbers


@pytest.mark.parametrize(("keeps", "times"), [(100, 1), (0, 2)], ids=["statements are kept", "none is kept"])
async def test_postgresqls_own_types_are_asked_for_once(
    postgres_url: str, asked: list[frozenset[int]], keeps: int, times: int
) -> None:
    ids: list[UUID] = [uuid4(), uuid4()]
    for _ in range(2):
        connection = await asyncpg.connect(postgres_url, statement_cache_size=keeps)
        try:
            row = await connection.fetchrow("select $1::uuid[] as ids, $2::int8[] as numbers", ids, [1, 2])
            assert tuple(row) == (ids, [1, 2])
        finally:
            await connection.close()
    assert len(asked) == times


async def test_types_of_users_are_asked_for_by_each_connection(postgres_url: str) -> None:
    for statement, values in (
        ("create type pair as (a int)", (1,)),
        ("alter type pair add attribute b int", (1, 2)),
    ):
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.execute(statement)
            assert tuple(await connection.fetchval(f"select row({', '.join(map(str, values))})::pair")) == values
        finally:
            await connection.close()
