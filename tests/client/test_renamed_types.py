"""A job type that was renamed, with its old name as an alias, is one type: for keys, listings and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from aioqueue import Client, JobState, Registry

if TYPE_CHECKING:
    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

before, after = Registry(), Registry()


@before.job(name="mail.send")
async def send(to: str) -> str:
    return to


@after.job(name="mail.deliver", aliases=("mail.send",))
async def deliver(to: str) -> str:
    return to


async def test_its_keys_are_one_whichever_code_comes_first(each_url: str) -> None:
    async with Client(each_url) as client:
        handles: list[JobHandle[str]] = []
        for first, second in ((send, deliver), (deliver, send)):
            key = f"{first.name} first"
            handles += [await client.enqueue(each("x").options(key=key, unique=True)) for each in (first, second)]
    assert [handle.created for handle in handles] == [True, False, True, False]
    assert (handles[0].id, handles[2].id) == (handles[1].id, handles[3].id)


async def test_listings_and_numbers_show_it_whole(each_url: str) -> None:
    async with Client(each_url) as client:
        handles = [await client.enqueue(job_type("x")) for job_type in (send, deliver, deliver)]
        later = await client.enqueue(send("y").options(delay=3600))
        page = await client.list_jobs(types=[deliver])
        assert [job.id for job in page.jobs] == [later.id, *(handle.id for handle in reversed(handles))]
        assert [job.type for job in (await client.list_jobs(types=["mail.deliver"])).jobs] == ["mail.deliver"] * 2
        numbers = (await client.stats()).of(deliver.name, *deliver.aliases)
        assert numbers.counts == {JobState.READY: 3, JobState.SCHEDULED: 1}
        assert numbers.oldest_ready is not None
        assert not numbers.capped
        assert (await client.stats()).of("unknown").counts == {}


async def test_its_keys_are_one_in_a_transaction_of_the_users_too(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        async with Client(postgres_url) as client:
            held = await client.enqueue(send("x").options(key="k", unique=True))
            async with connection.transaction():
                mine = await client.enqueue(deliver("x").options(key="k", unique=True), tx=connection)
                other = await client.enqueue(deliver("x").options(key="l", unique=True), tx=connection)
            again = await client.enqueue(send("x").options(key="l", unique=True))
    finally:
        await connection.close()
    assert (mine.id, mine.created, other.created) == (held.id, False, True)
    assert (again.id, again.created) == (other.id, False)
