"""Listings with filters and orders, and finding by key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioqueue import Client, ConfigurationError, JobFilter, JobState, Registry
from aioqueue.vocabulary._job import SettlementKind
from tests.client.chains import count, go_on
from tests.client.jobs import add, completed, ended, fetch, work

if TYPE_CHECKING:
    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def _listed(client: Client, **given: Any) -> list[UUID]:
    return [job.id for job in (await client.list_jobs(**given)).jobs]


async def test_every_filter_and_order(each_client: Client) -> None:
    client = each_client
    done = await client.enqueue(add(1, 2))
    await work(client.store, completed(b"3"))
    failed = await client.enqueue(add(1, 2))
    await work(client.store, ended(SettlementKind.FAILED, "no"))
    later = await client.enqueue(fetch("a").options(delay=HOUR, key="k"))
    ready = await client.enqueue(fetch("b"))
    lease = await client.store.open_lease("one", 600)
    running = await client.enqueue(add(5, 6))
    await client.store.claim(lease, [add.name], 1)
    everything = [each.id for each in (running, ready, later, failed, done)]
    assert await _listed(client) == everything
    assert await _listed(client, order="oldest") == everything[::-1]
    assert await _listed(client, order="due", states=["ready", "scheduled"]) == [ready.id, later.id]
    assert await _listed(client, order="finished") == [failed.id, done.id]
    assert await _listed(client, worker="one") == [running.id]
    assert await _listed(client, worker="another") == []
    assert await _listed(client, error_type="ValueError") == [failed.id]
    assert await _listed(client, chain=later) == await _listed(client, chain=str(later.id)) == [later.id]
    assert await _listed(client, created_after=HOUR) == everything
    assert await _listed(client, created_before=HOUR) == []
    assert await _listed(client, finished_after=datetime.now(UTC) - HOUR) == [failed.id, done.id]
    assert await _listed(client, finished_before=HOUR) == []
    assert await _listed(client, where=JobFilter(types=[fetch], states=["ready"])) == [ready.id]
    assert await _listed(client, created_after=timedelta(days=360_000)) == everything
    page = await client.list_jobs(order="oldest", limit=2)
    assert [job.id for job in page.jobs] == everything[:2:-1]
    assert await _listed(client, order="oldest", cursor=page.cursor) == everything[2::-1]
    with pytest.raises(ValueError):
        await client.list_jobs(order="newest", cursor=page.cursor)


async def test_chains_are_listed_by_their_ends(each_client: Client) -> None:
    client = each_client
    chain = await client.enqueue(count(1))
    await go_on(client.store, following := count(0).options(delay=HOUR).to_new_job())
    alone = await client.enqueue(add(1, 2))
    page = await client.list_chains()
    assert [(job.chain_id, job.id) for job in page.jobs] == [(alone.id, alone.id), (chain.id, following.id)]
    (job,) = (await client.list_chains(where=JobFilter(types=[count]))).jobs
    assert (job.id, job.state) == (following.id, JobState.SCHEDULED)
    assert [job.id for job in (await client.list_jobs(chain=chain, order="oldest")).jobs] == [chain.id, following.id]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"order": "best"}, 'one of "newest", "oldest", "due", "finished"'),
        ({"order": "due", "states": ["failed", "ready"]}, "states='failed'"),
        ({"order": "due", "finished_after": HOUR}, "finished_after="),
        ({"order": "finished", "states": ["running"]}, "states='running'"),
        ({"order": "finished", "worker": "one"}, "worker="),
        ({"created_after": datetime(2030, 1, 1)}, "time zone"),
        ({"created_after": -HOUR}, "created_after"),
        ({"where": JobFilter(), "key": "k", "states": ()}, "key, states"),
        ({"tag": 3}, "tag must be text, not 3"),
    ],
    ids=str,
)
async def test_what_contradicts_itself_is_refused(fake_client: Client, given: dict[str, Any], said: str) -> None:
    for listing in (fake_client.list_jobs, fake_client.list_chains):
        with pytest.raises(ConfigurationError, match=said):
            await listing(**given)


older = Registry(prefix="test.")
newer = Registry(prefix="test.")


@older.job(name="old")
async def before() -> None: ...


@newer.job(name="new", aliases=["test.old"])
async def after() -> int:
    return 1


async def test_a_filter_that_is_misspelt_shows_nothing(fake_client: Client) -> None:
    misspelt: Any = {"state": ["failed"]}
    for listing in (fake_client.list_jobs, fake_client.list_chains):
        with pytest.raises(TypeError, match="there is no filter state: there are states, types,"):
            await listing(**misspelt)
        wrong: Any = {"states": ["failed"]}
        with pytest.raises(ConfigurationError, match="where= takes a filter"):
            await listing(where=wrong)
    with pytest.raises(ValueError, match=r"there is no state 'done': there are blocked, .*completed"):
        await fake_client.list_jobs(states=["done"])


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_texts_that_no_job_can_have(each_client: Client, text: str) -> None:
    """Not every database can be asked for them: nobody hears that from it."""
    assert await each_client.find(after, key=text) is None
    for name in ("key", "tag", "worker", "outcome", "error_type", "types"):
        with pytest.raises(ConfigurationError, match=name):
            await each_client.list_jobs(**{name: [text] if name == "types" else text})


async def test_finding_by_key(each_client: Client) -> None:
    client = each_client
    assert await client.find(after, key="k") is None
    first = await client.enqueue(before().options(key="k"))
    await work(client.store, completed(b"7"), "test.old")
    await _finds(client, first)
    labelled = await client.enqueue(after().options(key="k", delay=HOUR))
    await _finds(client, labelled)
    holder = await client.enqueue(after().options(key="k", unique=True, delay=HOUR))
    await client.enqueue(after().options(key="k", delay=HOUR))
    await _finds(client, holder)
    assert await client.find(before, key="K") is None
    with pytest.raises(TypeError, match="job type"):
        await client.find("test.new", key="k")
    with pytest.raises(TypeError, match="text"):
        await client.find(after, key=None)


async def _finds(client: Client, wanted: JobHandle[Any]) -> None:
    found = await client.find(after, key="k")
    assert found is not None
    assert (found.id, found.created, found.job_type) == (wanted.id, False, after)


async def test_a_chain_is_found_by_its_first_types_key_and_gives_its_result(each_client: Client) -> None:
    client = each_client
    handle = await client.enqueue(add(1, 2).options(key="k"))
    await work(client.store, completed(b"3"))
    found = await client.find(add, key="k")
    assert found is not None
    assert await found.result(timeout=60) == 3
    chain = await client.enqueue(count(1).options(key="c"))
    await go_on(client.store, count(0).to_new_job())
    found = await client.find(count, key="c")
    assert found is not None
    assert found.id == chain.id
    assert handle.id != chain.id
