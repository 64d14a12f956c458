"""What became of a unique enqueue is counted, and said by its span and by a record in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from aioqueue import Client, DuplicateJob, Registry, Unique, WrongJobType
from aioqueue.telemetry._counters import LEDGER, Counters, UniqueOutcome
from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.anyio

registry = Registry()
REPLACE, RAISE = Unique(on_conflict="replace"), Unique(on_conflict="raise")


@registry.job
async def sum_up(number: int) -> None: ...


@registry.job
async def another(number: int) -> None: ...


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def said(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name)


async def test_what_became_of_each_is_told(client: Client, spans: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioqueue")
    holder = await client.enqueue(sum_up(1).options(key="k", unique=True))
    returned, replacing, refused = (sum_up(2).options(key="k", unique=each) for each in (True, REPLACE, RAISE))
    wrong = another(1).options(id=holder.id)
    await client.enqueue(returned)
    await client.enqueue(replacing)
    with pytest.raises(DuplicateJob):
        await client.enqueue(refused)
    with pytest.raises(WrongJobType):
        await client.enqueue(wrong)
    await client.enqueue(sum_up(3))
    found = spans.all()
    assert [said(span, "aioqueue.unique.outcome") for span in found] == [
        "created", "returned", "replaced", "refused", "refused", None
    ]  # fmt: skip
    assert [said(span, "error.type") for span in found[3:]] == ["DuplicateJob", "WrongJobType", None]
    for name in ("messaging.message.id", "messaging.message.conversation_id"):
        assert {said(span, name) for span in found[:5]} == {str(holder.id)}
    records = [record.__dict__ for record in caplog.records if getattr(record, "event", "") == "client.enqueue_not_stored"]
    assert [(each["job_id"], each["job_type"], each["outcome"]) for each in records] == [
        (str(returned.id), "sum_up", "returned"), (str(replacing.id), "sum_up", "replaced"),
        (str(refused.id), "sum_up", "refused"), (str(holder.id), "another", "refused"),
    ]  # fmt: skip
    assert {each["chain_id"] for each in records[:3]} == {str(holder.id)}


async def test_the_counter_and_the_span_of_a_batch(client: Client, spans: Recorded) -> None:
    before = LEDGER.total().unique
    calls = [sum_up(number).options(key=key, unique=True) for number, key in enumerate("abab")]
    await client.enqueue_many([*calls, sum_up(9).options(key="b", unique=REPLACE), sum_up(9).options(id=uuid4()), sum_up(9)])
    with pytest.raises(DuplicateJob):
        await client.enqueue_many([sum_up(1), sum_up(1).options(key="a", unique=RAISE)])
    after = LEDGER.total().unique
    counted = {outcome: after.get(("sum_up", outcome), 0) - before.get(("sum_up", outcome), 0) for outcome in UniqueOutcome}
    assert list(counted.values()) == [3, 2, 1, 1]
    first, second = spans.named("send sum_up")
    assert [said(first, f"aioqueue.unique.{outcome}") for outcome in UniqueOutcome] == [3, 2, 1, None]
    assert said(second, "aioqueue.unique.refused") == 1


def test_names_of_types_that_anybody_may_choose_are_few() -> None:
    counters = Counters()
    for number in range(1000):
        counters.count_unique(f"made up {number}", UniqueOutcome.RETURNED)
    assert len(counters.unique) == 801
    assert sum(counters.unique.values()) == 1000
    total = Counters()
    total.add(counters, set())
    assert len(total.unique) == 201
    assert sum(total.unique.values()) == 1000
