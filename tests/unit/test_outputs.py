"""Outputs of calls as arguments of other calls: where they may stand, and that nothing else can be done with them."""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import operator
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import orjson
import pydantic
import pytest

from aioqueue import (
    ArgumentsError,
    Call,
    CallError,
    Completed,
    ConfigurationError,
    Failed,
    OutputNotReady,
    Registry,
    done,
)
from aioqueue.vocabulary._blockers import ChainEnd, EndedBlocker
from aioqueue.vocabulary._placeholders import filled

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Calls that wait for each other are garbage in a circle: it's collected where their warning is ignored."""
    yield
    gc.collect()


registry = Registry(prefix="site.")


@dataclass
class Part:
    page: int
    name: str = ""
    _private: int = 0


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]


class Pair(NamedTuple):
    left: int
    right: int


class Renamed(msgspec.Struct, rename="camel"):
    first_page: int
    rest: list[int] = []


class Model(pydantic.BaseModel):
    page: int = pydantic.Field(alias="thePage")
    inner: list[Part] = []


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self) -> int:
        return hash(self.cents)


registry.converter(Money, encode=lambda money: {"c": money.cents}, decode=lambda stored: Money(stored["c"]))


@registry.job
def fetch(url: str) -> int:
    return len(url)


@registry.job
def anything(value: Any, other: Any = None) -> None: ...


@registry.job
def typed(
    number: int = 0,
    parts: list[Part] | None = None,
    whole: Whole | None = None,
    pair: Pair | None = None,
    renamed: Renamed | None = None,
    model: Model | None = None,
    money: Money | None = None,
    named: dict[str, list[int]] | None = None,
    numbers: tuple[int, ...] = (),
    end: Completed[int] | Failed | None = None,
    ends: list[Completed[int] | Failed] | None = None,
) -> None: ...


@pytest.fixture
def page() -> int:
    return fetch("a").output


def ways(call: Call[Any]) -> list[list[str | int]]:
    return [place for blocker in call.to_new_job().blockers for place in orjson.loads(blocker.places)]


def run(call: Call[Any], output: bytes = b"7") -> dict[str, Any]:
    """The arguments as a handler gets them, if all that it waits for has completed with the output."""
    job = call.to_new_job()
    blockers = [EndedBlocker(each.chain_id, ChainEnd.COMPLETED, output, places=each.places) for each in job.blockers]
    return typed.decode_arguments(filled(job.payload, blockers))


