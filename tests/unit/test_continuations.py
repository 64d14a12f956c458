"""Handlers that may continue their chain: `done`, what an annotation with `Call` means, and the row of a next step."""

from __future__ import annotations

import asyncio
import copy
import gc
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Never, Optional, Union

import pytest

from aioqueue import (
    Call,
    CallAlreadyEnqueued,
    CallError,
    Client,
    ConflictingOptions,
    Fixed,
    RegistrationError,
    Registry,
    Retry,
    done,
)
from aioqueue.definitions._continuation import Done, next_job
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary import _codec
from aioqueue.vocabulary._codec import CodecError
from tests.worker.recovery_bench import orphan

if TYPE_CHECKING:
    from collections.abc import Callable

jobs = Registry("site.")


class Holder: ...


@jobs.job(tags=["polls"])
async def poll(report: int) -> Call[str]:
    return done("ready") if report > 2 else poll(report + 1)


# -- done ---------------------------------------------------------------------------------------------------------------


def test_a_finished_value_equals_another_with_an_equal_value_and_shows_it() -> None:
    assert done([1]) == done([1])
    assert done(1) != done(2)
    assert hash(done("a")) == hash(done("a"))
    assert repr(done({"a": "b"})) == "done({'a': 'b'})"
    assert asyncio.run(poll.fn(3)) == done("ready")
    assert copy.copy(done([1])) == copy.deepcopy(done([1])) == done([1]).copy() == done([1])


def test_a_finished_value_is_no_call_of_a_job_type() -> None:
    assert poll(1) != done(1)
    assert done(1) != poll(1)
    assert done(1) != 1


def test_the_value_is_copied_by_a_deep_copy_alone() -> None:
    value = [[1]]
    kept, copied = done(value), copy.deepcopy(done(value))
    value[0].append(2)
    assert kept == done([[1, 2]])
    assert copied == done([[1]])


@pytest.mark.parametrize("name", ["id", "job_type", "payload", "arguments"])
def test_a_finished_value_has_nothing_of_a_job(name: str) -> None:
    with pytest.raises(AttributeError, match=f"finished value, and no job: it has no {name}"):
        getattr(done(1), name)


MISUSES: list[Callable[[Call[int]], object]] = [
    lambda call: call.options(delay=1),
    lambda call: call.mark_enqueueing(),
    lambda call: call.to_new_job(),
]


@pytest.mark.parametrize("misuse", MISUSES, ids=["options", "mark_enqueueing", "to_new_job"])
def test_a_finished_value_cannot_be_used_as_a_job(misuse: Callable[[Call[int]], object]) -> None:
    with pytest.raises(CallError, match=r"done\(5\) is a finished value"):
        misuse(done(5))


@pytest.mark.anyio
async def test_a_finished_value_cannot_be_enqueued() -> None:
    refused = pytest.raises(CallError, match=r"done\(5\) is a finished value, and can't be enqueued: return it from a handler")
    async with Client(MemoryStore()) as client:
        with refused:
            await client.enqueue(done(5))
        with refused:
            await client.enqueue_many([poll(1), done(5)])
        async with client.transaction() as tx:
            with refused:
                await tx.enqueue(done(5))
        assert (await client.stats()).types == {}


def test_a_finished_value_that_is_dropped_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done(1)
        gc.collect()


# -- annotations --------------------------------------------------------------------------------------------------------


def returning(annotation: Any, *, is_async: bool = True) -> Any:
    async def handler(a: int) -> Any: ...
    def handler_in_a_thread(a: int) -> Any: ...

    made: Any = handler if is_async else handler_in_a_thread
    made.__annotations__["return"] = annotation
    return made


