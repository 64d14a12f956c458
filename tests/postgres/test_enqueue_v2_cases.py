"""What every store does with new jobs, `enqueue_v2` does too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.testing import CASES, Case
from tests.harnesses import PostgresHarness
from tests.postgres.sql_producer import SqlProducer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.abc import Store

pytestmark = pytest.mark.anyio

ELSEWHERE = ("transaction", "child", "each_for_itself", "repeated", "keeps_what_it_was_given")
"""In the names of cases that don't come to the function at all, or give what `client.statement` can't."""


class SqlHarness(PostgresHarness):
    """In one database, with stores whose new jobs go through the function."""

    def new_store(self) -> Store:
        store: Any = super().new_store()
        return SqlProducer(store, self.url)  # all else is the store's


@pytest.fixture
async def harness(anyio_backend: str, postgres_url: str) -> AsyncIterator[SqlHarness]:
    harness = SqlHarness(postgres_url)
    await harness.open()
    try:
        yield harness
    finally:
        await harness.close()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name.startswith(("insert", "unique")) and not any(each in case.name for each in ELSEWHERE)],
    ids=lambda case: case.name,
)
async def test_case(case: Case, harness: SqlHarness) -> None:
    await case.run(harness)
