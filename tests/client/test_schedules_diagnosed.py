"""What `aioqueue doctor` finds about schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aioqueue import Client, Verdict
from aioqueue.client._diagnosis_planned import judge_schedules
from aioqueue.vocabulary._schedules import DueSchedules, NewSchedule, StoredSchedule
from aioqueue.vocabulary._workers import LeaseFacts
from tests.client.test_schedules import NOON, report

pytestmark = pytest.mark.anyio


async def test_the_doctor(each_client: Client) -> None:
    client = each_client

    async def findings() -> list[Any]:
        return [each for each in await client.diagnose() if each.check == "schedules"]

    assert await findings() == []
    await client.schedules.put("often", report(), every=60)
    (fine,) = await findings()
    assert fine.verdict is Verdict.OK
    await client.store.open_lease("w", 60, types=["planned.other"], slots=1)
    (unserved,) = await findings()
    assert (unserved.verdict, "planned.report" in unserved.seen, "often" in unserved.seen) == (Verdict.WARNING, True, True)
    await client.schedules.pause("often")
    (paused,) = await findings()
    assert (paused.verdict, "1 of them paused" in paused.seen) == (Verdict.OK, True)


def stored(name: str, cron: str | None = None, late: float | None = None, job_type: str = "t") -> StoredSchedule:
    new = NewSchedule(name=name, owner=None, job_type=job_type, template=b"{}", cron=cron, every=None if cron else 60.0)
    next_at = None if late is None else NOON - timedelta(seconds=late)
    return StoredSchedule(definition=new, version=1, since=NOON, anchor=NOON, next_at=next_at)


def lease(*types: str, ends_in: float = 60) -> LeaseFacts:
    return LeaseFacts(id=1, worker="w", ends_in=ends_in, types=types, slots=1)


@pytest.mark.parametrize(
    ("schedule", "leases", "verdict", "seen", "advice"),
    [
        (stored("s", late=3600), [], Verdict.PROBLEM, "no worker is alive", "Start a worker"),
        (stored("s", late=3600), [lease("t", ends_in=-1)], Verdict.PROBLEM, "no worker is alive", "Start a worker"),
        (stored("s", "@daily", late=3600), [lease("t")], Verdict.PROBLEM, "though workers are alive", "extra `cron`"),
        (stored("s", late=3600), [lease("t")], Verdict.PROBLEM, "one for 1.0 h", "logs"),
        (stored("s", late=30), [lease("t")], Verdict.OK, "no tick is overdue", ""),
    ],
)
def test_overdue_schedules(
    schedule: StoredSchedule, leases: list[LeaseFacts], verdict: Verdict, seen: str, advice: str
) -> None:
    (finding,) = judge_schedules([schedule], DueSchedules(now=NOON, schedules=(schedule,)), leases)
    assert finding.verdict is verdict
    assert seen in finding.seen
    assert advice in finding.advice


def test_many_findings_are_told_in_few_lines() -> None:
    many = [stored(f"s{number}", late=600, job_type=f"t{number}") for number in range(30)]
    findings = judge_schedules(many, DueSchedules(now=NOON, schedules=tuple(many)), [lease("other")])
    assert len(findings) == 1 + 10 + 1
    assert "30 schedules overdue" in findings[0].seen
    assert "and 20 more" in findings[0].seen
    assert not judge_schedules(many, DueSchedules(now=NOON, schedules=()), [lease("other")], [f"t{n}" for n in range(30)])[1:]
