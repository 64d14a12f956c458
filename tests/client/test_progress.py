"""How far jobs are, as those who wait for them hear of it, and the phases and attempts that snapshots show."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue.client import Client, _progress, _waiters
from aioqueue.client._progress import with_all_phases
from aioqueue.definitions._registry import Registry
from aioqueue.errors import ConfigurationError, JobNotFound, ResultTimeout
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, Job, JobState, Settlement, SettlementKind
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._phases import Phase, PhaseState, PhaseWrite, Progress, ProgressWrite
from tests.client.fake_store import FakeStore
from tests.client.jobs import add

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def said(percent: float, phase: str | None = None, phases: tuple[str, ...] = ()) -> Progress:
    return Progress(percent=percent, message=f"{percent} %", phase=phase, phases=phases, at=NOON)


class SayingStore(FakeStore):
    """Jobs are as far as a test says, the same all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: Progress | None = None

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        ends = await super().fetch_ends(ids)
        return [None if job is None else replace(job, progress=self.progress) for job in ends]


@pytest.fixture
async def saying(monkeypatch: pytest.MonkeyPatch) -> SayingStore:
    monkeypatch.setattr(_waiters, "_PROGRESS_AGAIN_SECONDS", 0.0)
    return SayingStore()


@pytest.fixture
async def listener(saying: SayingStore) -> AsyncIterator[Client]:
    async with Client(saying, poll_interval=600) as client:
        yield client


async def test_who_waits_hears_how_far_it_is_and_the_last_word_before_the_result(saying: SayingStore, listener: Client) -> None:
    handle = await listener.enqueue(add(1, 2))
    assert await handle.progress() is None
    heard: list[float] = []
    came = asyncio.Event()

    def plain(progress: Progress) -> None:
        heard.append(progress.percent)
        came.set()

    waiting = asyncio.create_task(handle.result(timeout=60, on_progress=plain))
    for percent in (10, 20):
        saying.progress = said(percent)
        async with asyncio.timeout(60):
            await came.wait()
        came.clear()
    assert (await handle.progress()) == said(20)
    saying.progress = said(100)
    saying.finish(handle.id, output=b"3")
    assert await waiting == 3
    assert heard == [10, 20, 100]  # each once


