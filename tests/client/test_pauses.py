"""Pausing jobs, and who is told of it: on all stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Client,
    ConfigurationError,
    Job,
    JobState,
    NotSupported,
    OutsideTransaction,
    Pause,
    PauseTarget,
    ReasonCode,
    Registry,
    Verdict,
    Worker,
)
from aioqueue.client._diagnosis_planned import judge_pauses
from aioqueue.client._why import find_reasons
from aioqueue.vocabulary._identifiers import new_id
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

registry = Registry(prefix="paused.")
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 31, 12, tzinfo=UTC)


@registry.job(aliases=("paused.older",))
async def first(number: int) -> int:
    return number


@registry.job
async def second(number: int) -> int:
    return number


@pytest.fixture
async def client(each_client: Client) -> Client:
    return each_client


async def run(client: Client) -> None:
    await Worker(client, registry).run_once()


async def states(client: Client, *handles: JobHandle[Any]) -> list[JobState]:
    return [(await client.job(each)).state for each in handles]


async def kept_back(client: Client, *handles: JobHandle[Any]) -> list[bool]:
    """Whether each of them waits, after a worker had the time to run all that it could."""
    await run(client)
    return [state in (JobState.READY, JobState.HELD) for state in await states(client, *handles)]


async def test_a_type_is_paused_under_its_older_names_too(client: Client) -> None:
    await client.pause(first, reason="the provider is down", by="Ada", until=NOON)
    old = await client.enqueue_by_name("paused.older", {"number": 1})
    new = await client.enqueue(first(2))
    other = await client.enqueue(second(3))
    assert await kept_back(client, old, new, other) == [True, True, False]
    found = await client.pauses()
    assert {(each.target, each.value, each.by, each.reason, each.until) for each in found} == {
        (PauseTarget.TYPE, name, "Ada", "the provider is down", NOON) for name in ("paused.first", "paused.older")
    }
    assert [each.waiting for each in found] == [1, 1]
    assert await client.resume(first) == 2
    assert await kept_back(client, old, new) == [False, False]
    assert await client.pauses() == []


async def test_names_keys_and_all(client: Client) -> None:
    keyed = await client.enqueue(first(1).options(key="k"))
    plain = await client.enqueue(first(2))
    other = await client.enqueue(second(3))
    await client.pause(key="k")
    await client.pause("paused.second", second)
    assert await kept_back(client, keyed, plain, other) == [True, False, True]
    (job,) = [await client.job(keyed)]
    assert (job.state, job.held_by) == (JobState.HELD, "pause:k")
    assert [each.id for each in (await client.list_jobs(states=[JobState.HELD])).jobs] == [keyed.id]
    await client.pause(all=True)
    assert await client.resume(key="k") == 1
    assert await client.resume(second) == 1
    assert await kept_back(client, keyed, other) == [True, True]
    assert await client.resume(all=True) == 1
    assert await kept_back(client, keyed, other) == [False, False]


async def test_each_has_a_pause_of_their_own(client: Client) -> None:
    handle = await client.enqueue(first(1))
    await client.pause(first, by="Ada")
    await client.pause(first, by="Eve")
    await client.pause(first, by="Ada", reason="once more")
    assert len(await client.pauses()) == 2 * 2
    assert await client.resume(first, by="Ada") == 2
    assert await kept_back(client, handle) == [True]
    assert await client.resume(first, by="Bob") == 0
    assert await client.resume(first) == 2
    assert await kept_back(client, handle) == [False]


async def test_a_worker_that_runs_stops_to_start_them_and_goes_on_with_the_others(client: Client) -> None:
    """Resuming wakes it: its poll interval is longer than this test may take."""
    async with Worker(client, registry, poll_interval=600):
        assert await (await client.enqueue(first(1))).result(timeout=30) == 1
        await client.pause(first)
        await client.pause(key="k")
        waits = [await client.enqueue(first(2)), await client.enqueue(second(3).options(key="k"))]
        for number in range(3):
            assert await (await client.enqueue(second(number))).result(timeout=30) == number
        assert not [state for state in await states(client, *waits) if state not in (JobState.READY, JobState.HELD)]
        await client.resume(first)
        await client.resume(key="k")
        assert [await each.result(timeout=30) for each in waits] == [2, 3]


async def test_why_names_every_pause_that_is_about_it(client: Client) -> None:
    handle = await client.enqueue(first(1).options(key="customer 7"))
    await client.pause(first, by="Ada", reason="the provider is down")
    await client.pause(key="customer 7", until=NOON)
    await client.pause(all=True, by="Eve")
    await client.pause(second)
    await client.pause(key="customer 8")
    answer = await client.why(handle)
    paused = [each for each in answer.reasons if each.code is ReasonCode.PAUSED]
    assert len(paused) == 3
    texts = " ".join(f"{each.text} {each.advice}" for each in paused)
    for said in (
        "by Ada",
        "the provider is down",
        "until 2030-01-31 12:00:00 UTC",
        "by Eve",
        "`aioqueue resume paused.first`",
        "`aioqueue resume --key 'customer 7'`",
        "`aioqueue resume --all`",
    ):
        assert said in texts
    assert answer.reasons[-1].code is ReasonCode.NO_WORKER  # that, too, is in the way
    await run(client)
    for pause in ({"all": True}, {"key": "customer 7"}):
        await client.resume(**pause)  # type-checked elsewhere
    await client.resume(first)
    await run(client)
    assert (await client.why(handle)).reasons[0].code is ReasonCode.COMPLETED


async def test_why_of_one_that_waits_for_others_is_paused_or_comes_back(client: Client) -> None:
    blocker = await client.enqueue(second(1).options(delay=3600))
    blocked = await client.enqueue(first(2).options(after=[blocker]))
    await client.pause(first)
    codes = [each.code for each in (await client.why(blocked)).reasons]
    assert codes == [ReasonCode.BLOCKED, ReasonCode.PAUSED]
    later = await client.why(await client.enqueue(first(3).options(delay=60)))
    assert [each.code for each in later.reasons][:2] == [ReasonCode.SCHEDULED, ReasonCode.PAUSED]


async def test_a_running_job_isn_t_said_to_be_paused(client: Client) -> None:
    handle = await client.enqueue(first(1))
    lease = await client.store.open_lease("w", 60, types=["paused.first"], slots=1)
    await client.store.claim(lease, ["paused.first"], 1)
    await client.pause(first)
    assert [each.code for each in (await client.why(handle)).reasons] == [ReasonCode.RUNNING]


def job(held_by: str | None) -> Job:
    job_id = new_id()
    return Job(
        id=job_id,
        chain_id=job_id,
        type="paused.first",
        state=JobState.HELD,
        priority=2,
        payload=b"{}",
        created_at=LONG_AGO,
        run_at=LONG_AGO,
        key="k",
        held_by=held_by,
    )


@pytest.mark.parametrize(
    ("held_by", "said"),
    [("pause:k", "aren't any more"), ("limit:smtp", "held back by limit:smtp"), (None, "this version doesn't know")],
)
async def test_why_of_a_held_job_that_no_pause_is_about(client: Client, held_by: str | None, said: str) -> None:
    handle = await client.enqueue(first(1))
    standing = await client.store.standing(handle.id, ["paused.first"])
    reason = find_reasons(job(held_by), standing, [])[0]
    assert reason.code is ReasonCode.HELD
    assert said in reason.text


async def test_what_is_refused(client: Client) -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((first,), {"all": True}),
        ((first,), {"key": "k"}),
        ((), {"key": "k", "all": True}),
        ((), {"key": ""}),
        ((), {"key": "nul\0"}),
        (("",), {}),
        ((7,), {}),
        ((first,), {"until": datetime(2030, 1, 31)}),
        ((first,), {"until": datetime(2020, 1, 31, tzinfo=UTC)}),
        ((first,), {"until": timedelta(0)}),
        ((first,), {"until": timedelta(days=400_000)}),
        ((first,), {"until": timedelta(days=366 * 999 * 9)}),
        ((first,), {"by": "x" * 201}),
        ((first,), {"by": "nul\0"}),
    ]
    for arguments, options in wrong:
        with pytest.raises(ConfigurationError):
            await client.pause(*arguments, **options)
    with pytest.raises(ConfigurationError, match="time zone"):
        await client.pause(first, until=datetime(2030, 1, 31))
    with pytest.raises(
        ConfigurationError, match=r"over already: 2020-01-31T00:00:00\+00:00; it's 20.*, by this machine's clock"
    ):
        await client.pause(first, until=datetime(2020, 1, 31, tzinfo=UTC))
    for options in ({"reason": 7}, {"by": None}):
        with pytest.raises(TypeError):
            await client.pause(first, **options)
    with pytest.raises(ConfigurationError):
        await client.resume()
    assert await client.pauses() == []


async def test_texts_that_no_database_has_are_made_visible_and_long_ones_cut(client: Client) -> None:
    await client.pause(first, reason="nul\0 " + "x" * 2_000)
    reason = (await client.pauses())[0].reason
    assert reason.startswith("nul\\u0000 xxx")
    assert len(reason) == 1_000


async def test_not_inside_a_transaction(client: Client) -> None:
    async with client.transaction():
        with pytest.raises(OutsideTransaction):
            await client.pause(first)
        with pytest.raises(OutsideTransaction):
            await client.resume(first)
    assert await client.pauses() == []


async def test_a_store_that_knows_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Simple(FakeStore):
        pause = resume = list_pauses = None

    async with Client(Simple()) as client:
        with pytest.raises(NotSupported) as caught:
            await client.pause(first)
        assert caught.value.ability == "pause"
        with pytest.raises(NotSupported):
            await client.pauses()
        handle = await client.enqueue(first(1))
        assert (await client.why(handle)).reasons[0].code is ReasonCode.NO_WORKER
        assert not [each for each in await client.diagnose() if each.check == "pauses"]


async def test_the_doctor_tells_what_waits(client: Client) -> None:
    assert not [each for each in await client.diagnose() if each.check == "pauses"]
    await client.enqueue_many([first(1), first(2)])
    await client.pause(first, by="Ada", reason="no matter")
    await client.pause(key="nobody's")
    findings = [each for each in await client.diagnose() if each.check == "pauses"]
    assert [each.verdict for each in findings] == [Verdict.WARNING, Verdict.OK]
    assert "the type paused.first is paused by Ada" in findings[0].seen
    assert "2 due jobs wait" in findings[0].seen
    assert "`aioqueue resume paused.first`" in findings[0].advice
    assert "nobody's" in findings[1].seen


def test_many_pauses_are_told_in_few_lines() -> None:
    def pause(number: int, waiting: int) -> Pause:
        key = f"k{number}"
        return Pause(target=PauseTarget.KEY, value=key, by="", reason="", until=None, at=NOON, waiting=waiting)

    findings = judge_pauses([pause(number, number) for number in range(30)] + [pause(0, 10_000)])
    assert len(findings) == 10 + 1 + 1
    assert "10,000 or more" in findings[0].seen
    assert "20 more" in findings[10].seen
