"""The order of sequences on PostgreSQL, where a batch is stored in several portions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.postgres import _rows_portions
from aioqueue.vocabulary._gates import SequenceMember
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.vocabulary._job import NewJob

pytestmark = pytest.mark.anyio

S = SequenceMember(name="s")
MEMBERS = "SELECT chain_id FROM aioqueue.gate_member ORDER BY number"


def plain() -> list[NewJob]:
    return [job(sequence=S) for _ in range(7)]


def unique() -> list[NewJob]:
    return [job(sequence=S, key=str(number), unique=Unique()) for number in range(7)]


def mixed() -> list[NewJob]:
    """Those with windows aren't stored by the statement that stores the others."""
    return [job(sequence=S, key=str(number), unique=Unique(window=600.0 if number % 2 else None)) for number in range(7)]


@pytest.mark.parametrize("batch", [plain, unique, mixed])
@pytest.mark.parametrize("way", ["together", "apart", "in a transaction"])
async def test_the_order_of_a_batch_in_portions(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, batch: Callable[[], list[NewJob]], way: str
) -> None:
    monkeypatch.setattr(_rows_portions, "MOST_ROWS", 2)
    jobs = batch()[::-1]
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        if way == "in a transaction":
            async with store.transaction() as tx:
                await tx.insert(jobs)
        else:
            await store.insert(jobs, apart=way == "apart")
        assert [row[0] for row in await connection.fetch(MEMBERS)] == [each.id for each in jobs]
