"""Jobs that lack the field of the metadata by which their type tells them apart: the worker tells of it once per type."""

from __future__ import annotations

import logging

import pytest

from aioqueue import Call, Client, Limit, Rate, Registry, Worker
from aioqueue.testing import MemoryStore

pytestmark = pytest.mark.anyio

registry = Registry(prefix="fields.")


@registry.job(limit=Limit(3, by="customer"), fairness_by="customer")
async def resize(tenant: str, size: int = 1) -> None: ...


@registry.job(rate=Rate(100, per=1, by="metadata.region"), sequence_by="tenant")
async def send(tenant: str) -> None: ...


@registry.job(limit=Limit(3, by="tenant"))
async def plain(tenant: str) -> None: ...


async def told(caplog: pytest.LogCaptureFixture, *calls: Call[None]) -> list[logging.LogRecord]:
    async with Client(MemoryStore()) as client:
        await client.enqueue_many(calls)
        with caplog.at_level(logging.WARNING, "aioqueue.worker"):
            assert (await Worker(client, registry).run_once()).completed == len(calls)
    return [each for each in caplog.records if getattr(each, "event", "") == "gates.field_missing"]


async def test_each_type_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    calls = [resize("a"), resize("b"), send("a"), send("b"), plain("a")]
    first, second = sorted(await told(caplog, *calls), key=lambda each: each.getMessage())
    assert first.getMessage().startswith(f"fields.resize {calls[0].id}: its type tells jobs apart by a field of the metadata")
    assert "(limit='customer', fairness_by='customer')" in first.getMessage()
    assert "of which there are: tenant, size." in first.getMessage()
    assert second.getMessage().startswith("fields.send ")
    assert "(rate='region')" in second.getMessage()
    assert vars(first)["fields"] == ["customer"]
    assert vars(first)["job_type"] == "fields.resize"


async def test_nothing_is_told_of_those_that_have_it(caplog: pytest.LogCaptureFixture) -> None:
    there = [resize("a").options(metadata={"customer": value}) for value in (None, "x", 0)]
    assert await told(caplog, *there, plain("a")) == []


async def test_jobs_of_other_programs_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(MemoryStore()) as client:
        await client.enqueue_by_name("fields.resize", {"tenant": "a"})
        with caplog.at_level(logging.WARNING, "aioqueue.worker"):
            await Worker(client, registry).run_once()
    assert [vars(each)["event"] for each in caplog.records] == ["gates.field_missing"]
