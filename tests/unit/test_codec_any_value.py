"""Whatever value is made up for whatever annotation: it comes back exactly, or is refused."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioqueue.vocabulary._codec import CodecError, ValueCodec
from tests.unit.values import Colour, Level, Point, Word, round_trip

thorough = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

text = st.text(st.characters(codec=None), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@thorough
@given(json_values)
def test_json_values_come_back_exactly_or_are_refused(value: object) -> None:
    codec = ValueCodec(Any, {})
    try:
        stored = codec.encode(value, "value")
    except CodecError:
        return
    assert repr(codec.decode(stored, "value")) == repr(value)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.binary(max_size=4)
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Colour, *Level, *Word]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(text | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
annotations = st.sampled_from(
    [str, int, float, bool, bytes, Decimal, datetime, date, time, timedelta, UUID, Colour, Level, Word, Any, list[Any],
     dict[str, Any], dict[int, Any], tuple[Any, Any], int | None, int | float | None, list[Decimal], datetime | None]
)  # fmt: skip


@thorough
@given(annotations, anything)
def test_any_value_for_any_annotation_comes_back_exactly_or_is_refused(annotation: Any, value: Any) -> None:
    codec = ValueCodec(annotation, {})
    try:
        stored = codec.encode(value, "value")
    except CodecError:
        return
    read = codec.decode(stored, "value")
    if not isinstance(value, Decimal):  # NaN, which is stored as text, isn't equal to itself
        assert read == value
    assert type(read) is type(value) or (type(read), type(value)) == (float, int)


TYPED = [
    (st.decimals(allow_nan=False), Decimal),
    (st.datetimes().map(lambda each: each.replace(fold=0)), datetime),
    (st.dates(), date),
    (st.times().map(lambda each: each.replace(fold=0)), time),
    (st.timedeltas(), timedelta),
    (st.uuids(), UUID),
    (st.binary(), bytes),
    (st.floats(allow_nan=False, allow_infinity=False), float),
    (st.integers(-(2**63), 2**64 - 1), int),
    (st.text(), str),
    (st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.text()), dict[int, str]),
    (st.sets(st.integers(0, 9)), set[int]),
    (st.builds(Point, st.integers(-9, 9), st.floats(-1, 1)), Point),
]


@thorough
@given(st.data())
def test_ordinary_values_are_never_refused(data: st.DataObject) -> None:
    strategy, annotation = data.draw(st.sampled_from(TYPED))
    value = data.draw(strategy)
    assert round_trip(annotation, value) == value
