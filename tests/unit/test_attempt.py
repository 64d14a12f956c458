"""The attempt that handlers and middlewares see, and the middlewares around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from aioqueue import ArgumentsError, Attempt, CallNext, Registry, current_attempt
from aioqueue.definitions._context import activate
from aioqueue.definitions._middleware import EnqueueNext, fold, fold_enqueue
from aioqueue.definitions._resources import ResourceScope, current_scope
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import ClaimedJob, Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry()
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@registry.job
async def add(a: int, b: int = 2) -> int:
    return a + b


def make(payload: bytes = b'{"a":1}', metadata: bytes = b"{}") -> Attempt:
    job_id = new_id()
    job = ClaimedJob(
        id=job_id, chain_id=job_id, type="add", payload=payload, priority=2, attempt=3, claims=5, lease_id=1, created_at=NOW,
        run_at=NOW, started_at=NOW, max_attempts=10, metadata=metadata,
    )  # fmt: skip
    return Attempt(job, add, worker_id="w", client="client", resources=ResourceScope().child())


async def test_what_an_attempt_shows() -> None:
    attempt = make(metadata=b'{"tenant":7}')
    assert attempt.number == 3
    assert attempt.worker_id == "w"
    assert attempt.client == "client"
    assert attempt.job_type is add
    assert attempt.arguments == {"a": 1}
    assert attempt.metadata == {"tenant": 7}
    assert attempt.dry_run is False
    assert str(attempt.job.id) in repr(attempt)
    assert make(metadata=b"[1]").metadata == {}


async def test_arguments_are_read_when_they_are_asked_for() -> None:
    attempt = make(b'{"a":"x"}')
    with pytest.raises(ArgumentsError):
        _ = attempt.arguments


async def test_any_thread_sees_that_it_should_stop() -> None:
    attempt = make()
    assert not attempt.cancelled
    thread = threading.Thread(target=attempt.mark_cancelled)
    thread.start()
    thread.join()
    assert attempt.cancelled


async def test_outcomes_are_short_texts() -> None:
    attempt = make()
    attempt.set_outcome("nochange")
    assert attempt.outcome == "nochange"
    attempt.set_outcome(None)
    assert attempt.outcome is None
    for wrong in ("", "x" * 201, 5):
        with pytest.raises(ValueError, match="outcome"):
            attempt.set_outcome(wrong)


async def test_the_current_attempt_is_there_within_the_block_only() -> None:
    with pytest.raises(RuntimeError, match="worker"):
        current_attempt()
    attempt = make()
    with activate(attempt):
        assert current_attempt() is attempt
        assert await asyncio.to_thread(current_attempt) is attempt
        assert current_scope.get() is attempt.resources
    with pytest.raises(RuntimeError):
        current_attempt()
    assert current_scope.get(None) is None


# -- middlewares --------------------------------------------------------------------------------------------------------


def noting(name: str, notes: list[str]) -> Any:
    async def middleware(attempt: Attempt, call_next: CallNext) -> object:
        notes.append(f"{name} in")
        result = await call_next()
        notes.append(f"{name} out")
        return result

    return middleware


async def test_the_first_listed_is_outermost() -> None:
    notes: list[str] = []

    async def handler(attempt: Attempt) -> object:
        notes.append("handler")
        return attempt.number

    run = fold([noting("a", notes), noting("b", notes)], handler)
    assert await run(make()) == 3
    assert notes == ["a in", "b in", "handler", "b out", "a out"]
    assert await run(make()) == 3  # folded once, run often


async def test_a_middleware_may_change_the_result_or_not_go_on() -> None:
    async def handler(attempt: Attempt) -> object:
        return 1

    async def double(attempt: Attempt, call_next: CallNext) -> object:
        result = await call_next()
        assert isinstance(result, int)
        return result * 2

    async def skip(attempt: Attempt, call_next: CallNext) -> object:
        return "skipped"

    assert await fold([double, double], handler)(make()) == 4
    assert await fold([skip, double], handler)(make()) == "skipped"


async def test_going_on_twice_is_refused() -> None:
    runs: list[int] = []

    async def handler(attempt: Attempt) -> object:
        runs.append(1)
        raise ValueError("no")

    async def again(attempt: Attempt, call_next: CallNext) -> object:
        try:
            return await call_next()
        except ValueError:
            return await call_next()

    with pytest.raises(RuntimeError, match=r"again has called call_next\(\) twice"):
        await fold([again], handler)(make())
    assert runs == [1]


async def test_errors_pass_through() -> None:
    notes: list[str] = []

    async def handler(attempt: Attempt) -> object:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await fold([noting("a", notes)], handler)(make())
    assert notes == ["a in"]


async def test_enqueue_middlewares_see_and_change_the_rows() -> None:
    notes: list[str] = []

    async def insert(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        notes.append(",".join(job.type for job in jobs))
        return [Inserted(job.id, created=True) for job in jobs]

    def renaming(suffix: str) -> Any:
        async def middleware(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
            return await call_next([NewJob(id=job.id, type=job.type + suffix) for job in jobs])

        return middleware

    async def twice(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        await call_next(jobs)
        return await call_next(jobs)

    jobs = [NewJob(id=new_id(), type="a"), NewJob(id=new_id(), type="b")]
    inserted = await fold_enqueue([renaming("1"), renaming("2")], insert)(jobs)
    assert [each.id for each in inserted] == [job.id for job in jobs]
    assert notes == ["a12,b12"]
    with pytest.raises(RuntimeError, match="twice"):
        await fold_enqueue([twice], insert)(jobs)
