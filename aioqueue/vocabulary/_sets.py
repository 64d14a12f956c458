"""Values with sets, as the same JSON in each process: Python's own order of a set of texts is another one in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson

from aioqueue.vocabulary._values import children

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["sets_in_order"]


def sets_in_order(payload: bytes, arguments: Mapping[str, Any], converted: Collection[type]) -> bytes:
    """Write stored arguments anew, with the parts of sets in one order; those without any set stay as they are.

    Arguments:
        payload: The arguments as stored: a JSON object.
        arguments: The same, read.
        converted: Types with converters of the user's: what these write isn't looked into.
    """
    if not any(_has_set(each, converted) for each in arguments.values()):
        return payload
    written: dict[str, Any] = orjson.loads(payload)
    return orjson.dumps({name: _in_order(each, arguments[name], converted) for name, each in written.items()})


def _has_set(value: object, converted: Collection[type]) -> bool:
    if type(value) in converted:
        return False
    return isinstance(value, (set, frozenset)) or any(_has_set(child, converted) for _, child in children(value))


def _in_order(written: Any, value: Any, converted: Collection[type]) -> Any:
    if type(value) in converted:
        return written
    if isinstance(written, list):
        items = cast("list[object]", written)
        if isinstance(value, (set, frozenset)):
            return sorted(items, key=orjson.dumps)
        parts = [child for _, child in children(value)]
        return [_in_order(*each, converted) for each in zip(items, parts, strict=True)] if len(items) == len(parts) else items
    if isinstance(written, dict):
        named = {str(name): child for name, child in children(value)}
        fields = cast("dict[str, object]", written)
        return {name: _in_order(each, named[name], converted) if name in named else each for name, each in fields.items()}
    return written
