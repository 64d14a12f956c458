"""What a handler may not return: a value where a call is declared, a call where none is, a call that can't continue a chain."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, CallNext, Client, Fixed, JobState, Registry, Retry, Unique, current_attempt, done
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult
from tests.worker.chains import Settling, ended, once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import Attempt

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> Settling:
    return Settling()


@pytest.fixture
async def client(store: Settling) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


async def test_a_value_in_place_of_a_call_fails_for_good_with_the_fix(client: Client, registry: Registry) -> None:
    @registry.job
    async def in_the_loop() -> Call[str]:
        return "a value"  # wrong on purpose

    @registry.job
    def in_a_thread() -> Call[None]:
        return None  # wrong on purpose

    for call, kind in ((in_the_loop(), "str"), (in_a_thread(), "NoneType")):
        last = await ended(client, registry, call)
        assert (last.state, last.attempt) == (JobState.FAILED, 1)
        assert str(last.last_error) == (
            f"CallError: the handler of {call.job_type.name} is annotated to return a Call, and it, or a middleware, has "
            f"returned a value ({kind}): return done(value) to end the chain, or a call of a job type to continue it"
        )


async def test_a_call_in_place_of_a_value_fails_for_good_with_the_fix(client: Client, registry: Registry) -> None:
    @registry.job
    async def typed() -> int:
        return add(1)  # wrong on purpose

    @registry.job
    def anything(*, finished: bool) -> Any:
        return done(1) if finished else add(1)

    @registry.job
    async def add(number: int) -> int:
        return number

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in (typed(), anything(finished=True), anything(finished=False)):
            last = await ended(client, registry, call)
            assert (last.state, last.attempt) == (JobState.FAILED, 1)
            assert str(last.last_error) == (
                f"CallError: the handler of {call.job_type.name} has returned a Call, and isn't annotated to: -> Call[R] lets "
                "it continue its chain, where R is the type of the chain's result, and done(value) ends it"
            )
        gc.collect()


async def test_a_call_in_place_of_a_finished_value_fails_for_good_with_the_fix(client: Client, registry: Registry) -> None:
    @registry.job
    async def step() -> Call[Any]:
        return done(step())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        last = await ended(client, registry, step())
        gc.collect()
    assert last.state is JobState.FAILED
    assert str(last.last_error) == (
        "CallError: the handler of step has returned done(…) with a Call in it: return the call itself to continue the chain, "
        "or done(value) to end it"
    )


async def test_a_finished_value_of_another_type_fails_for_good(client: Client, registry: Registry) -> None:
    @registry.job
    async def ends() -> Call[int]:
        return done("one")  # wrong on purpose

    last = await ended(client, registry, ends())
    assert last.state is JobState.FAILED
    assert str(last.last_error).startswith("OutputError: output: it isn't stored exactly as int")


async def test_a_value_is_stored_as_it_is_when_the_attempt_ends(client: Client, registry: Registry) -> None:
    async def changes(attempt: Attempt, call_next: CallNext) -> object:
        returned: Any = await call_next()
        returned.value.append(2)
        return returned

    @registry.job(middlewares=[changes])
    async def ends() -> Call[list[int]]:
        return done([1])

    assert (await ended(client, registry, ends())).output == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k"},
        {"key": "k", "unique": True},
        {"key": "k", "unique": Unique(on_conflict="raise")},
        {"unique": Unique(by=("number",))},
        {"id": new_id()},
    ],
    ids=["key", "unique", "raise", "by", "id"],
)
async def test_a_key_or_id_of_its_own_fails_the_job_for_good(client: Client, registry: Registry, options: Any) -> None:
    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
    async def step(number: int = 1) -> Call[None]:
        return step().options(**options)

    last = await ended(client, registry, step())
    assert (last.state, last.position, last.attempt) == (JobState.FAILED, 0, 1)
    assert [each.type for each in last.errors] == ["ConflictingOptions"]


async def test_a_loop_that_adds_a_tag_per_round_fails_for_good_at_a_hundred(client: Client, registry: Registry) -> None:
    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
    async def step(number: int = 0) -> Call[None]:
        return step(number + 1).options(tags=["round", f"round {number}"])

    last = await ended(client, registry, step())
    assert (last.state, last.position, last.attempt, len(last.tags)) == (JobState.FAILED, 99, 1, 100)
    assert str(last.last_error) == (
        "CodecError: the tags, with those of the steps before: 101 are more than the 100 that a chain can gather: what differs "
        "from step to step belongs in arguments or metadata"
    )


async def test_a_call_that_was_enqueued_or_returned_before_fails_the_attempt(client: Client, registry: Registry) -> None:
    kept: list[Call[str]] = []

    @registry.job(retry=once)
    async def enqueues_and_returns() -> Call[str]:
        call = ends()
        await current_attempt().client.enqueue(call)
        return call

    @registry.job(retry=once)
    async def returns_one_call_twice() -> Call[str]:
        kept.append(kept[0] if kept else ends())
        return kept[-1]

    @registry.job
    async def ends() -> str:
        return "end"

    last = await ended(client, registry, enqueues_and_returns())
    assert last.state is JobState.FAILED
    assert str(last.last_error).startswith("CallAlreadyEnqueued: this call of ends has been enqueued already, as job ")
    assert (await ended(client, registry, returns_one_call_twice())).output == "end"
    last = await ended(client, registry, returns_one_call_twice())
    assert str(last.last_error).startswith("CallAlreadyEnqueued: ")


async def test_the_arguments_of_the_next_step_are_checked_where_it_is_called(client: Client, registry: Registry) -> None:
    @registry.job(retry=once)
    async def step() -> Call[int]:
        return add("one")  # wrong on purpose

    @registry.job
    async def add(number: int) -> int:
        return number

    assert str((await ended(client, registry, step())).last_error).startswith(
        "ArgumentsError: number: it isn't stored exactly as int"
    )


async def test_a_next_step_that_cannot_be_stored_fails_the_job(
    client: Client, store: Settling, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.job
    async def step() -> Call[None]:
        return step()

    store.answers.append(SettleResult(LostReason.ERROR, "its id is there already"))
    last = await ended(client, registry, step())
    assert (last.state, last.position) == (JobState.FAILED, 0)
    assert str(last.last_error) == "OutcomeRefused: the outcome was refused: its id is there already"
    assert [(each.kind, each.next is None) for each in store.settled] == [
        (SettlementKind.CONTINUED, False),
        (SettlementKind.FAILED, True),
    ]