CONTINUING: list[tuple[Any, object, bytes]] = [
    (Call[str], "a", b'"a"'),
    ("Call[str]", "a", b'"a"'),
    (Call[None], None, b"null"),
    (Call[list[int]], [1], b"[1]"),
    (Call[int | None], None, b"null"),
    (Call[Any], {"a": 1}, b'{"a":1}'),
    (Annotated[Call[int], "noted"], 1, b"1"),
    (Call[Annotated[int, "noted"]], 1, b"1"),
    (Call[datetime], datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00Z"'),
    (Call[Never], None, b"null"),
]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
@pytest.mark.parametrize(("annotation", "value", "stored"), CONTINUING, ids=lambda each: str(each)[:40])
def test_the_output_of_a_handler_that_may_continue_is_that_of_its_chains_end(
    registry: Registry, annotation: Any, value: object, stored: bytes, is_async: bool
) -> None:
    job: Any = registry.job(returning(annotation, is_async=is_async))
    assert job.continues
    assert job.encode_output(value) == stored
    assert job.decode_output(stored) == value


def test_others_do_not_continue(registry: Registry) -> None:
    annotations: list[Any] = [int, None, Any, "dict[str, int]"]
    assert not any(registry.job(name=f"a{place}")(returning(each)).continues for place, each in enumerate(annotations))


REFUSED: list[tuple[Any, str]] = [
    (Call, r"-> Call doesn't say what its chain ends with: annotate -> Call\[int\]"),
    (int | Call[int], r"annotate -> Call\[int\], and return done\(value\)"),
    (Call[int] | int, r"annotate -> Call\[int\], and return done\(value\)"),
    (Union[int, Call[str]], r"annotate -> Call\[int \| str\]"),  # noqa: UP007 - another type than that of `|`
    (Optional[Call[int]], r"annotate -> Call\[int \| None\]"),  # noqa: UP045 - as above
    (Call[int] | None, r"annotate -> Call\[int \| None\]"),
    (Call[int] | Call[str], r"annotate -> Call\[int \| str\]"),
    ("Annotated[int | Call[int], 1]", r"annotate -> Call\[int\]"),
    (list[Call[int]], "a Call can't be a part of a result: return one Call"),
    (dict[str, list[Call[int]]], "a Call can't be a part of a result"),
    (tuple[int, Call[int]], "a Call can't be a part of a result"),
    (Call[Call[int]], "a chain ends with a value, and not with a Call"),
    (Call[list[Call[int]]], "a chain ends with a value, and not with a Call"),
    (Call[Holder], "no converter for Holder"),
]


@pytest.mark.parametrize(("annotation", "reason"), REFUSED, ids=lambda each: str(each)[:60])
def test_an_annotation_that_leaves_open_what_a_chain_ends_with_is_refused(
    registry: Registry, annotation: Any, reason: str
) -> None:
    with pytest.raises(RegistrationError, match=rf"site\.handler: .*{reason}"):
        registry.job(returning(annotation))
    assert not registry.types


def test_an_annotation_that_is_resolved_later_is_refused_then(registry: Registry) -> None:
    job: Any = registry.job(returning("Later | Call[int]"))
    assert not job.continues
    globals()["Later"] = int
    try:
        with pytest.raises(RegistrationError, match=r"annotate -> Call\[int\]"):
            registry.check()
    finally:
        del globals()["Later"]


def test_a_name_of_its_own_changes_nothing(registry: Registry) -> None:
    """As `type Step = Call[int]` makes it from Python 3.12 on."""
    typing_extensions = pytest.importorskip("typing_extensions")
    job: Any = registry.job(returning(typing_extensions.TypeAliasType("Step", Call[int])))
    assert job.continues
    assert job.encode_output(1) == b"1"
    with pytest.raises(RegistrationError, match=r"annotate -> Call\[int\]"):
        registry.job(name="other")(returning(typing_extensions.TypeAliasType("Maybe", int | Call[int])))


@pytest.mark.parametrize("declared_as", [str, Call[str], "str", "Call[str]"], ids=str)
@pytest.mark.parametrize("implemented_as", [str, Call[str], "str", "Call[str]"], ids=str)
def test_whether_a_handler_continues_is_nothing_to_who_declares_it(
    registry: Registry, declared_as: Any, implemented_as: Any
) -> None:
    declared: Any = registry.declare(name="declared")(returning(declared_as))
    made = registry.implement(declared)(returning(implemented_as, is_async=False))
    assert made.continues is ("Call" in str(implemented_as))
    assert (declared(1), made(1)) == (made(1), declared(1))
    with pytest.raises(RegistrationError, match="isn't the declared one"):
        Registry().implement(declared)(returning(Call[int]))


def test_signatures_are_compared_as_texts_where_a_type_cannot_be_resolved_yet(registry: Registry) -> None:
    declared: Any = registry.declare(name="declared")(returning("Unknown"))
    assert registry.implement(declared)(returning("aioqueue.Call[Unknown]")) is registry.types["site.declared"]
    with pytest.raises(RegistrationError, match="isn't the declared one"):
        Registry().implement(declared)(returning("Call[Other]"))


# -- the row of a next step ---------------------------------------------------------------------------------------------


def test_the_next_step_is_the_call_with_what_the_step_before_had() -> None:
    call = poll(2).options(
        delay=timedelta(minutes=5), priority=1, tags=["own", "both"], metadata={"b": 3, "c": 4}, timeout=7, expires=60,
        retry=Retry(max_attempts=3, backoff=Fixed(1)),
    )  # fmt: skip
    before = orphan(key="k", tags=("first", "both"), metadata=b'{"a":12345678901234567890123,"b":2}', priority=4, timeout=1.0)
    made = next_job(call, before, '{"traceparent":"x"}')
    assert (made.id, made.type, made.payload) == (call.id, "site.poll", b'{"report":2}')
    assert (made.delay, made.priority, made.timeout, made.expires, made.max_attempts) == (300, 1, 7, 60, 3)
    assert made.retry == Retry(max_attempts=3, backoff=Fixed(1)).encode()
    assert made.tags == ("first", "both", "polls", "own")
    assert made.metadata == b'{"a":12345678901234567890123,"b":3,"c":4}'
    assert (made.key, made.unique, made.trace) == (None, None, '{"traceparent":"x"}')
    assert next_job(poll(1).options(at=datetime(2030, 1, 1, tzinfo=UTC)), before, None).run_at == datetime(
        2030, 1, 1, tzinfo=UTC
    )


@pytest.mark.parametrize("stored", [b"{}", b"[]", b"null", b"{", b"\xff", b'{"a":NaN}', b"[" * 10_000])
def test_odd_metadata_of_the_step_before_is_not_passed_on(stored: bytes) -> None:
    assert next_job(poll(1), orphan(metadata=stored), None).metadata == b"{}"
    assert next_job(poll(1).options(metadata={"a": 1}), orphan(metadata=stored), None).metadata == b'{"a":1}'


def test_a_chain_keeps_its_key() -> None:
    for options in ({"key": "k"}, {"key": "k", "unique": True}):
        call = poll(1).options(**options)
        with pytest.raises(ConflictingOptions, match=r"keeps the key that it began with: leave out key= and unique="):
            next_job(call, orphan(), None)
        call.mark_enqueueing()  # it wasn't: a chain of its own may be made of it
    assert next_job(poll(1).options(key="k").options(key=None, unique=False), orphan(), None).key is None


def test_a_call_is_returned_at_most_once() -> None:
    call = poll(1)
    next_job(call, orphan(), None)
    for again in (call, call.options(delay=3)):
        with pytest.raises(CallAlreadyEnqueued, match=r"call\.copy\(\) makes another"):
            next_job(again, orphan(), None)
    assert next_job(call.copy(), orphan(), None).id != call.id


def test_metadata_that_grows_from_step_to_step_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codec, "LARGEST_VALUE_BYTES", 1024 * 1024)
    half = "x" * 700_000
    with pytest.raises(CodecError, match=r"the metadata, with that of the step before: 1\.3 MiB"):
        next_job(poll(1).options(metadata={"b": half}), orphan(metadata=f'{{"a":"{half}"}}'.encode()), None)


def test_tags_that_add_up_have_an_end() -> None:
    more = tuple(f"t{place}" for place in range(150))
    hundred = (*more[:99], "polls")
    with pytest.raises(CodecError, match=r"the tags, with those of the steps before: 101 are more than the 100"):
        next_job(poll(1).options(tags=["own"]), orphan(tags=hundred), None)
    assert next_job(poll(1).options(tags=["t7"]), orphan(tags=hundred), None).tags == hundred
    # What was enqueued with more goes on, and so does what brings more.
    assert next_job(poll(1), orphan(tags=(*more, "polls")), None).tags == (*more, "polls")
    assert len(next_job(poll(1).options(tags=more), orphan(tags=("t1",)), None).tags) == 151
    with pytest.raises(CodecError, match="152 are more"):
        next_job(poll(1).options(tags=more), orphan(tags=("own",)), None)


def test_done_is_a_call_for_isinstance() -> None:
    assert isinstance(done(1), Call)
    assert isinstance(done(1), Done)
