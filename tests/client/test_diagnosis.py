"""`Client.diagnose`: what is alike for all stores, and that one bad check stops only itself."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Finding, JobState, LeaseFacts, NewJob, Registry, Verdict, Worker
from aioqueue.client._diagnosis import judge_leases, judge_registry, judge_types
from aioqueue.store_rules._diagnosis import run_checks
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._stats import TypeStats
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(aliases=("old_name",))
async def known() -> None: ...


@registry.declare
async def asked() -> None: ...


def lease(worker: str, *types: str, ends_in: float = 60.0, running: int = 0, silent: bool = False) -> LeaseFacts:
    return LeaseFacts(id=1, worker=worker, ends_in=ends_in, types=None if silent else types, running=running)


def ready(number: int, oldest: float) -> TypeStats:
    return TypeStats(counts={JobState.READY: number}, oldest_ready=oldest)


def found(findings: list[Finding]) -> list[tuple[str, Verdict]]:
    return [(each.check, each.verdict) for each in findings]


async def test_whether_the_client_is_open_or_not(each_url: str) -> None:
    client = Client(each_url)
    await client.migrate()
    closed = {each.check: each.verdict for each in await client.diagnose(registry)}
    assert (closed["workers"], closed["types"], closed["registry"]) == (Verdict.WARNING, Verdict.OK, Verdict.OK)
    async with client, Worker(client, registry):
        opened = {each.check: each.verdict for each in await client.diagnose(registry)}
        assert opened["workers"] is Verdict.OK
        assert opened.keys() == closed.keys()
        await client.stats()  # it's still open
    with pytest.raises(Exception, match="isn't open"):
        await client.stats()


async def test_a_type_that_the_workers_who_are_alive_dont_run(each_url: str) -> None:
    async with Client(each_url) as client, Worker(client, registry):
        job = NewJob(id=new_id(), type="nobodys")
        await client.store.insert([job])
        findings = {each.check: each for each in await client.diagnose(registry)}
        assert (findings["types"].verdict, findings["registry"].verdict) == (Verdict.WARNING, Verdict.WARNING)
        assert "1 due job of nobodys" in findings["types"].seen
        await client.delete(job.id)
        await client.enqueue(known())
        findings = {each.check: each for each in await client.diagnose(registry)}
        assert (findings["types"].verdict, findings["registry"].verdict) == (Verdict.OK, Verdict.OK)


async def test_without_the_schema_the_queue_isnt_looked_at(empty_postgres_url: str) -> None:
    findings = await Client(empty_postgres_url).diagnose(registry)
    assert findings[-1] == Finding("queue", Verdict.UNKNOWN, "not looked at, because of schema")


async def test_a_store_without_checks_of_its_own() -> None:
    assert {each.check for each in await Client(FakeStore()).diagnose()} == {"workers", "types"}


async def test_the_store_is_asked_once(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(each_url) as client:
        asked: list[str] = []

        def count(name: str) -> None:
            answer: Callable[[], Awaitable[object]] = getattr(client.store, name)

            def ask() -> Awaitable[object]:
                asked.append(name)
                return answer()

            monkeypatch.setattr(client.store, name, ask)

        count("leases")
        count("stats")
        await client.diagnose(registry)
    assert sorted(asked) == ["leases", "stats"]


async def test_a_store_that_cant_be_opened_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(url)
    await client.migrate()
    monkeypatch.setattr(client.store, "open", asyncio.Event().wait)
    monkeypatch.setattr("aioqueue.client._diagnosis.run_checks", partial(run_checks, longest=0.05))
    assert (await client.diagnose(registry))[-1].seen == "it can't be told: no answer within 0.05 s"


async def test_a_check_that_fails_or_hangs_stops_only_itself() -> None:
    async def hangs() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    async def fails() -> list[Finding]:
        raise ZeroDivisionError("no")

    async def works() -> list[Finding]:
        return [Finding("works", Verdict.OK, "")]

    findings = await run_checks({"hangs": hangs, "fails": fails, "works": works}, longest=0.05)
    assert found(findings) == [("hangs", Verdict.UNKNOWN), ("fails", Verdict.UNKNOWN), ("works", Verdict.OK)]
    assert "ZeroDivisionError: no" in findings[1].seen


def test_who_works() -> None:
    assert found(judge_leases([])) == [("workers", Verdict.WARNING)]
    assert found(judge_leases([lease("a"), lease("b", ends_in=-5)])) == [("workers", Verdict.OK)]
    lost = judge_leases([lease("a"), lease("gone", ends_in=-90, running=3), lease("idle", ends_in=-90)])
    assert found(lost)[1:] == [("lost_workers", Verdict.PROBLEM), ("lost_workers", Verdict.WARNING)]
    assert "gone ran out 90 s ago" in lost[1].seen
    many = judge_leases([lease(f"w{number}", ends_in=-90) for number in range(30)])
    assert len(many) == 12
    assert "20 more" in many[-1].seen


def test_types_that_nobody_runs() -> None:
    waiting = {"mail": ready(2, 5.0), "report": ready(1, 500.0), "done": TypeStats(counts={JobState.COMPLETED: 1})}
    assert found(judge_types({}, [])) == [("types", Verdict.OK)]
    assert found(judge_types(waiting, [lease("a", "mail", "report")])) == [("types", Verdict.OK)]
    nobody = judge_types(waiting, [lease("a", "mail", ends_in=-5), lease("b", "other")])
    assert found(nobody) == [("types", Verdict.PROBLEM), ("types", Verdict.WARNING)]
    assert "1 due job of report, the oldest for 500 s" in nobody[0].seen
    assert "alias" in nobody[0].advice
    assert "Start a worker" in judge_types(waiting, [])[0].advice
    unknown = judge_types(waiting, [lease("a", "mail"), lease("old", silent=True)])
    assert found(unknown) == [("types", Verdict.UNKNOWN)]
    assert "old" in unknown[0].seen
    answers = judge_types({"approval": ready(1, 500.0)}, [lease("a", "mail")], {"approval"})
    assert found(answers) == [("types", Verdict.OK)]
    assert "wait for an answer: approval" in answers[0].seen
    assert len(judge_types({f"t{number}": ready(1, 1.0) for number in range(15)}, [])) == 11


def test_types_that_the_registry_doesnt_know() -> None:
    finished = TypeStats(counts={JobState.FAILED: 1})
    fine = judge_registry({"known": ready(1, 1.0), "old_name": ready(1, 1.0), "gone": finished}, registry)
    assert found(fine) == [("registry", Verdict.OK)]
    scheduled = TypeStats(counts={JobState.SCHEDULED: 1})
    (answers,) = judge_registry({"known": ready(1, 1.0), "asked": scheduled}, registry)
    assert (answers.verdict, "only declares: asked" in answers.seen) == (Verdict.OK, True)
    (bad,) = judge_registry({"gone": scheduled}, registry)
    assert (bad.verdict, "gone" in bad.seen) == (Verdict.WARNING, True)
