"""Options about uniqueness: keys made of arguments, chosen ids, how long others may put a job off; and graphs of such calls."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from aioqueue import (
    ArgumentsError,
    BlockerCycle,
    CallAlreadyEnqueued,
    ConfigurationError,
    ConflictingOptions,
    JobType,
    Limit,
    Registry,
    Unique,
)
from aioqueue.client._end import completion
from aioqueue.client._named import named_call
from aioqueue.definitions._call import Call
from aioqueue.definitions._graph import graph_of, rows_of

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")

registry = Registry("site.")
REPLACE = Unique(on_conflict="replace")
RAISE = Unique(on_conflict="raise")
NOT_ONE: Any = ("a default", "of another type")


@dataclass(frozen=True)
class Place:
    city: str
    zip_codes: dict[str, int]


@registry.job
async def report(tenant_id: int, place: Place | None = None, *, day: str = "today", note: str = "") -> str:
    return f"{tenant_id}{place}{day}{note}"


@registry.job
def unset(a: int = NOT_ONE) -> None: ...


@registry.job
async def goes_on(number: int) -> Call[str]:
    return report(number)


# -- keys of arguments --------------------------------------------------------------------------------------------------


def test_a_key_is_made_of_arguments_by_name_sorted_with_their_defaults() -> None:
    call = report(7, note="no matter").options(unique=Unique(by=("tenant_id", "day")))
    assert call.key == '{"day":"today","tenant_id":7}'
    assert report(day="today", tenant_id=7).options(unique=Unique(by=("day", "tenant_id"))).key == call.key
    assert report(7, day="tomorrow").options(unique=Unique(by=("day", "tenant_id"))).key != call.key
    job = call.to_new_job()
    assert (job.key, job.unique) == (call.key, Unique(by=("tenant_id", "day")))


def test_what_is_within_an_argument_is_sorted_too() -> None:
    one, two = (report(1, Place("Köln", dict(codes))).options(unique=Unique(by=("place",))) for codes in (
        [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    ))  # fmt: skip
    assert one.payload != two.payload
    assert one.key == two.key == '{"place":{"city":"Köln","zip_codes":{"a":1,"b":2}}}'
    assert report(1).options(unique=Unique(by=("place",))).key == '{"place":null}'


def test_a_long_key_is_a_hash() -> None:
    note = "x" * 1013
    assert report(1, note=note).options(unique=Unique(by=("note",))).key == f'{{"note":"{note}"}}'
    digest = hashlib.sha256(f'{{"note":"{note}x"}}'.encode()).hexdigest()
    assert report(1, note=f"{note}x").options(unique=Unique(by=("note",))).key == f"sha256:{digest}"


def test_the_key_of_arguments_goes_with_what_made_it() -> None:
    call = report(7).options(unique=Unique(by=("tenant_id",)))
    assert call.options(priority=1).key == call.copy().key == copy.deepcopy(call).key == '{"tenant_id":7}'
    assert "key='{\"tenant_id\":7}', unique=Unique(by=('tenant_id',))" in repr(call)
    assert call.options(unique=Unique(by=("day",))).key == '{"day":"today"}'
    assert call.options(unique=None).key is None
    assert call.options(unique=True, key="own").key == "own"
    assert call == report(7).options(unique=Unique(by=("tenant_id",)))
    assert report(7).key is None
    assert report(7).options(key="k").key == "k"


@dataclass
class Labelled:
    labels: set[str]


class Grouped(msgspec.Struct):
    parts: list[frozenset[int]]


NO_ORDER: dict[str, object] = {
    "plain": {"a", "b"},
    "frozen": frozenset({1, 2}),
    "nested": {"x": [{"a", "b"}]},
    "within": Labelled({"a", "b"}),
    "grouped": Grouped([frozenset({1, 2})]),
    "many": (Labelled(set()),),
}


@registry.job
def sorted_out(
    number: int,
    plain: set[str] | None = None,
    frozen: frozenset[int] | None = None,
    nested: dict[str, list[set[str]]] | None = None,
    within: Labelled | None = None,
    grouped: Grouped | None = None,
    many: tuple[Labelled, ...] = (),
    by_default: frozenset[str] = frozenset({"a", "b"}),
) -> None: ...


@pytest.mark.parametrize("name", NO_ORDER)
def test_a_set_makes_no_key(name: str) -> None:
    """Each process would write the same one in another order, and have another key."""
    call: Call[None] = sorted_out(1, **{name: NO_ORDER[name]})
    with pytest.raises(ArgumentsError, match=rf"^\S*sorted_out: '{name}' has a set in it, .* can't be in the key") as caught:
        call.options(unique=Unique(by=("number", name)))
    assert caught.value.path == name
    assert call.options(unique=Unique(by=("number",))).key == '{"number":1}'
    with pytest.raises(ArgumentsError, match=f"'{name}' has a set in it, .*limit= of the type"):
        limited_by(name)(1, **{name: NO_ORDER[name]})


def limited_by(name: str) -> JobType[..., None, Any]:
    made: JobType[..., None, Any] = Registry().job(limit=Limit(1, by=name))(sorted_out.fn)
    return made


@pytest.mark.filterwarnings("error::aioqueue.CallNeverEnqueued")
def test_a_call_whose_key_is_refused_was_used() -> None:
    with pytest.raises(ConflictingOptions):
        report(1).options(unique=Unique(by=("tenant",)))


def test_a_set_by_default_makes_none_either() -> None:
    with pytest.raises(ArgumentsError, match="'by_default' has a set in it"):
        sorted_out(1).options(unique=Unique(by=("by_default",)))
    assert sorted_out(1).options(unique=Unique(by=("many", "plain"))).key == '{"many":[],"plain":null}'


def test_a_key_by_name_is_made_of_what_is_given() -> None:
    call = named_call("site.report", {"tenant_id": 7}, {"unique": Unique(by=("tenant_id",))})
    assert call.key == report(7).options(unique=Unique(by=("tenant_id",))).key
    with pytest.raises(ConflictingOptions, match=r"was given no argument 'day'.*key="):
        named_call("site.report", {"tenant_id": 7}, {"unique": Unique(by=("day",))})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: report(1).options(key="k", unique=Unique(by=("day",))), "leave out key="),
        (lambda: report(1).options(unique=Unique(by=("day",))).options(key="k"), "leave out key="),
        (lambda: report(1).options(unique=Unique(by=("tenant",))), r"no parameter 'tenant' .*it takes tenant_id, place"),
        (lambda: report(1, day=report(2).output).options(unique=Unique(by=("day",))), "'day' can't be in the key"),
        (lambda: unset().options(unique=Unique(by=("a",))), "the default of 'a' can't be in a key"),
        (lambda: report(1).options(unique=Unique()), r"needs a key.*by="),
    ],
)
def test_keys_that_cannot_be_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConflictingOptions, match=says):
        make()


def test_an_output_elsewhere_does_not_matter() -> None:
    assert report(1, day=report(2).output).options(unique=Unique(by=("tenant_id",))).key == '{"tenant_id":1}'


# -- the longest delay --------------------------------------------------------------------------------------------------


def test_the_longest_delay_reaches_the_row() -> None:
    call = report(1).options(key="k", unique=REPLACE, delay=5, max_delay=timedelta(minutes=1))
    assert (call.to_new_job().delay, call.to_new_job().max_delay) == (5, 60)
    assert call.options(max_delay=None).to_new_job().max_delay is None
    assert call.options(max_delay=5).to_new_job().max_delay == 5
    assert report(1).options(key="k", unique=Unique(until="started", on_conflict="replace"), delay=5, max_delay=9) is not None


def max_delay(**options: Any) -> Callable[[], object]:
    given: dict[str, Any] = {"key": "k", "unique": REPLACE, "delay": 5, "max_delay": 60, **options}
    return lambda: report(1).options(**given)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (max_delay(unique=True), 'needs unique=Unique\\(on_conflict="replace"\\)'),
        (max_delay(unique=RAISE), "needs unique="),
        (max_delay(unique=None), "needs unique="),
        (max_delay(delay=None), "needs delay="),
        (max_delay(delay=None, at=datetime(2030, 1, 1, tzinfo=UTC)), "not at="),
        (max_delay(max_delay=4), r"max_delay \(4 s\) is less than the delay \(5 s\)"),
        (max_delay(after=[report(2)]), "one that waits for others"),
        (lambda: report(1, day=report(2).output).options(key="k", unique=REPLACE, delay=5, max_delay=6), "waits for others"),
    ],
)
def test_a_longest_delay_that_makes_no_sense(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConflictingOptions, match=says):
        make()


# -- chosen ids ---------------------------------------------------------------------------------------------------------


def test_a_chosen_id_gives_the_copy_a_state_of_its_own() -> None:
    chosen = uuid4()
    call = report(1)
    one = call.options(id=chosen)
    two = call.options(id=str(chosen), priority=1)
    assert one.id == two.id == chosen != call.id
    for each in (call, one, two):
        each.mark_enqueueing()
    later = one.options(priority=3)
    assert later.id == chosen
    with pytest.raises(CallAlreadyEnqueued):
        later.mark_enqueueing()
    assert (one.to_new_job().chosen_id, later.to_new_job().chosen_id, call.to_new_job().chosen_id) == (True, True, False)


def test_a_copy_has_an_id_of_its_own() -> None:
    call = report(1).options(id=uuid4())
    for made in (call.copy(), copy.copy(call), copy.deepcopy(call)):
        assert made.id != call.id
        assert not made.to_new_job().chosen_id
        assert made == call


@pytest.mark.parametrize("value", [None, "", "x", 5])
def test_what_is_no_id(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="a UUID or its text"):
        report(1).options(id=value)


# -- graphs -------------------------------------------------------------------------------------------------------------


def test_what_was_met_and_not_given_is_implied() -> None:
    deep = report(1)
    inner = report(2, day=deep.output)
    given, parent = report(3), report(4)
    parent = parent.options(key="k", unique=True, after=[inner, given])
    graph = graph_of([parent, given])
    assert [(row.id, row.implied) for row in rows_of(graph, [parent, given])] == [
        (deep.id, True), (inner.id, True), (given.id, False), (parent.id, False)
    ]  # fmt: skip
    plain = [report(1), report(2)]
    assert not any(row.implied for row in rows_of(graph_of(plain), plain))


def test_two_calls_with_one_chosen_id_in_one_graph() -> None:
    chosen = uuid4()
    for swapped in (False, True):
        one, two = report(1).options(id=chosen), report(2).options(id=chosen)
        waits = report(3, day=two.output)
        calls = [waits, two, one] if swapped else [one, two, waits]
        graph = graph_of(calls)
        assert {id(each) for each in graph} == {id(each) for each in calls}
        assert graph.index(two) < graph.index(waits)
        for call in graph:
            call.mark_enqueueing()
        again = report(9, day=two.output)
        assert graph_of([report(4).options(id=chosen), again])[-1] is again  # two is stored, and another has its id


def test_the_same_call_is_the_same_call_whatever_its_id() -> None:
    call = report(1).options(id=uuid4())
    with pytest.raises(CallAlreadyEnqueued, match="is given twice"):
        graph_of([call, call.options(priority=1), report(2, day=call.output)])
    first = report(1)
    second = report(2, day=first.output)
    with pytest.raises(BlockerCycle):
        graph_of([report(3, day=first.options(after=[second]).output)])


# -- what nobody would hear of ------------------------------------------------------------------------------------------


def test_completing_refuses_what_would_raise_when_nobody_is_told() -> None:
    child = report(1).options(key="k", unique=RAISE)
    for refused in (report(2, day=child.output), report(2, day=report(3, day=child.output).output)):
        with pytest.raises(ConflictingOptions, match=r'has on_conflict="raise".*enqueue it before'):
            completion(goes_on, refused)
    held = child.options(unique=True)
    assert completion(goes_on, report(2, day=held.output)).calls[0] is held


# -- values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"until": "claimed"}, 'until must be "started" or "finished"'),
        ({"on_conflict": "ignore"}, 'on_conflict must be "return", "replace" or "raise"'),
        ({"window": 0}, "window must be positive"),
        ({"window": timedelta(seconds=-1)}, "window must be positive"),
        ({"window": float("nan")}, "window must be positive"),
        ({"window": "5"}, "window must be seconds or a timedelta"),
        ({"window": datetime(2030, 1, 1)}, "window must be seconds or a timedelta"),
        ({"window": True}, "window must be seconds or a timedelta"),
        ({"until": "started", "window": 5}, 'a window counts what has finished; until="started"'),
        ({"by": "tenant_id"}, "by takes several names"),
        ({"by": (1,)}, "by takes several names"),
        ({"by": None}, "by takes several names"),
        ({"by": ("day", "tenant_id", "day")}, "by names an argument twice"),
    ],
    ids=str,
)
def test_values_of_unique_that_make_no_sense_are_refused_where_it_is_made(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Unique(**given)


def test_unique_shows_what_was_given() -> None:
    assert repr(Unique()) == "Unique()"
    assert repr(Unique(until="started", on_conflict="replace")) == "Unique(until='started', on_conflict='replace')"
    assert repr(Unique(window=timedelta(minutes=1), by=("a",))) == "Unique(window=60.0, by=('a',))"
