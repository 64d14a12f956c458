"""Ids as they come from outside, and operations on many jobs at once."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Client, JobNotFound, StoreUnavailable
from aioqueue.abc import Changed
from aioqueue.postgres._operate import operate_statements
from aioqueue.postgres._operate_delete import delete_statements
from aioqueue.postgres._operate_retry import retry_statements
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from tests.client.jobs import add, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio


class Derived(uuid.UUID):
    """As drivers have them."""


@pytest.mark.parametrize("form", [str, lambda each: each.hex, lambda each: Derived(each.hex)], ids=["text", "hex", "derived"])
async def test_ids_are_taken_in_every_usual_form(each_url: str, form: Any) -> None:
    async with Client(each_url) as client:
        handles = [await client.enqueue(add(1, 2).options(delay=3600)) for _ in range(2)]
        given = [form(handle.id) for handle in handles]
        assert (await client.job(given[0])).id == handles[0].id
        assert (await client.handle(add, given[0]).snapshot()).arguments == {"left": 1, "right": 2}
        assert await client.run_now(*given) == {handle.id: Changed.DONE for handle in handles}
        assert await client.retry(given[0]) == {handles[0].id: Changed.WRONG_STATE}
        assert await client.delete(given[0], handles[0], given[1]) == {handle.id: Changed.DONE for handle in handles}
        with pytest.raises(JobNotFound, match=str(handles[0].id)):
            await client.job(given[0])


async def test_a_drivers_own_class_of_ids_is_taken(postgres_url: str) -> None:
    async with Client(postgres_url) as client:
        handle = await client.enqueue(nothing())
        connection = await asyncpg.connect(postgres_url)
        try:
            stored = await connection.fetchval("select id from aioqueue.job")
        finally:
            await connection.close()
        assert type(stored) is not uuid.UUID
        assert (await client.job(stored)).id == handle.id
        assert type(client.handle(nothing, stored).id) is uuid.UUID
        assert await client.delete(stored) == {handle.id: Changed.DONE}


@pytest.mark.parametrize("wrong", ["nonsense", "", 7, None, b"0" * 16])
async def test_what_is_no_id_is_shown_before_anything_happens(each_url: str, wrong: Any) -> None:
    async with Client(each_url) as client:
        handle = await client.enqueue(nothing().options(delay=3600))
        for operation in (client.retry, client.run_now, client.delete):
            with pytest.raises(ValueError, match=f"a job's id is a UUID or its text.*{wrong!r}"):
                await operation(handle, wrong)
        with pytest.raises(ValueError, match="a job's id"):
            await client.job(wrong)
        with pytest.raises(ValueError, match="a job's id"):
            client.handle(nothing, wrong)
        assert (await handle.snapshot()).state.value == "scheduled"


async def test_portions_before_one_that_fails_are_told(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(each_url) as client:
        handles = await client.enqueue_many([nothing().options(delay=3600) for _ in range(2_500)])
        real, calls = client.store.delete, []

        async def twice(ids: Sequence[uuid.UUID], *, cascade: bool) -> Sequence[Changed]:
            assert not cascade
            calls.append(len(ids))
            if len(calls) == 3:
                raise StoreUnavailable("away")
            return await real(ids)

        monkeypatch.setattr(client.store, "delete", twice)
        with pytest.raises(StoreUnavailable) as caught:
            await client.delete(*handles)
        assert calls == [1000, 1000, 500]
        assert caught.value.changed == {handle.id: Changed.DONE for handle in handles[:2000]}
        assert await client.delete(*handles) == {
            handle.id: Changed.NOT_FOUND if index < 2000 else Changed.DONE for index, handle in enumerate(handles)
        }
        assert await client.delete(new_id()) != {}


async def test_the_work_for_many_ids_grows_with_their_number(postgres_url: str) -> None:
    """No list of those who changed is read again for each id: the plan has no scan of one that is repeated."""
    async with Client(postgres_url) as client:
        handles = await client.enqueue_many([nothing().options(delay=3600) for _ in range(1_000)])
        ids = [handle.id for handle in handles]
        schema = Schema()
        statements = operate_statements(schema) | retry_statements(schema) | delete_statements(schema)
        connection = await asyncpg.connect(postgres_url)
        try:
            for name in ("run_now", "retry_find", "delete_lock", "delete", "held"):
                statement = statements[name]
                more = {"delete": [1_000, False], "held": [None, None]}.get(name, [])
                lines = await connection.fetch(f"explain (analyze, timing off, costs off) {statement}", ids, *more)
                scans = [line[0] for line in lines if "CTE Scan" in line[0]]
                assert scans
                assert all("loops=1)" in line or "never executed" in line for line in scans), scans
        finally:
            await connection.close()
