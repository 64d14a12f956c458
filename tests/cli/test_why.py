"""Why a job isn't running: every answer there is, on the command line and from the client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, ReasonCode, Worker
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.cli.jobs import greet, registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from tests.cli.conftest import Invoke

HOUR = 3600.0


async def _codes(client: Client, job_id: UUID) -> list[ReasonCode]:
    answer = await client.why(job_id)
    assert all(each.text for each in answer.reasons)
    return [each.code for each in answer.reasons]


async def _nobody_works(client: Client) -> None:
    handle = await client.enqueue(greet("Ada"))
    assert await _codes(client, handle.id) == [ReasonCode.NO_WORKER]
    later = await client.enqueue(greet("Ada").options(delay=60))
    assert await _codes(client, later.id) == [ReasonCode.SCHEDULED, ReasonCode.NO_WORKER]
    late = await client.enqueue(greet("Ada").options(expires=0))
    assert await _codes(client, late.id) == [ReasonCode.EXPIRES, ReasonCode.NO_WORKER]


async def _others_are_served(client: Client) -> None:
    handle = await client.enqueue(greet("Ada"))
    old = await client.store.open_lease("of an older version", HOUR)
    assert await _codes(client, handle.id) == [ReasonCode.TYPES_UNKNOWN]
    await client.store.release(old, [], end=True)
    await client.store.open_lease("w", HOUR, types=["another"], slots=2)
    answer = await client.why(handle.id)
    assert [each.code for each in answer.reasons] == [ReasonCode.NO_WORKER_FOR_TYPE]
    assert "another" in answer.reasons[0].text
    await client.store.open_lease("w2", HOUR, types=["jobs.greet"], slots=2)
    assert await _codes(client, handle.id) == [ReasonCode.ABOUT_TO_START]


async def _others_come_first(client: Client) -> None:
    lease_id = await client.store.open_lease("w", HOUR, types=["jobs.greet", "urgent"], slots=1)
    await client.enqueue(greet("Ada"))
    await client.store.claim(lease_id, ["jobs.greet"], 1)
    handle = await client.enqueue(greet("Ada"))
    assert await _codes(client, handle.id) == [ReasonCode.SLOTS_BUSY]
    await client.enqueue_by_name("urgent", priority=1)
    await client.enqueue_by_name("of_others", priority=1)
    answer = await client.why(handle.id)
    assert [each.code for each in answer.reasons] == [ReasonCode.SLOTS_BUSY, ReasonCode.JOBS_BEFORE]
    assert answer.reasons[0].text == "all 1 slots of the one worker that runs jobs.greet are busy"
    assert answer.reasons[1].text.startswith("1 due job comes before it")


async def _it_runs(client: Client) -> None:
    handle = await client.enqueue(greet("Ada"))
    lease_id = await client.store.open_lease("w", HOUR, types=["jobs.greet"], slots=1)
    (claimed,) = await client.store.claim(lease_id, ["jobs.greet"], 1)
    answer = await client.why(handle)
    assert [each.code for each in answer.reasons] == [ReasonCode.RUNNING]
    assert "the worker w," in answer.reasons[0].text
    retried = Settlement(id=claimed.id, claims=claimed.claims, lease_id=lease_id, kind=SettlementKind.RESCHEDULED, delay=60)
    await client.store.settle([retried])
    assert await _codes(client, handle.id) == [ReasonCode.RESCHEDULED]


async def _its_worker_is_lost(client: Client) -> None:
    handle = await client.enqueue(greet("Ada"))
    lease_id = await client.store.open_lease("w", 2.0, types=["jobs.greet"], slots=1)
    await client.store.claim(lease_id, ["jobs.greet"], 1)
    with anyio.fail_after(60):
        while await _codes(client, handle.id) == [ReasonCode.RUNNING]:
            await anyio.sleep(0.1)
    answer = await client.why(handle.id)
    assert [each.code for each in answer.reasons] == [ReasonCode.WORKER_LOST]
    assert "no worker is alive" in answer.reasons[0].text


async def _it_has_ended(client: Client) -> None:
    done, late = await client.enqueue(greet("Ada")), await client.enqueue(greet("Ada").options(expires=0))
    unreadable = await client.enqueue_by_name("jobs.greet", {"nobody": 1})
    await Worker(client, registry).run_once()
    assert await _codes(client, done.id) == [ReasonCode.COMPLETED]
    assert await _codes(client, late.id) == [ReasonCode.EXPIRED]
    answer = await client.why(unreadable.id)
    assert [each.code for each in answer.reasons] == [ReasonCode.FAILED]
    assert f"jobs retry {unreadable.id}" in answer.reasons[0].advice


@pytest.mark.parametrize(
    "look",
    [_nobody_works, _others_are_served, _others_come_first, _it_runs, _its_worker_is_lost, _it_has_ended],
    ids=lambda each: each.__name__.strip("_"),
)
def test_what_the_client_answers(each_url: str, look: Callable[[Client], Awaitable[None]]) -> None:
    async def answer() -> None:
        async with Client(each_url) as client:
            await look(client)

    anyio.run(answer)


def test_the_command(invoke: Invoke) -> None:
    job_id = invoke("enqueue", "jobs.greet", "name=Ada").stdout.split()[0]
    first, second, advice = invoke("jobs", "why", job_id).stdout.splitlines()
    assert first == f"{job_id}  jobs.greet  ready"
    assert second == "no_worker: no worker is alive"
    assert "Start a worker" in advice
    answer = json.loads(invoke("jobs", "why", job_id, "--json").stdout)
    assert answer["state"] == "ready"
    assert [each["code"] for each in answer["reasons"]] == ["no_worker"]


def test_a_job_that_isnt_there(invoke: Invoke) -> None:
    invoke("migrate")
    assert invoke("jobs", "why", "0" * 32, exit_code=1).stdout.startswith("not_found: there is no such job")
    assert json.loads(invoke("jobs", "why", "0" * 32, "--json", exit_code=1).stdout)["state"] is None
