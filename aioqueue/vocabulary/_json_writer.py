"""The writing half of the codec: orjson writes, and what it doesn't know is made into something that it does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import msgspec
import orjson

from aioqueue.vocabulary._placeholders import Placeholder
from aioqueue.vocabulary._values import exact, is_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Converter", "JsonWriter", "MarkingWriter"]

# Subclasses and dataclasses go to `default`, since orjson would write them as something else (a dataclass without its
# underscored fields), and what isn't found out here is found out by the codec's comparison.
# Times too: orjson 3.13 writes 10 to 99 thousand microseconds with a digit too few.
_OPTIONS = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


@dataclass(frozen=True, slots=True)
class Converter:
    """How values of one type become JSON values and come back."""

    encode: Callable[[Any], object]
    decode: Callable[[Any], Any]


class JsonWriter:
    """Writes values as JSON, whatever their annotation is.

    Arguments:
        converters: For types that aren't known otherwise.
    """

    def __init__(self, converters: Mapping[type, Converter]) -> None:
        self.converters = converters

    def write(self, value: object) -> bytes:
        """Write a value. Raises whatever its own code raises, or a TypeError."""
        try:
            return orjson.dumps(value, self.default, _OPTIONS)
        except TypeError:
            # Keys that aren't strings are rare and cost time, so they're tried only then.
            return orjson.dumps(value, self.default, _OPTIONS | orjson.OPT_NON_STR_KEYS)

    def default(self, value: object) -> object:
        """Make something that orjson knows of what it doesn't."""
        if (converter := self.converters.get(type(value))) is not None:
            return converter.encode(value)
        if is_model(value):
            return self._dump_model(cast("Any", value))
        if isinstance(value, tuple):
            return list(cast("tuple[object, ...]", value))
        if (base := exact(value)) is not value:
            return base
        return msgspec.to_builtins(value, enc_hook=self._to_builtins, str_keys=True)

    def _dump_model(self, model: Any) -> object:
        return model.model_dump(mode="json", by_alias=True, round_trip=True)

    def _to_builtins(self, value: object) -> object:
        if type(value) in self.converters or is_model(value):
            return self.default(value)
        if type(value) is Placeholder:
            raise TypeError(f"{value!r} can only be passed on as an argument of a call")
        hint = getattr(type(value), "not_storable_hint", "")
        raise TypeError(f"{type(value).__qualname__} isn't a type that can be stored{hint}")


class MarkingWriter(JsonWriter):
    """Writes one value that has placeholders within: null for each; and finds where these are, whatever encodes what is around.

    Each is written as a text that can't be anywhere else, looked for in the JSON, and replaced.
    """

    def __init__(self, converters: Mapping[type, Converter]) -> None:
        super().__init__(converters)
        self._mark = f"{uuid4().hex}-"
        self._written: dict[str, Placeholder] = {}

    def write_marked(self, value: object) -> tuple[bytes, list[tuple[Placeholder, tuple[str | int, ...]]]]:
        """Write it.

        Returns:
            The JSON, and the placeholders with the ways to them. There may be none.

        Raises:
            TypeError: A placeholder is where none can be filled in. And whatever the value's own code raises.
        """
        written = self.write(value)
        if not self._written:
            return written, []
        placed = [(self._written[mark], path) for mark, path in _texts(orjson.loads(written)) if mark in self._written]
        if len(placed) < len(self._written):
            raise TypeError("an output that isn't there yet can't be a key, or a part of a text")
        return re.sub(rb'"%s\d+"' % self._mark.encode(), b"null", written), placed

    def default(self, value: object) -> object:
        """As of every writer; also of placeholders."""
        return self._marked(value) if type(value) is Placeholder else super().default(value)

    def _to_builtins(self, value: object) -> object:
        return self._marked(value) if type(value) is Placeholder else super()._to_builtins(value)

    def _dump_model(self, model: Any) -> object:
        # As `model_dump`, which takes a fallback only since pydantic 2.11.
        dump = model.__pydantic_serializer__.to_python
        return dump(model, mode="json", by_alias=True, round_trip=True, warnings=False, fallback=self._to_builtins)

    def _marked(self, placeholder: Placeholder) -> str:
        mark = f"{self._mark}{len(self._written)}"
        self._written[mark] = placeholder
        return mark


def _texts(root: object) -> list[tuple[str, tuple[str | int, ...]]]:
    """All texts in JSON values, with the ways to them, in order."""
    found: list[tuple[str, tuple[str | int, ...]]] = []
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(root, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            found.append((value, path))
        elif isinstance(value, dict):
            parts = cast("dict[str, object]", value).items()
            waiting.extend((part, (*path, name)) for name, part in reversed(list(parts)))
        elif isinstance(value, list):
            items = list(enumerate(cast("list[object]", value)))
            waiting.extend((item, (*path, number)) for number, item in reversed(items))
    return found
