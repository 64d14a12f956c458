"""How many attempts a job has that was enqueued by `enqueue_v1`: what is given counts, else the worker's policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioqueue import Client, Fixed, Registry, Retry, Worker
from aioqueue.postgres._options_schema import Schema
from tests.postgres_server import execute

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("given", "attempts"),
    [({}, 4), ({"max_attempts": 2}, 2), ({"max_attempts": 3, "retry": {}}, 3)],
)
async def test_the_number_that_is_given_counts(postgres_url: str, given: dict[str, Any], attempts: int) -> None:
    registry = Registry()

    @registry.job
    async def fails() -> None:
        raise ValueError("no")

    text = json.dumps({"type": "fails", **given})
    execute(postgres_url, f"select * from {Schema().name}.enqueue_v1('{text}')")
    async with Client(postgres_url) as client:
        await Worker(client, registry, default_retry=Retry(max_attempts=4, backoff=Fixed(0))).run_once()
        (job,) = (await client.list_jobs()).jobs
    assert job.attempt == attempts
