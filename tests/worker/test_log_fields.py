"""Records that are made inside handlers, by anybody, say which job they belong to; each to its own."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, Registry, Retry, Worker, current_attempt
from aioqueue.logging import set_up_handler
from tests.worker.faults import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aioqueue import Attempt, CallNext

pytestmark = pytest.mark.anyio

app = logging.getLogger("tests.app")
request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="nobody's")


class Written(io.StringIO):
    def objects(self, message: str = "") -> list[dict[str, Any]]:
        """The records, or those with a text."""
        found = [json.loads(line) for line in self.getvalue().splitlines()]
        return [each for each in found if message in each["message"]]


@pytest.fixture
def written() -> Iterator[Written]:
    """What a handler of the root logger writes as JSON."""
    stream, root = Written(), logging.getLogger()
    handler = set_up_handler(logging.StreamHandler(stream), "json")
    root.addHandler(handler)
    levels = {logger: logger.level for logger in (app, logging.getLogger("aioqueue"))}
    for logger in levels:
        logger.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)


async def test_every_record_inside_a_handler_has_the_jobs_fields(client: Client, written: Written) -> None:
    """In it, in tasks that it starts, in its thread, in its middlewares and resources."""
    registry = Registry()

    async def around(attempt: Attempt, call_next: CallNext) -> object:
        app.info("before")
        try:
            return await call_next()
        finally:
            app.info("after")

    @registry.resource(scope="attempt")
    async def connection() -> AsyncIterator[str]:
        app.info("opened")
        yield "connection"
        app.info("closed")

    @registry.job(middlewares=[around], name="works")
    async def works() -> None:
        await connection.get()
        app.info("in the handler")
        await asyncio.create_task(in_a_task())
        await asyncio.to_thread(app.info, "in a thread of its")

    async def in_a_task() -> None:
        app.info("in a task")

    @registry.job(middlewares=[around], name="computes")
    def computes() -> None:
        app.info("in its thread")

    handles = [await client.enqueue(call.options(key="k1")) for call in (works(), computes())]
    await Worker(client, registry, name="w1").run_once()
    texts = {"works": ["before", "opened", "in the handler", "in a task", "in a thread of its", "closed", "after"],
             "computes": ["before", "in its thread", "after"]}  # fmt: skip
    for handle, (name, expected) in zip(handles, texts.items(), strict=True):
        own = str(handle.id)
        fields = {"job_id": own, "job_type": name, "job_key": "k1", "chain_id": own, "attempt": 1, "worker": "w1"}
        theirs = [each for each in written.objects() if each.get("job_id") == str(handle.id)]
        assert all(fields.items() <= each.items() for each in theirs)
        assert sorted(each["message"] for each in theirs if each["logger"] == "tests.app") == sorted(expected)
        assert [each["event"] for each in theirs if "event" in each] == ["attempt.started", "attempt.ended"]
    app.info("outside")
    assert "job_id" not in written.objects("outside")[0]


async def test_two_hundred_interleaved_jobs_say_their_own_id(client: Client, written: Written) -> None:
    registry, seen = Registry(), dict[str, set[str]]()

    @registry.job
    async def interleaved() -> None:
        mine = str(current_attempt().job.id)
        for step in range(3):
            app.info("%s step %d", mine, step)
            await asyncio.sleep(0)

    @registry.job
    def in_threads() -> None:
        mine = str(current_attempt().job.id)
        for step in range(3):
            app.info("%s step %d", mine, step)

    handles = await client.enqueue_many([call() for _ in range(100) for call in (interleaved, in_threads)])
    assert (await Worker(client, registry, concurrency=50).run_once()).completed == 200
    for each in written.objects(" step "):
        seen.setdefault(each["message"].split()[0], set()).add(each["job_id"])
    assert seen == {str(handle.id): {str(handle.id)} for handle in handles}
    assert len(written.objects(" step ")) == 600


@pytest.mark.parametrize("how", ["return", "raise", "time out", "exit"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_nothing_of_a_job_is_left_to_the_next_on_its_slot(client: Client, written: Written, kind: str, how: str) -> None:
    """However it ended: not what it set itself, not what a middleware set, and no field of its records."""
    if (kind, how) == ("thread", "time out"):
        pytest.skip("a thread can't be interrupted")
    registry = Registry()
    found: list[tuple[str, str]] = []

    async def sets(attempt: Attempt, call_next: CallNext) -> object:
        found.append(("middleware", request_id.get()))
        request_id.set(f"of {attempt.job.id}")
        return await call_next()

    def ends() -> None:
        found.append(("handler", request_id.get()))
        request_id.set("the handler's")
        if how == "raise":
            raise ValueError("no")
        if how == "exit":
            raise SystemExit(3)

    @registry.job(middlewares=[sets], retry=Retry(max_attempts=1), timeout=0.05 if how == "time out" else None, name="sets")
    async def sets_async() -> None:
        ends()
        if how == "time out":
            await asyncio.Event().wait()

    @registry.job(middlewares=[sets], retry=Retry(max_attempts=1), name="sets_in_thread")
    def sets_in_thread() -> None:
        ends()

    job = sets_async if kind == "async" else sets_in_thread
    first, second = await client.enqueue_many([job(), job()])
    await Worker(client, registry, concurrency=1).run_once()
    order = [str(each) for each in (first.id, second.id)]
    assert [value for where, value in found if where == "middleware"] == ["nobody's", "nobody's"]
    assert sorted(value for where, value in found if where == "handler") == sorted(f"of {each}" for each in order)
    outcomes = [each for each in written.objects() if each.get("event") == "attempt.ended"]
    assert {each["job_id"]: each["outcome"] for each in outcomes} == dict.fromkeys(
        order, "completed" if how == "return" else "failed"
    )


async def test_outcomes_have_their_fields(client: Client, written: Written) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def ends() -> None:
        current_attempt().set_outcome("declined")
        raise ValueError("no\nERROR forged")

    handle = await client.enqueue(ends())
    await Worker(client, registry).run_once()
    first, last = (each for each in written.objects() if each.get("event") == "attempt.ended")
    assert (first["level"], first["outcome"], first["next_try_in"], first["attempt"]) == ("WARNING", "retried", 0, 1)
    assert (last["level"], last["outcome"], last["next_try_in"], last["attempt"]) == ("ERROR", "failed", None, 2)
    for each in (first, last):
        assert each["job_id"] == str(handle.id)
        assert each["duration"] >= 0
        assert each["label"] == "declined"
        assert each["error"] == r"ValueError: no\nERROR forged"
    assert "Traceback" in last["exception"]


async def test_an_interrupted_attempt_has_one_outcome(client: Client, written: Written) -> None:
    registry, started = Registry(), threading.Event()

    @registry.job
    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    await client.enqueue(waits())
    async with Worker(client, registry, grace=0):
        await until(started.is_set)
    assert [each["event"] for each in written.objects() if each.get("event", "").startswith("attempt.")] == [
        "attempt.started", "attempt.interrupted",
    ]  # fmt: skip
    assert written.objects("was interrupted")[0]["outcome"] == "interrupted"
