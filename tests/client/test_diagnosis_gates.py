"""What the doctor says of limits that let nobody in, that nobody has put, and of sequences that a failed job keeps."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from aioqueue import Client, Fail, InSequence, KeptSequence, Limit, LimitKind, Rate, Registry, StoredLimit, Verdict, Worker
from aioqueue.client._diagnosis_gates import gates_of_fields, judge_fields, judge_limits, judge_sequences
from aioqueue.vocabulary._gates import GateKind, GateStatus

FAILED = UUID("00000000-0000-7000-8000-000000000001")
LIMIT = StoredLimit(
    name="stripe",
    kind=LimitKind.PLACES,
    places=0,
    per=None,
    burst=None,
    defined=False,
    changed=False,
    running=0,
    waiting=0,
)
registry = Registry(prefix="judged.")


@registry.job(limit=(Limit(0), "stripe"), aliases=("judged.older",))
async def charge() -> None: ...


@registry.job(limit="stripe", rate=Rate(5, per=1))
async def refund() -> None: ...


@registry.job
async def close() -> None:
    raise Fail("no")


def test_nothing_is_said_where_there_is_nothing() -> None:
    assert judge_limits([]) == judge_limits([replace(LIMIT, places=1, waiting=7)]) == judge_sequences([]) == []
    assert judge_limits([replace(LIMIT, places=3)], registry) == []


def test_limits_of_0() -> None:
    rate = replace(LIMIT, name="rate:a", kind=LimitKind.STARTS, per=60.0, burst=1, waiting=1)
    first, second, idle = judge_limits([LIMIT, rate, replace(LIMIT, name="job:b", waiting=10_000)])
    assert (first.verdict, second.verdict, idle.verdict) == (Verdict.WARNING, Verdict.WARNING, Verdict.OK)
    assert first.seen == "the limit job:b is 0: 10,000 or more due jobs wait for it to be raised"
    assert "`aioqueue limits put job:b PLACES`" in first.advice
    assert second.seen == "the rate rate:a is 0: 1 due job waits for it to be raised"
    assert "`aioqueue limits put rate:a PLACES --per TIME`" in second.advice
    assert idle.seen == "0, and no job waits: stripe"


def test_shared_limits_that_nobody_has_put() -> None:
    (finding,) = judge_limits([], registry)
    assert (finding.check, finding.verdict) == ("limits", Verdict.WARNING)
    assert finding.seen == "nobody has put the limit stripe, so that any number of jobs runs of judged.charge, judged.refund"
    assert finding.advice == "Say how many: `aioqueue limits put stripe PLACES`."


def test_of_many_some_are_named() -> None:
    findings = judge_limits([replace(LIMIT, name=f"l{number}", waiting=number + 1) for number in range(30)])
    assert (len(findings), findings[0].seen[:18]) == (11, "the limit l29 is 0")
    assert findings[10].seen == "and 20 more limits of 0 that jobs wait at"
    kept = judge_sequences([KeptSequence(name=f"s{number}", blocked_by=FAILED, waiting=number) for number in range(30)])
    assert (len(kept), kept[10].seen) == (11, "and 20 more sequences that failed jobs keep")


def test_kept_sequences() -> None:
    kept = [KeptSequence(name=name, blocked_by=FAILED, waiting=waiting) for name, waiting in (("a", 0), ("my account", 2))]
    first, second = judge_sequences(kept)
    assert first.seen == f"the failed job {FAILED} keeps the sequence my account: 2 due jobs wait behind it"
    assert "`aioqueue sequences resume 'my account'`" in first.advice
    assert second.seen.endswith("no job waits behind it yet")


@pytest.mark.anyio
async def test_the_doctor_looks_at_both(each_url: str) -> None:
    kept = InSequence("account:42", on_failure="block")
    async with Client(each_url) as client:
        assert {"limits", "sequences"}.isdisjoint(each.check for each in await client.diagnose())
        failed, _, _ = await client.enqueue_many(
            [close().options(sequence=kept), refund().options(sequence=kept), charge().options(key="k")]
        )
        await Worker(client, registry).run_once()
        found = {each.seen for each in await client.diagnose(registry) if each.check in {"limits", "sequences"}}
    assert found == {
        "the limit job:judged.charge is 0: 1 due job waits for it to be raised",
        "nobody has put the limit stripe, so that any number of jobs runs of judged.charge, judged.refund",
        f"the failed job {failed.id} keeps the sequence account:42: 1 due job waits behind it",
    }


by_field = Registry(prefix="judged.")


@by_field.job(
    limit=Limit(0, by="region"), rate=Rate(5, per=1, by="number"), fairness_by="metadata.user", aliases=("judged.before",)
)
async def ship(number: int) -> None: ...


@by_field.job(sequence_by="region")
async def count(number: int) -> None: ...


def test_jobs_that_lack_the_field_that_tells_them_apart() -> None:
    gates = gates_of_fields(by_field)
    assert [each.gate for each in gates] == ["sequence=judged.count", "job:judged.ship", "fair:judged.ship"]
    statuses = [GateStatus(gate=each.gate, kind=GateKind.LIMIT) for each in gates]
    assert judge_fields(gates, statuses) == []
    first, second = judge_fields(gates, [replace(statuses[0], count=1), statuses[1], replace(statuses[2], waiting=10_000)])
    assert (first.check, first.verdict) == ("limits", Verdict.WARNING)
    assert first.seen == (
        "sequence_by='region' of judged.count is a field of the metadata, and 1 job that runs or waits has none: at "
        "sequence=judged.count they count as one"
    )
    assert "10,000 or more jobs that run or wait have none" in second.seen


@pytest.mark.anyio
async def test_the_doctor_finds_them(each_url: str) -> None:
    async with Client(each_url) as client:
        await client.enqueue_many([ship(1), ship(2).options(metadata={"region": None, "user": 1})])
        await Worker(client, by_field).run_once()
        found = [each.seen for each in await client.diagnose(by_field) if "field of the metadata" in each.seen]
        assert not [each for each in await client.diagnose() if "field of the metadata" in each.seen]
    (seen,) = found
    assert seen.startswith("limit='region' of judged.ship is a field of the metadata, and 1 job that runs or waits has none")
