"""Values of many kinds, for the tests of the codec."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic

from aioqueue.vocabulary._codec import Converter, ValueCodec


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Order:
    id: UUID
    points: list[Point]
    when: datetime | None = None
    _private: int = 3
    notes: dict[str, object] = field(default_factory=dict)


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Renamed(msgspec.Struct, rename="camel", omit_defaults=True):
    first_name: str
    last_name: str = ""


@attrs.define
class Box:
    width: int
    inner: Pair


class Model(pydantic.BaseModel):
    id: int
    at: datetime
    tags: set[str] = set()


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: date
    amount: Decimal


class Aliased(pydantic.BaseModel):
    name: str = pydantic.Field(alias="theName")


@dataclass
class Holder:
    model: Model


class Money:
    """Has no equality of its own."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


UserId = NewType("UserId", int)
MONEY = {Money: Converter(lambda money: money.cents, lambda cents: Money(int(cents)))}
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
TOKYO = timezone(timedelta(hours=9))


def round_trip(annotation: Any, value: object, converters: Any = None) -> Any:
    codec = ValueCodec(annotation, converters or {})
    return codec.decode(codec.encode(value, "value"), "value")
