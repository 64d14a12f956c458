"""Every value comes back exactly, or is refused at the call with its path."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from aioqueue.errors import RegistrationError
from aioqueue.vocabulary._codec import CodecError, Converter, ValueCodec
from tests.unit.values import (
    ID,
    MONEY,
    TOKYO,
    Aliased,
    Box,
    Cat,
    Colour,
    Dog,
    Holder,
    Level,
    Model,
    Money,
    Options,
    Order,
    Pair,
    Point,
    Renamed,
    Strict,
    UserId,
    Word,
    round_trip,
)

EXACT: list[tuple[Any, object]] = [
    (str, "a\x00b"),
    (str, "a\\u0000b"),
    (str, "\u2028 \U0001f600 \ufffd \ud7ff"),
    (Any, {"k\x00": ["a\x00b", "\\u0000", None, True, 1.5, -0.0]}),
    (object, {"a": [1, 2.0, "x"]}),
    (dict[str, object], {"a": {"b": [1]}}),
    (list[Any], [1, "a", None]),
    (int, 2**63),
    (int, 2**64 - 1),
    (int, -(2**63)),
    (Any, 2**64 - 1),
    (float, 5e-324),
    (float, -0.0),
    (float, sys.float_info.max),
    (bool, True),
    (None, None),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"ab")),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+400")),
    (UUID, ID),
    (date, date(1, 1, 1)),
    (time, time(23, 59, 59, 999999)),
    (time, time(0, 0, 0, 10_000)),
    (time, time(1, 2, 3, tzinfo=TOKYO)),
    (datetime, datetime(2024, 2, 29, 12, 0, 0, 1)),
    (datetime, datetime(2024, 2, 29, 12, 0, tzinfo=UTC)),
    (datetime, datetime(2024, 2, 29, 12, 0, tzinfo=TOKYO)),
    (timedelta, timedelta(days=400, microseconds=1)),
    (timedelta, -timedelta(seconds=1.5)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Word, Word.A),
    (Literal["a", "b"] | None, "b"),
    (Literal[1, 2], 2),
    (list[int], []),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (set[UUID], {ID}),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[UUID, list[date]], {ID: [date(2024, 1, 1)]}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[date, int], {date(2024, 1, 1): 1}),
    (dict[str, str], {"": "", "a\x00": "x"}),
    (Sequence[int], [1]),
    (Mapping[str, int], {"a": 1}),
    (int | None, None),
    (int | str, "1"),
    (int | float, 1),
    (int | float, 1.0),
    (datetime | None, datetime(2024, 1, 1)),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (UserId, 3),
    (Point, Point(1, 2.5)),
    (Order, Order(ID, [Point(1)], datetime(2024, 1, 1, tzinfo=UTC), 5, {"a": [1]})),
    (Pair, Pair(1)),
    (list[Pair], [Pair(1, "x")]),
    (Options, {"depth": 1}),
    (Options, {"label": "a", "depth": 1}),
    (Cat | Dog, Dog("rex")),
    (Renamed, Renamed("a", "b")),
    (Renamed, Renamed("a")),
    (Box, Box(1, Pair(2))),
    (Model, Model(id=1, at=datetime(2024, 1, 1, tzinfo=UTC), tags={"a"})),
    (list[Model], [Model(id=1, at=datetime(2024, 1, 1))]),
    (Model | None, None),
    (Strict, Strict(day=date(2024, 1, 1), amount=Decimal("1.10"))),
    (Aliased, Aliased(theName="a")),
    (Holder, Holder(Model(id=1, at=datetime(2024, 1, 1)))),
    (Model | int, 3),
    (Model | Strict | None, Strict(day=date(2024, 1, 1), amount=Decimal(1))),
]


@pytest.mark.parametrize(("annotation", "value"), EXACT, ids=repr)
def test_comes_back_exactly(annotation: Any, value: object) -> None:
    read = round_trip(annotation, value)
    assert read == value
    assert type(read) is type(value)
    assert repr(read) == repr(value) or isinstance(value, (set, frozenset, Model))


NAN = float("nan")

REFUSED: list[tuple[Any, object, str, str]] = [
    (int, 2**64, "value", "65 bits"),
    (int, -(2**63) - 1, "value", "64 bits"),
    (Any, {"a": [1, 2**200]}, "value.a[1]", "201 bits"),
    (list[int], [1, -(2**70)], "value[1]", "71 bits"),
    (float, NAN, "value", "nan"),
    (float | None, NAN, "value", "nan"),
    (Any, [{"x": math.inf}], "value[0].x", "inf"),
    (Point, Point(1, -math.inf), "value.y", "-inf"),
    (Model, Model.model_construct(id=1, at=NAN), "value.at", "nan"),
    (float, 2**53 + 1, "value", "int would come back as float"),
    (str, "\ud800", "value", "lone surrogate"),
    (Any, ["a\x00b", {"k\x00": ["\ud800"]}], "value[1]['k\\x00'][0]", "lone surrogate"),
    (Any, {"\udfff": 1}, "value", "lone surrogate"),
    (Any, {1: "a"}, "value[1]", "annotate the keys"),
    (Any, {1: "a", "1": "b"}, "value[1]", "annotate the keys"),
    (dict[str, int], {1: 2}, "value[1]", "annotate the keys"),
    (dict[int, str], {1: "a", "1": "b"}, "value[1]", "come back as 'b'"),
    (Any, (1, 2), "value", "tuple would come back as list"),
    (Any, {"a": (1,)}, "value.a", "tuple would come back as list"),
    (Any, {1}, "value", "set would come back as list"),
    (Any, Decimal("1.1"), "value", "Decimal would come back as str"),
    (Any, datetime(2024, 1, 1), "value", "datetime would come back as str"),
    (Any, ID, "value", "UUID would come back as str"),
    (Any, b"ab", "value", "bytes would come back as str"),
    (Any, Colour.RED, "value", "Colour would come back as str"),
    (Any, Point(1), "value", "Point would come back as dict"),
    (Any, Money(3), "value", "Money"),
    (Any, 1 + 2j, "value", "complex"),
    (Any, object(), "value", "object"),
    (Any, {(1, 2): 3}, "value", "JSON"),
    (int, True, "value", "bool"),
    (list[int], [True], "value[0]", "bool"),
    (bool, 1, "value", "int"),
    (int, 1.0, "value", "float"),
    (int, "1", "value", "str"),
    (str, b"a", "value", "bytes"),
    (Sequence[int], (1,), "value", "tuple would come back as list"),
    (Literal["a"], "b", "value", "Invalid"),
    (Order, Order(ID, [Point("1")]), "value.points[0].x", "int"),
    (Options, {"depth": 1, "extra": 2}, "value.extra", "lost"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "value", ">= 0"),
    (datetime, datetime(2024, 1, 1, fold=1), "value", "come back as"),
    (datetime, datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")), "value", ""),
    (Level, 1, "value", "int would come back as Level"),
    (Model, {"id": 1, "at": "2024-01-01T00:00:00"}, "value", "dict would come back as Model"),
]


@pytest.mark.parametrize(
    ("annotation", "value", "path", "reason"), REFUSED, ids=lambda each: ascii(each)[:60].split(" at 0x")[0]
)
def test_is_refused_with_its_path(annotation: Any, value: object, path: str, reason: str) -> None:
    with pytest.raises(CodecError) as raised:
        ValueCodec(annotation, {}).encode(value, "value")
    assert raised.value.path == path
    assert reason in raised.value.reason


def test_an_int_for_a_float_arrives_as_the_equal_float() -> None:
    assert repr(round_trip(float, 3)) == "3.0"


def test_a_zone_is_kept_as_its_offset() -> None:
    moment = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))
    read = round_trip(datetime, moment)
    assert read == moment
    assert read.utcoffset() == timedelta(hours=2)


def test_values_that_contain_themselves_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(CodecError):
        ValueCodec(Any, {}).encode(endless, "value")
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CodecError, match="nested too deeply"):
        ValueCodec(Any, {}).encode(deep, "value")


def test_the_copy_is_deep() -> None:
    sent = [Point(1)]
    codec = ValueCodec(list[Point], {})
    stored = codec.encode(sent, "value")
    sent[0].x = 5
    assert codec.decode(stored, "value") == [Point(1)]


def test_converters_reach_into_containers() -> None:
    read = round_trip(dict[str, list[Money | None]], {"a": [Money(3), None]}, MONEY)
    assert read["a"][0].cents == 3
    assert read["a"][1] is None


def test_a_converter_that_loses_something_is_noticed() -> None:
    lossy = {Money: Converter(lambda money: money.cents, lambda _: Money(0))}
    with pytest.raises(CodecError) as raised:
        ValueCodec(list[Money], lossy).encode([Money(3)], "value")
    assert raised.value.path == "value[0]"


def test_a_converter_that_raises_is_an_error_about_the_value() -> None:
    def broken(_: object) -> Any:
        raise KeyError("oops")

    with pytest.raises(CodecError, match="oops"):
        ValueCodec(Money, {Money: Converter(broken, Money)}).encode(Money(1), "value")
    with pytest.raises(CodecError, match="oops"):
        ValueCodec(Money, {Money: Converter(lambda money: money.cents, broken)}).decode(b"1", "value")


@pytest.mark.parametrize("annotation", [Money, list[Money], Money | None, complex, type[int], range, Exception, msgspec.Raw])
def test_annotations_without_a_converter_are_refused(annotation: Any) -> None:
    with pytest.raises(RegistrationError, match=r"registry\.converter"):
        ValueCodec(annotation, {})


@pytest.mark.parametrize("annotation", [UUID | str, list[int] | set[int], Point | Box, datetime | str, Decimal | str])
def test_unions_that_json_cannot_tell_apart_are_refused(annotation: Any) -> None:
    with pytest.raises(RegistrationError, match="can't be read back"):
        ValueCodec(annotation, {})


def test_stored_values_that_do_not_fit_have_a_path() -> None:
    codec = ValueCodec(dict[str, list[Point]], {})
    with pytest.raises(CodecError) as raised:
        codec.decode(b'{"a":[{"x":"1"}]}', "output")
    assert raised.value.path.startswith("output[")
    with pytest.raises(CodecError):
        codec.decode(b"{", "output")