USES: list[Callable[[Any], object]] = [
    str, bytes, bool, int, float, complex, hash, len, iter, list, reversed, abs, round, operator.index, math.floor, math.trunc,
    operator.neg, operator.pos, operator.invert, pickle.dumps, copy.copy(print),
    lambda output: f"{output}", lambda output: f"{output:>5}", lambda output: "%s" % output,  # noqa: UP031 - that way too
    lambda output: output == 1, lambda output: output != output.__class__, lambda output: output < 1,
    lambda output: output >= 1, lambda output: 1 in output, lambda output: output[0], lambda output: output["a"],
    lambda output: output.real, lambda output: getattr(output, "links", None), lambda output: hasattr(output, "links"),
    lambda output: output(1), lambda output: output + 1, lambda output: 1 + output, lambda output: output * 2,
    lambda output: output @ 1, lambda output: divmod(output, 2), lambda output: 2**output, lambda output: output | 1,
    lambda output: output - 1, lambda output: setattr(output, "x", 1), lambda output: delattr(output, "x"),
    lambda output: operator.setitem(output, 0, 1), lambda output: operator.delitem(output, 0), lambda output: {output},
    lambda output: {output: 1}, lambda output: [*output], lambda output: output.a.b,
    lambda output: next(iter(output)), os.fspath, lambda output: output.__enter__(),
    lambda output: output.__await__(), lambda output: output.__aiter__(), lambda output: output._private,
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
def test_an_output_cant_be_used_before_its_there(use: Callable[[Any], object], page: Any) -> None:
    for output in (page, fetch("a").settled):
        with pytest.raises(OutputNotReady, match=r"site\.fetch [0-9a-f-]+, which hasn't run yet"):
            use(output)


def test_what_tools_do_with_every_object_works(page: Any) -> None:
    assert repr(page).startswith("<the output of site.fetch 0")
    assert repr([fetch("a").settled]).startswith("[<the end of site.fetch 0")
    assert not hasattr(page, "__wrapped__")
    assert not hasattr(page, "_repr_html_")
    assert not isinstance(page, int)
    assert copy.copy(page) is copy.deepcopy([page])[0] is page
    assert dataclasses.replace(Part(page), name="b").page is page


def test_outputs_stand_anywhere_in_arguments(page: int) -> None:
    money = Money(page)
    call = typed(
        page,
        [Part(1), Part(page, "b")],
        Whole((Part(page),)),
        Pair(page, 2),
        Renamed(page, [1, page]),
        Model.model_construct(page=page, inner=[Part(2), Part(page)]),
        money,
        {"a": [page], "b": []},
        (1, page),
    )
    assert ways(call) == [
        ["output", "number"],
        ["output", "parts", 1, "page"],
        ["output", "whole", "parts", 0, "page"],
        ["output", "pair", 0],
        ["output", "renamed", "firstPage"],
        ["output", "renamed", "rest", 1],
        ["output", "model", "thePage"],
        ["output", "model", "inner", 1, "page"],
        ["output", "money", "c"],
        ["output", "named", "a", 0],
        ["output", "numbers", 1],
    ]
    assert run(call) == {
        "number": 7,
        "parts": [Part(1), Part(7, "b")],
        "whole": Whole((Part(7),)),
        "pair": Pair(7, 2),
        "renamed": Renamed(7, [1, 7]),
        "model": Model(thePage=7, inner=[Part(2), Part(7)]),
        "money": Money(7),
        "named": {"a": [7], "b": []},
        "numbers": (1, 7),
    }


def test_ends_stand_anywhere_too() -> None:
    call = fetch("a")
    waiting = typed(end=call.settled, ends=[call.settled, Failed(call.id, "deleted", "gone")])
    (blocker,) = waiting.to_new_job().blockers
    assert blocker.settled
    assert run(waiting)["ends"] == [Completed(7), Failed(call.id, "deleted", "gone")]


def test_output_and_end_of_one_chain_count_as_output() -> None:
    call = fetch("a")
    (blocker,) = typed(end=call.settled, number=call.output).to_new_job().blockers
    assert not blocker.settled
    assert orjson.loads(blocker.places) == [["output", "number"], ["settled", "end"]]
    (blocker,) = typed(end=call.settled).options(after=[call]).to_new_job().blockers
    assert not blocker.settled


def test_each_chain_is_waited_for_once_in_the_order_of_the_arguments() -> None:
    first, second, third = fetch("a"), fetch("b"), fetch("c")
    call = anything([second.output, first.output, second.output], third.settled).options(after=[third, first])
    blockers = call.to_new_job().blockers
    assert [each.chain_id for each in blockers] == [second.id, first.id, third.id]
    assert [each.settled for each in blockers] == [False, False, False]
    assert orjson.loads(blockers[0].places) == [["output", "value", 0], ["output", "value", 2]]


def test_waiting_without_a_value() -> None:
    first = fetch("a")
    (blocker,) = fetch("b").options(after=[first]).to_new_job().blockers
    assert (blocker.chain_id, blocker.settled, blocker.places) == (first.id, False, b"[]")
    assert fetch("b").options(after=[first]).options(after=None).to_new_job().blockers == ()
    assert fetch("b").options(after=[]).to_new_job().blockers == ()


@pytest.mark.parametrize("after", [fetch("a"), fetch("a").output, [fetch("a").output], ["a"], [done(1)], 5])
def test_after_takes_calls_and_handles(after: Any) -> None:
    with pytest.raises((ConfigurationError, TypeError)):
        fetch("b").options(after=after)


def test_a_users_text_never_counts_as_an_output(page: int) -> None:
    call = anything(["\0output", None, {"$output": 0}], page)
    assert ways(call) == [["output", "other"]]
    assert orjson.loads(call.payload) == {"value": ["\0output", None, {"$output": 0}], "other": None}


def test_arguments_beside_outputs_are_checked_now(page: int) -> None:
    with pytest.raises(ArgumentsError) as caught:
        typed(page, parts=cast("Any", [1]))
    assert caught.value.path.startswith("parts")
    for odd in (math.nan, 2**70, "\ud800"):
        with pytest.raises(ArgumentsError) as caught:
            anything([page, {"x": odd}])
        assert caught.value.path == "value[1].x"
    with pytest.raises(ArgumentsError, match="isn't a type that can be stored"):
        anything([page, object()])
    with pytest.raises(ArgumentsError, match="object isn't a type that can be stored"):
        anything([object()], page)


def test_a_call_in_the_place_of_its_output_is_told_so() -> None:
    with pytest.raises(ArgumentsError, match=r"Call isn't a type that can be stored: pass on its \.output") as caught:
        anything([fetch("a")])
    assert caught.value.path == "value"


def test_whatever_is_around_an_output_arrives_as_it_was() -> None:
    choose = random.Random(5)

    def value(depth: int) -> tuple[Any, Any]:
        """With outputs within, and as it must arrive."""
        kind = choose.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return page.output, 7
        if kind < 6:
            plain: Any = choose.choice([None, 2**63 + 1, -1.5e300, "null", 'ä"\\\0\n', True, "", 0.1, page.id.hex])
            return plain, plain
        parts = [value(depth + 1) for _ in range(choose.randrange(4))]
        if kind == 6:
            return [each for each, _ in parts], [arrived for _, arrived in parts]
        names = [choose.choice(["a", "0", "", "ä.b", "[1]", '"', "output"]) + str(number) for number in range(len(parts))]
        given = {name: each for name, (each, _) in zip(names, parts, strict=True)}
        return given, {name: arrived for name, (_, arrived) in zip(names, parts, strict=True)}

    page = fetch("a")
    for _ in range(300):
        (one, first), (two, second) = value(0), value(0)
        job = anything(one, two).to_new_job()
        blockers = [EndedBlocker(each.chain_id, ChainEnd.COMPLETED, b"7", places=each.places) for each in job.blockers]
        assert anything.decode_arguments(filled(job.payload, blockers)) == {"value": first, "other": second}


def test_sets_and_keys_cant_hold_outputs(page: Any) -> None:
    class Odd(msgspec.Struct, frozen=True, eq=False):
        page: int

    with pytest.raises(OutputNotReady):
        anything({page: 1})
    with pytest.raises(OutputNotReady):
        anything({page})
    with pytest.raises(ArgumentsError):
        anything({Odd(page): 1})


def test_what_an_encoder_makes_of_an_output_is_an_early_use(page: Any) -> None:
    local = Registry()
    local.converter(Money, encode=lambda money: str(money.cents), decode=Money)

    @local.job
    def pay(money: Money) -> None: ...

    with pytest.raises(ArgumentsError, match="hasn't run yet"):
        pay(Money(page))


def test_arguments_are_there_when_it_runs(page: int) -> None:
    call = anything(page)
    with pytest.raises(OutputNotReady):
        _ = call.arguments
    assert "value=<the output of site.fetch" in repr(call)
    assert "end=<the end of site.fetch" in repr(typed(end=fetch("a").settled))
    assert "after=" in repr(fetch("b").options(after=[fetch("a")]))


def test_calls_that_wait_for_others_arent_equal() -> None:
    first, second = fetch("a"), fetch("a")
    assert first == second
    assert anything(first.output) == anything(first.output)
    assert hash(anything(first.output)) == hash(anything(first.output))
    assert anything(first.output) != anything(second.output)
    assert anything(first.output) != anything(None)
    assert anything(first.output) != anything(first.settled)
    assert anything([first.output, None]) != anything([None, first.output])
    assert fetch("b").options(after=[first]) == fetch("b").options(after=[first])
    assert fetch("b").options(after=[first]) != fetch("b").options(after=[second])
    assert fetch("b").options(after=[first]) != fetch("b")
    assert hash(fetch("b").options(after=[first])) == hash(fetch("b").options(after=[first]))
    assert anything(first.output) == anything(first.options(priority=1).output)


def test_copies_wait_for_the_same_jobs() -> None:
    first = fetch("a")
    call = anything(first.output).options(after=[first, fetch("b")])
    for made in (call.copy(), copy.copy(call), copy.deepcopy(call), call.options(priority=1).options(priority=None)):
        assert made == call
        assert made.to_new_job().blockers == call.to_new_job().blockers
    assert call.copy().id != call.id


def test_a_finished_value_has_no_output() -> None:
    for end in ("output", "settled"):
        with pytest.raises(CallError, match="pass on the value itself"):
            getattr(done(5), end)


def test_ten_thousand_outputs_in_one_call() -> None:
    calls = [fetch(str(number)) for number in range(10_000)]
    job = anything([call.output for call in calls]).to_new_job()
    assert len(job.blockers) == 10_000
    assert job.blockers[-1].places == b'[["output","value",9999]]'


def test_to_take_an_output_is_a_use() -> None:
    first = fetch("a")
    call = anything(first.output)
    waiting = fetch("c").options(after=[fetch("b")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del first
        call.to_new_job()
        waiting.to_new_job()
        del call, waiting
    assert not caught


def test_pydantic_says_nothing_of_outputs(recwarn: pytest.WarningsRecorder, page: int) -> None:
    typed(model=Model.model_construct(page=page)).mark_used()
    assert not recwarn.list
