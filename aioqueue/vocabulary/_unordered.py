"""Sets within values: written as JSON they have an order, and each process another one."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["has_set"]


def has_set(value: object) -> bool:
    """Whether a value is a set or a frozenset, or has one within: in lists, tuples, dicts, dataclasses, attrs classes, msgspec
    structs and pydantic models.

    Arguments:
        value: Such as an argument.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (str, bytes, int, float)) or each is None:
            continue
        if isinstance(each, AbstractSet):
            return True
        waiting.extend(_parts(each))
    return False


def _parts(value: Any) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, (list, tuple)):
        return cast("Iterable[object]", value)
    if isinstance(value, type):
        return ()
    if is_dataclass(value):
        names: Iterable[str] = [each.name for each in fields(value)]
    elif hasattr(value, "__struct_fields__"):
        names = value.__struct_fields__
    elif hasattr(value, "__attrs_attrs__"):
        names = [each.name for each in value.__attrs_attrs__]
    else:
        names = list(getattr(value, "__pydantic_fields__", ()))
    return [getattr(value, name, None) for name in names]