async def test_a_callback_that_raises_is_logged_and_is_called_again(
    saying: SayingStore, listener: Client, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await listener.enqueue(add(1, 2))
    heard: asyncio.Queue[float] = asyncio.Queue()

    async def raising(progress: Progress) -> None:
        heard.put_nowait(progress.percent)
        if progress.percent == 10:
            raise asyncio.CancelledError
        raise ValueError("no")

    saying.progress = said(10)
    waiting = asyncio.create_task(handle.result(timeout=60, on_progress=raising))
    assert await asyncio.wait_for(heard.get(), 60) == 10
    saying.progress = said(20)
    assert await asyncio.wait_for(heard.get(), 60) == 20
    saying.finish(handle.id, output=b"3")
    assert await waiting == 3
    events = [record.__dict__.get("event") for record in caplog.records]
    assert events == ["client.progress_callback_failed"] * 2
    assert caplog.records[1].exc_info is not None


async def test_a_callback_that_can_not_be_called_is_refused(listener: Client) -> None:
    handle = await listener.enqueue(add(1, 2))
    for timeout in (0, 60):
        with pytest.raises(ConfigurationError, match="on_progress is a function"):
            await handle.result(timeout=timeout, on_progress=5)


@pytest.mark.parametrize("how", ["the result", "a timeout", "a cancellation"])
async def test_a_callback_that_hangs_holds_up_nobody(
    saying: SayingStore, listener: Client, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(_progress, "_LAST_WORD_SECONDS", 0.0)
    handle = await listener.enqueue(add(1, 2))
    hangs, ended = asyncio.Event(), asyncio.Event()

    async def hanging(progress: Progress) -> None:
        hangs.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    saying.progress = said(10)
    limit = 0.01 if how == "a timeout" else 60
    waiting = asyncio.create_task(handle.result(timeout=limit, on_progress=hanging))
    async with asyncio.timeout(60):
        await hangs.wait()
        if how == "the result":
            saying.finish(handle.id, output=b"3")
            assert await waiting == 3
        elif how == "a timeout":
            with pytest.raises(ResultTimeout):
                await waiting
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await ended.wait()


async def test_nobody_looks_again_for_those_who_only_want_the_result(saying: SayingStore, listener: Client) -> None:
    handle = await listener.enqueue(add(1, 2))
    waiting = asyncio.create_task(handle.result(timeout=60))
    async with asyncio.timeout(60):
        while not saying.calls["fetch_ends"]:
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert saying.calls["fetch_ends"] == 1
    saying.finish(handle.id, output=b"3")
    assert await waiting == 3


# -- what snapshots show ----------------------------------------------------------------------------------------------


def a_job(state: JobState = JobState.RUNNING, **fields: object) -> Job:
    identifier = new_id()
    values = {"id": identifier, "chain_id": identifier, "type": "test.add", "state": state, "priority": 2, "payload": b"{}"}
    return Job(**{**values, "created_at": NOON, "run_at": NOON, **fields})


def test_phases_that_have_not_begun_are_shown_too() -> None:
    registry = Registry()
    names = ("download", "process", "upload")
    begun = (Phase(name="older", state=PhaseState.COMPLETED), Phase(name="download", state=PhaseState.RUNNING))
    job = a_job(phases=begun, progress=said(17, "download", names))
    assert [(each.name, each.state) for each in with_all_phases(job).phases] == [
        ("download", "running"),
        ("process", "waiting"),
        ("upload", "waiting"),
    ]
    build = registry.job(name="build", phases=names)(_build)
    waiting = a_job(JobState.READY, type="build")
    assert [each.state for each in with_all_phases(waiting, build).phases] == ["waiting"] * 3
    assert with_all_phases(a_job(), build).phases == ()
    cancelled = a_job(JobState.CANCELLED, progress=said(0, None, names))
    assert {each.state for each in with_all_phases(cancelled).phases} == {PhaseState.CANCELLED}
    for untouched in (a_job(phases=begun), a_job(phases=begun, progress=said(3))):
        assert with_all_phases(untouched) is untouched


def _error(
    attempt: int, minute: int, worker: str = "", started: int | None = None, *, kind: str = "ValueError"
) -> AttemptError:
    return AttemptError(
        attempt=attempt,
        at=NOON + timedelta(minutes=minute),
        type=kind,
        message="",
        worker=worker,
        started_at=None if started is None else NOON + timedelta(minutes=started),
    )


def _minutes(time: datetime | None) -> int | None:
    return None if time is None else int((time - NOON).total_seconds() // 60)


async def _build() -> None: ...


RUNNING, COMPLETED, FAILED, READY = JobState.RUNNING, JobState.COMPLETED, JobState.FAILED, JobState.READY


@pytest.mark.parametrize(
    ("state", "attempt", "started", "finished", "errors", "expected"),
    [
        pytest.param(READY, 0, None, None, [], [], id="never started"),
        pytest.param(RUNNING, 1, 1, None, [], [(1, "w", 1, None)], id="the first runs"),
        pytest.param(COMPLETED, 1, 1, 2, [], [(1, "w", 1, 2)], id="the first has succeeded"),
        pytest.param(
            COMPLETED, 2, 5, 6, [_error(1, 2, "v", 1)], [(1, "v", 1, 2), (2, "w", 5, 6)], id="the second has succeeded"
        ),
        pytest.param(FAILED, 1, 1, 3, [_error(1, 2, "v", 1)], [(1, "v", 1, 2)], id="it has failed"),
        pytest.param(FAILED, 1, 1, 3, [_error(1, 2)], [(1, "w", 1, 2)], id="an older version has written the error"),
        pytest.param(
            RUNNING, 1, 5, None, [_error(1, 2, "v", 1)], [(1, "v", 1, 2), (1, "w", 5, None)], id="retried by hand: 1 again"
        ),
        pytest.param(RUNNING, 1, 5, None, [_error(1, 2)], [(1, None, None, 2), (1, "w", 5, None)], id="as an older version"),
        pytest.param(READY, 1, 1, None, [_error(1, 2, "v", 1)], [(1, "v", 1, 2)], id="waits for its retry"),
        pytest.param(READY, 1, 5, None, [_error(1, 2, "v", 1)], [(1, "v", 1, 2)], id="was put off by the second"),
        pytest.param(
            FAILED,
            1,
            1,
            5,
            [_error(1, 2, "v", 1), _error(0, 5, kind="Fail")],
            [(1, "v", 1, 2)],
            id="failed by somebody meanwhile",
        ),
        pytest.param(JobState.CANCELLED, 0, None, 2, [_error(0, 2, kind="Cancelled")], [], id="cancelled unstarted"),
        pytest.param(JobState.CANCELLED, 1, 2, 2, [_error(0, 2, kind="Expired")], [], id="expired"),
    ],
)
def test_attempts_are_derived_from_errors_and_the_newest_start(
    state: JobState, attempt: int, started: int | None, finished: int | None, errors: list[AttemptError], expected: object
) -> None:
    at = [None if each is None else NOON + timedelta(minutes=each) for each in (started, finished)]
    job = a_job(state, attempt=attempt, started_at=at[0], finished_at=at[1], worker="w", errors=tuple(errors))
    shown = [(each.number, each.worker, _minutes(each.started_at), _minutes(each.ended_at)) for each in job.attempts]
    assert shown == expected
    assert [each.error for each in job.attempts if each.error] == [each for each in errors if each.attempt]


# -- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_retry_goes_on_behind_the_phases_or_from_the_start_and_logs_are_kept(each_client: Client) -> None:
    store, handle = each_client.store, await each_client.enqueue(add(1, 2).options(keep=timedelta(hours=1)))

    async def fail() -> None:
        lease = await store.open_lease("tests", 600)
        (job,) = await store.claim(lease, ["test.add"], 1)
        fence = {"id": job.id, "claims": job.claims, "lease_id": lease}
        write = PhaseWrite(**fence, name="download", state=PhaseState.COMPLETED, result=b"7")
        assert await store.write_phases([write]) == [None]
        await store.write_progress([ProgressWrite(**fence, percent=50, phase="download", phases=("download", "upload"))])
        assert "attempt 1 (50 % done at " in (await each_client.why(handle)).reasons[0].text
        kind, lines = SettlementKind.FAILED, b'[{"message":"hello"}]'
        await store.settle([Settlement(**fence, kind=kind, attempt=job.attempt, logs=lines, error=_error(job.attempt, 0))])
        await store.release(lease, [], end=True)

    await fail()
    job = await handle.snapshot()
    assert [(each.name, each.state, each.result) for each in job.phases] == [
        ("download", "completed", 7),
        ("upload", "waiting", None),
    ]
    assert (await handle.progress()) == (await each_client.job(handle)).progress
    assert job.purge_at is not None
    assert job.finished_at is not None
    assert job.purge_at - job.finished_at == timedelta(hours=1)
    assert await each_client.retry(handle) == {handle.id: Changed.DONE}
    assert [each.name for each in (await handle.snapshot()).phases] == ["download", "upload"]
    await fail()
    async with each_client.transaction() as tx:
        assert await tx.retry(handle, from_start=True) == {handle.id: Changed.DONE}
        assert [(log.claims, log.lines) for log in await tx.logs(handle)] == [
            (1, [{"message": "hello"}]),
            (2, [{"message": "hello"}]),
        ]
    job = await handle.snapshot()
    assert (job.phases, job.progress) == ((), None)
    assert [log.attempt for log in await each_client.logs(handle)] == [1, 1]
    with pytest.raises(JobNotFound):
        await each_client.logs(new_id())


async def test_pending_jobs_get_another_time(each_client: Client) -> None:
    first = await each_client.enqueue(add(1, 2).options(delay=3600))
    ready, absent = await each_client.enqueue(add(3, 4)), new_id()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert await each_client.reschedule(first, absent, at=tomorrow) == {first.id: Changed.DONE, absent: Changed.NOT_FOUND}
    assert (await first.snapshot()).run_at == tomorrow.replace(microsecond=(await first.snapshot()).run_at.microsecond)
    assert await each_client.reschedule(where=JobFilter(types=[add]), delay=timedelta(hours=2)) == {Changed.DONE: 1}
    assert (await first.snapshot()).run_at < tomorrow
    assert (await ready.snapshot()).state is JobState.READY  # by filter only if that says so
    async with each_client.transaction() as tx:
        assert await tx.reschedule(where=JobFilter(states=["ready"]), delay=60) == {Changed.DONE: 1}
    assert (await ready.snapshot()).state is JobState.SCHEDULED
    await each_client.cancel(first)
    assert await each_client.reschedule(first, delay=0) == {first.id: Changed.WRONG_STATE}
    for wrong in ({}, {"delay": 1, "at": tomorrow}, {"delay": -1}, {"at": datetime(2030, 1, 1)}):
        with pytest.raises(ConfigurationError):
            await each_client.reschedule(first, **wrong)
