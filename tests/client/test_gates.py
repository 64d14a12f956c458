"""Limits, rates and sequences from the definition to the run, on all stores that know gates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioqueue import Call, Client, Fail, InSequence, JobState, Limit, LimitKind, Rate, Registry, Worker, done
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import NewLimit

if TYPE_CHECKING:
    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

registry = Registry(prefix="gates.")
ran: list[object] = []
running: list[str] = []
most: list[int] = []


@pytest.fixture
async def client(each_client: Client) -> Client:
    assert isinstance(each_client.store, SupportsGates)
    for each in (ran, running, most):
        each.clear()
    return each_client


@registry.job(limit=(Limit(2, by="tenant"), "shared"))
async def limited(number: int, tenant: str) -> None:
    running.append(tenant)
    most.append(running.count(tenant))
    await asyncio.sleep(0)
    ran.append(number)
    running.remove(tenant)


@registry.job(sequence_by=InSequence("account", on_failure="block"))
async def transfer(account: str, number: int, *, fails: bool = False) -> None:
    ran.append((account, number))
    if fails:
        raise Fail("it can't be done")


@registry.job
async def count(number: int) -> Call[int]:
    ran.append(number)
    return count(number - 1) if number % 10 else done(number)


@registry.job(limit=Limit(1), aliases=("gates.older",))
async def renamed(number: int) -> int:
    ran.append(number)
    most.append(len(running))
    running.append("renamed")
    await asyncio.sleep(0)
    running.remove("renamed")
    return number


@registry.job(fairness_by="tenant")
async def fair(tenant: str) -> None:
    ran.append(tenant)


@registry.job(rate=Rate(3, per=3600))
async def rated(number: int) -> None:
    ran.append(number)


async def run(client: Client) -> None:
    await Worker(client, registry, concurrency=10).run_once()


async def states(client: Client, handles: list[JobHandle[None]]) -> list[JobState]:
    return [(await client.job(each)).state for each in handles]


async def test_a_limit_holds_for_each_value(client: Client) -> None:
    for number in range(12):
        await client.enqueue(limited(number, "ab"[number % 2]))
    await run(client)
    assert sorted(map(str, ran)) == sorted(map(str, range(12)))
    assert max(most) == 2


async def test_a_shared_limit_is_as_people_say(client: Client) -> None:
    await client.limits.put("shared", 0)
    handles = [await client.enqueue(limited(number, "a")) for number in range(3)]
    await run(client)
    assert ran == []
    assert await states(client, handles) == [JobState.HELD] * 3
    assert (await client.job(handles[0])).held_by == "shared"
    (shared,) = [each for each in await client.limits.list() if each.name == "shared"]
    assert (shared.places, shared.running, shared.waiting, shared.defined) == (0, 0, 3, False)
    assert await client.limits.remove("shared")
    await run(client)
    assert sorted(map(str, ran)) == ["0", "1", "2"]


async def test_what_is_said_at_run_time_stays_until_the_code_changes(client: Client) -> None:
    await run(client)
    await client.limits.put(limited, 0)
    await run(client)
    (own,) = [each for each in await client.limits.list() if each.name == "job:gates.limited"]
    assert (own.kind, own.places, own.defined, own.changed) == (LimitKind.PLACES, 0, True, True)
    assert isinstance(client.store, SupportsGates)
    await client.store.put_limits([NewLimit(name="job:gates.limited", places=5)], defined=True)
    (own,) = [each for each in await client.limits.list() if each.name == "job:gates.limited"]
    assert (own.places, own.changed) == (5, False)


async def test_a_sequence_goes_in_the_order_of_its_inserts(client: Client) -> None:
    await client.enqueue_many([transfer("ab"[number % 2], number) for number in range(10)])
    await run(client)
    assert [each for each in ran if str(each)[2] == "a"] == [("a", number) for number in range(0, 10, 2)]
    assert len(ran) == 10


async def test_a_failed_member_keeps_the_others(client: Client) -> None:
    first = await client.enqueue(transfer("a", 1, fails=True))
    second, other = await client.enqueue(transfer("a", 2)), await client.enqueue(transfer("b", 3))
    await run(client)
    assert await states(client, [first, second, other]) == [JobState.FAILED, JobState.HELD, JobState.COMPLETED]
    status = await client.sequences.status(transfer, "a")
    assert (status.blocked_by, status.waiting, status.head) == (first.id, 1, None)
    assert [await client.sequences.resume(transfer, "a"), await client.sequences.resume(transfer, "a")] == [True, False]
    await run(client)
    assert await states(client, [second]) == [JobState.COMPLETED]


async def test_a_chain_keeps_its_turn_until_its_end(client: Client) -> None:
    for number in (3, 13):
        await client.enqueue(count(number).options(sequence="counting"))
    await run(client)
    assert ran == [3, 2, 1, 0, 13, 12, 11, 10]


async def test_calls_by_name_and_in_transactions_are_in_sequence_too(client: Client) -> None:
    async with client.transaction() as tx:
        for number in (1, 2):
            await tx.enqueue(transfer("other", number).options(sequence="a"))
    await client.enqueue_by_name("gates.transfer", {"account": "b", "number": 3}, sequence="a")
    await run(client)
    assert ran == [("other", 1), ("other", 2), ("b", 3)]


async def test_a_rate_lets_so_many_start(client: Client) -> None:
    handles = await client.enqueue_many([rated(number) for number in range(5)])
    await run(client)
    assert len(ran) == 3
    assert (await states(client, handles)).count(JobState.HELD) == 2
    await client.limits.put_rate(rated, 1_000_000, per=1)
    await run(client)
    assert await states(client, handles) == [JobState.COMPLETED] * 5


async def test_values_take_turns(client: Client) -> None:
    await client.enqueue_many([fair("many") for _ in range(50)])
    await client.enqueue(fair("one"))
    await Worker(client, registry, concurrency=2).run_once()
    assert "one" in ran[:3]
    assert len(ran) == 51


async def test_old_and_new_names_of_a_type_share_its_limit(client: Client) -> None:
    for number in range(3):
        await client.enqueue(renamed(number))
        await client.enqueue_by_name("gates.older", {"number": number})
    await run(client)
    assert sorted(map(str, ran)) == ["0", "0", "1", "1", "2", "2"]
    assert max(most) == 0  # none was running when another one began
    assert [each.name for each in await client.limits.list()].count("job:gates.renamed") == 1


async def test_a_member_that_waits_for_others_lets_those_behind_it_pass(client: Client) -> None:
    first = renamed(7)
    waiting = transfer("a", 1).options(after=[first])
    await client.enqueue_many([waiting, transfer("a", 2)])
    await run(client)
    assert sorted(map(str, ran)) == ["('a', 1)", "('a', 2)", "7"]


async def test_a_strict_sequence_waits_for_its_member(client: Client) -> None:
    strict = InSequence("strict", strict=True)
    later = await client.enqueue(renamed(1).options(sequence=strict, delay=3600))
    behind = await client.enqueue(renamed(2).options(sequence=strict))
    await run(client)
    assert ran == []
    assert (await client.job(behind)).state is JobState.HELD
    assert (await client.sequences.status("strict")).head is None
    await client.run_now(later)
    await run(client)
    assert ran == [1, 2]
