"""Values of classes derived from a stored one: what arrives as its base, and what is refused."""

from __future__ import annotations

import collections
import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asyncpg.pgproto.pgproto import UUID as DriversUUID  # noqa: N811 - it's a class
from pydantic import SecretStr
from sqlalchemy.sql.elements import quoted_name

from aioqueue import RegistrationError, Registry
from aioqueue.vocabulary._codec import CodecError, ValueCodec

ID = "0193f5a2-7c1e-7000-8000-2f0a1b2c3d4e"


class Word(enum.StrEnum):
    A = "a"


class Mixed(str, enum.Enum):  # noqa: UP042 - the older spelling is meant
    A = "a"


class Level(enum.IntEnum):
    LOW = 1


class Float(float):
    """As numpy.float64 is one."""


class Whole(int): ...


class Bytes(bytes): ...


class Moment(datetime):
    """As pendulum's are."""


class Clock(time): ...


class Day(date): ...


class Span(timedelta): ...


class Exact(Decimal): ...


class Shouting(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "LOUD"

    __hash__ = str.__hash__


ARRIVES: list[tuple[Any, object, object]] = [
    (uuid.UUID, DriversUUID(ID), uuid.UUID(ID)),
    (list[uuid.UUID], [DriversUUID(ID)], [uuid.UUID(ID)]),
    (str, quoted_name("orders", quote=True), "orders"),
    (str, Word.A, "a"),
    (str, Mixed.A, "a"),
    (Any, Word.A, "a"),
    (int, Level.LOW, 1),
    (Any, Level.LOW, 1),
    (str, Shouting("quiet"), "quiet"),
    (float, Float(1.5), 1.5),
    (int, Whole(3), 3),
    (float, Whole(3), 3.0),
    (bytes, Bytes(b"x"), b"x"),
    (datetime, Moment(2024, 1, 2, 3, tzinfo=UTC), datetime(2024, 1, 2, 3, tzinfo=UTC)),
    (time, Clock(1, 2), time(1, 2)),
    (date, Day(2024, 1, 2), date(2024, 1, 2)),
    (timedelta, Span(seconds=3), timedelta(seconds=3)),
    (Decimal, Exact("1.10"), Decimal("1.10")),
    (dict[str, int], collections.Counter("aab"), {"a": 2, "b": 1}),
    (dict[str, int], collections.defaultdict(int, a=1), {"a": 1}),
    (dict[str, int], collections.OrderedDict(a=1), {"a": 1}),
    (dict[str, int], {quoted_name("k", quote=None): 1}, {"k": 1}),
]


@pytest.mark.parametrize(("annotation", "value", "arrives"), ARRIVES, ids=lambda each: ascii(each)[:50].split(" at 0x")[0])
def test_a_value_equal_to_one_of_its_base_arrives_as_that(annotation: Any, value: object, arrives: object) -> None:
    codec = ValueCodec(annotation, {})
    read = codec.decode(codec.encode(value, "value"), "value")
    assert read == arrives
    assert type(read) in {type(arrives), float if annotation is float else type(arrives)}
    if isinstance(read, list):
        assert type(read[0]) is uuid.UUID


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True),
        (float, True),
        (bool, Whole(1)),
        (date, datetime(2024, 1, 2)),
        (Any, DriversUUID(ID)),
        (str, DriversUUID(ID)),
    ],
)
def test_what_would_arrive_as_something_else_is_refused(annotation: Any, value: object) -> None:
    with pytest.raises(CodecError):
        ValueCodec(annotation, {}).encode(value, "value")


def test_secrets_arent_stored_unasked() -> None:
    registry = Registry()

    def work(password: SecretStr) -> None: ...

    with pytest.raises(RegistrationError, match="SecretStr"):
        registry.job(work).check()
    with pytest.raises(CodecError):
        ValueCodec(Any, {}).encode(SecretStr("hunter2"), "value")
    with pytest.raises(CodecError):
        ValueCodec(str, {}).encode(SecretStr("hunter2"), "value")
