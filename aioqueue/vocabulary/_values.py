"""Looking into values: what they contain, whether one is exactly another, and why one can't be stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

__all__ = ["children", "difference", "exact", "is_model", "not_storable", "step"]

_PLAIN = (str, int, bool, type(None))
_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**64 - 1

# A value of a class derived from one of these arrives as its base if it's equal to that: a driver's UUID, a numpy.float64,
# a member of an IntEnum where an int is declared. Who declares the base, or nothing, gets the base.
_EXACT: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes(memoryview(value)),
    UUID: lambda value: UUID(int=value.int),
    Decimal: Decimal,
    datetime: lambda value: datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
        fold=value.fold,
    ),
    date: lambda value: date(value.year, value.month, value.day),
    time: lambda value: time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold),
    timedelta: lambda value: timedelta(value.days, value.seconds, value.microseconds),
}
_BASES = frozenset({*_EXACT, dict, list, set, frozenset})


def is_model(value: object) -> bool:
    """Whether it is a pydantic model, or one's class. Pydantic isn't imported for that."""
    return hasattr(value, "__pydantic_validator__") and hasattr(value, "model_validate_json")


def step(path: str, name: object) -> str:
    """The path of a part: an attribute or key by name, an item by number."""
    if isinstance(name, str) and name.isidentifier():
        return f"{path}.{name}"
    return f"{path}[{name!r}]"


def exact(value: object) -> object:
    """A value of a derived class as one of its base, such as a driver's own UUID; any other value as it is."""
    for base, make in _EXACT.items():
        if isinstance(value, base):
            return value if type(value) is base else make(value)
    return value


def _arrives_as(kind: type, came: type) -> bool:
    """Whether a value of a class may arrive as one of another, if they're equal."""
    return kind is came or (came in _BASES and issubclass(kind, came) and kind is not bool)


def children(value: Any) -> Iterator[tuple[object, object]]:
    """The parts of a value that is stored as an object or array, with their names or positions."""
    whole: object = value  # not narrowed by what follows
    if isinstance(value, Mapping):
        yield from cast("Mapping[object, object]", value).items()
    elif not hasattr(value, "_fields") and isinstance(value, (list, tuple)):
        yield from enumerate(cast("list[object]", value))
    elif isinstance(value, (set, frozenset)):
        yield from ((each, each) for each in cast("set[object]", value))
    else:
        yield from ((name, getattr(whole, name, None)) for name in _field_names(whole))


def _field_names(value: object) -> tuple[str, ...]:
    kind: Any = type(value)
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(each.name for each in kind.__attrs_attrs__)
    if isinstance(value, tuple):
        return tuple(getattr(kind, "_fields", ()))
    if is_model(value):
        return (*kind.model_fields, *(getattr(value, "__pydantic_extra__", None) or ()))
    return ()


def not_storable(value: object) -> str | None:
    """Why no annotation could make this value storable; None if one might."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} can't be stored: JSON has no such number. Pass None or a text instead"
    if isinstance(value, int) and not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
        return f"an integer of {value.bit_length()} bits can't be stored exactly (64 at most). Pass it as text"
    if isinstance(value, str):
        return _surrogate(value)
    if isinstance(value, Mapping):
        for key in cast("Mapping[object, object]", value):
            if (reason := not_storable(key)) is not None:
                return f"a key: {reason}"
    return None


def _surrogate(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return (
            f"the text has a lone surrogate at position {error.start}, which isn't a character. "
            "Clean it, such as with text.encode(errors='replace').decode(), or pass bytes"
        )
    return None


def difference(
    sent: Any, read: Any, path: str, converted: Callable[[type], bool], write: Callable[[object], bytes]
) -> tuple[str, str] | None:
    """Find where a value that was stored and read back differs from the one that was sent.

    Arguments:
        sent: The original.
        read: What came back.
        path: Of the value.
        converted: Whether a type has a converter of the user's: such values are compared as they're stored.
        write: Stores a value.

    Returns:
        The path and a reason, or None if they're the same.
    """
    kind, came = _class(sent), _class(read)
    # An int is a valid argument for a float, in both type checkers; it arrives as the equal float.
    if came is float and issubclass(kind, int) and kind is not bool and sent == read:
        return None
    if not _arrives_as(kind, came):
        return path, (
            f"a {kind.__qualname__} would come back as {came.__qualname__}: annotate it so that it can be told, or pass "
            f"a {came.__qualname__}"
        )
    if came in _PLAIN:
        return None if cast("Any", came).__eq__(sent, read) else (path, f"{sent!r:.100} would come back as {read!r:.100}")
    if converted(kind):
        same = write(sent) == write(read)
    elif isinstance(sent, (set, frozenset)):
        same = _with_classes(cast("set[object]", sent)) == _with_classes(cast("set[object]", read))
    elif isinstance(sent, (list, tuple, Mapping)) or _field_names(sent):
        return _parts_differ(sent, read, path, converted, write)
    else:
        same = _same_leaf(sent, read)
    return None if same else (path, f"{sent!r:.100} would come back as {read!r:.100}")


def _parts_differ(
    sent: Any, read: Any, path: str, converted: Callable[[type], bool], write: Callable[[object], bytes]
) -> tuple[str, str] | None:
    ours, theirs = list(children(sent)), list(children(read))
    for (name, part), (other_name, other) in zip(ours, theirs, strict=False):
        where = step(path, name)
        if not _arrives_as(type(name), type(other_name)) or name != other_name:
            return where, f"the key {name!r:.100} would come back as {other_name!r:.100}: annotate the keys' type"
        if (found := difference(part, other, where, converted, write)) is not None:
            return found
    if len(ours) != len(theirs):
        names = [name for name, _ in (ours if len(ours) > len(theirs) else theirs)]
        return step(path, names[min(len(ours), len(theirs))]), "it would be lost or added on the way"
    return None


def _class(value: object) -> type:
    return type(value)


def _with_classes(values: set[object]) -> set[tuple[type, object]]:
    return {(type(each), each) for each in values}


def _same_leaf(sent: object, read: object) -> bool:
    if isinstance(sent, float):
        return isinstance(read, float) and sent == read and math.copysign(1, sent) == math.copysign(1, read)
    if isinstance(sent, Decimal):
        return str(sent) == str(read)
    if isinstance(sent, (datetime, time)):
        assert isinstance(read, (datetime, time))
        if sent.utcoffset() is None:
            return sent == read and sent.fold == read.fold
        return sent == read and sent.utcoffset() == read.utcoffset()
    return bool(type(read).__eq__(sent, read))
