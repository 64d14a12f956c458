"""Values to JSON and back: exactly, or not at all. orjson encodes, msgspec decodes straight into the annotated types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec
import orjson
from msgspec import inspect

from aioqueue.errors import ArgumentsError, RegistrationError
from aioqueue.vocabulary._json_writer import Converter, JsonWriter, MarkingWriter
from aioqueue.vocabulary._values import children, difference, is_model, not_storable, step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioqueue.vocabulary._placeholders import Placeholder

__all__ = ["LARGEST_VALUE_BYTES", "ArgumentsCodec", "CodecError", "Converter", "Placed", "ValueCodec", "check_size"]

_AT = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*)`$", re.DOTALL)
_MOST_LEVELS = 300

Placed = tuple["Placeholder", tuple["str | int", ...]]
"""A placeholder, and the way to it through the arguments: names of objects, numbers of arrays."""

LARGEST_VALUE_BYTES = 64 * 1024 * 1024
"""Bytes of JSON that the arguments, the output or the metadata of one job may have. A row is written, sent and read as a whole,
and held in memory several times over; PostgreSQL's own limit is 1 GiB for a value and for a message, SQLite's a billion bytes.
"""


class CodecError(ValueError):
    """A value that can't be stored exactly, or stored JSON that isn't of the declared type.

    Arguments:
        reason: What is wrong, without the path.
        path: Where, such as `order.items[2].price`.
    """

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


def check_size(written: bytes, path: str) -> None:
    """Refuse JSON that is too large for a job's row.

    Raises:
        CodecError: It has more than `LARGEST_VALUE_BYTES` bytes.
    """
    if len(written) > LARGEST_VALUE_BYTES:
        has, most = len(written) / 1024**2, LARGEST_VALUE_BYTES / 1024**2
        raise CodecError(
            f"{has:,.1f} MiB of JSON are more than the {most:g} MiB that a job can have: keep large data "
            "where it belongs (a file, a bucket, a table of yours), and pass its name instead",
            path,
        )


class ValueCodec:
    """Writes and reads values of one annotated type.

    Arguments:
        annotation: The type, resolved; `Any` for JSON values as they are.
        converters: For types that aren't known otherwise.

    Raises:
        RegistrationError: The annotation, or one within it, can't be converted; the message has the way out.
    """

    def __init__(self, annotation: Any, converters: Mapping[type, Converter]) -> None:
        self._converters = converters
        self.annotation = annotation
        self._trivial = annotation if annotation in (str, int, bool) else None
        self._write = JsonWriter(converters).write
        self._read = self._reader()

    def _reader(self) -> Callable[[bytes], Any]:
        try:
            decoder = msgspec.json.Decoder(self.annotation, dec_hook=self._from_json)
            unknown = _unknown_types(inspect.type_info(self.annotation), self._converters)
        except (TypeError, ValueError, NameError) as error:
            if (reader := _pydantic_reader(self.annotation)) is not None:
                return reader
            raise RegistrationError(
                f"{_shown(self.annotation)} can't be read back from JSON: {error}. Use a type that can be told from its "
                "JSON, such as a tagged msgspec.Struct, or register a converter: registry.converter(T, encode=, decode=)"
            ) from None
        if unknown:
            names = ", ".join(sorted(_shown(each) for each in unknown))
            raise RegistrationError(
                f"there is no converter for {names}: use a dataclass, TypedDict, msgspec.Struct or pydantic model, or "
                "register one before the job: registry.converter(T, encode=, decode=)"
            )
        return decoder.decode

    def encode(self, value: object, path: str) -> bytes:
        """Write a value such that `decode` gives an equal one of the same types.

        Arguments:
            value: What to write.
            path: What it is called in errors.

        Returns:
            JSON.

        Raises:
            CodecError: It can't be stored exactly, isn't of the annotated type, or is larger than `LARGEST_VALUE_BYTES`.
        """
        try:
            written = self._write(value)
            if self._trivial is not None and type(value) is self._trivial:
                check_size(written, path)
                return written
            return self._checked(value, path, written)
        except CodecError:
            raise
        except Exception as error:  # noqa: BLE001 - classified as the value's fault
            # Looking at a value runs its own code: properties, comparisons, converters.
            self._refuse(value, path, f"it can't be stored as JSON: {_text_of(error.__cause__ or error)}")

    def encode_places(self, value: object, path: str) -> tuple[bytes, list[Placed]]:
        """Write a value with placeholders within. Nothing is compared with the annotation: what is stored isn't whole yet.

        Returns:
            JSON with null for each placeholder, and these with the ways to them, which begin with `path`; none if there are
            none within.

        Raises:
            CodecError: It can't be stored whatever the outputs are, or is larger than `LARGEST_VALUE_BYTES`.
        """
        try:
            written, placed = MarkingWriter(self._converters).write_marked(value)
        except Exception as error:  # noqa: BLE001 - classified as the value's fault
            self._refuse(value, path, f"it can't be stored as JSON: {_text_of(error.__cause__ or error)}")
        if placed and (found := self._find_unstorable(value, path, 0)) is not None:
            where, reason = found
            raise CodecError(reason, where)
        check_size(written, path)
        return written, [(placeholder, (path, *steps)) for placeholder, steps in placed]

    def _checked(self, value: object, path: str, written: bytes) -> bytes:
        check_size(written, path)
        try:
            read = self.decode(written, path)
        except CodecError as error:
            self._refuse(value, error.path, f"it isn't stored exactly as {_shown(self.annotation)}: {error.reason}")
        if (found := difference(value, read, path, self._is_converted, self._write)) is not None:
            where, reason = found
            self._refuse(value, where, reason)
        return written

    def decode(self, stored: bytes, path: str) -> Any:
        """Read a value.

        Arguments:
            stored: JSON.
            path: What it is called in errors.

        Raises:
            CodecError: It isn't JSON, or not of the annotated type.
        """
        try:
            return self._read(stored)
        except msgspec.ValidationError as error:
            text = str(error)
            if (match := _AT.search(text)) is None:
                raise CodecError(text, path) from None
            key = "a key: " if match["key"] else ""
            raise CodecError(key + text[: match.start()], path + match["path"]) from None
        except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise CodecError(str(error), path) from error
        except Exception as error:
            raise CodecError(f"{type(error).__name__}: {_text_of(error)}", path) from error

    def _from_json(self, annotation: Any, value: object) -> object:
        if (converter := self._converters.get(annotation)) is not None:
            return converter.decode(value)
        if is_model(annotation):
            # From JSON, not from objects: strict models accept a date's text only then.
            return annotation.model_validate_json(orjson.dumps(value))
        return value

    def _is_converted(self, kind: type) -> bool:
        return kind in self._converters

    def _refuse(self, value: object, path: str, reason: str) -> NoReturn:
        root = re.split(r"[.\[]", path, maxsplit=1)[0]
        try:
            where, better = self._find_unstorable(value, root, 0) or (path, reason)
        except Exception:  # noqa: BLE001 - classified: the value's own code again; the first reason has to do
            where, better = path, reason
        raise CodecError(better, where) from None

    def _find_unstorable(self, value: object, path: str, depth: int) -> tuple[str, str] | None:
        """Find the leaf that no annotation could save, for a better message."""
        if depth > _MOST_LEVELS:
            return path, "it is nested too deeply, or contains itself"
        if type(value) in self._converters:
            return None
        for name, child in children(value):
            if (found := self._find_unstorable(child, step(path, name), depth + 1)) is not None:
                return found
        reason = not_storable(value)
        return None if reason is None else (path, reason)


class ArgumentsCodec:
    """Writes and reads the arguments of one signature: a JSON object by name.

    Arguments:
        annotations: By parameter name.
        required: The parameters without a default.
        converters: For types that aren't known otherwise.

    Raises:
        RegistrationError: An annotation can't be converted; the message names the parameter.
    """

    def __init__(self, annotations: Mapping[str, Any], required: frozenset[str], converters: Mapping[type, Converter]) -> None:
        self._required = required
        self._codecs: dict[str, ValueCodec] = {}
        self._prefixes = {name: orjson.dumps(name) + b":" for name in annotations}
        for name, annotation in annotations.items():
            try:
                self._codecs[name] = ValueCodec(annotation, converters)
            except RegistrationError as error:
                raise RegistrationError(f"parameter {name!r}: {error}") from None

    def encode(self, arguments: Mapping[str, object]) -> bytes:
        """Write arguments that were bound by name.

        Raises:
            ArgumentsError: One can't be stored exactly; `path` says which. Or they're larger than `LARGEST_VALUE_BYTES`.
        """
        try:
            return _object([self._prefixes[name] + self._codecs[name].encode(value, name) for name, value in arguments.items()])
        except CodecError as error:
            raise ArgumentsError(str(error), path=error.path) from None

    def encode_places(self, arguments: Mapping[str, object]) -> tuple[bytes, list[Placed]]:
        """Write arguments that `encode` has refused, since there may be placeholders within.

        Those that have some are checked when these are filled in, the others now.

        Returns:
            A JSON object with null for each placeholder, and these with the ways to them: at least one.

        Raises:
            ArgumentsError: As `encode`.
        """
        parts: list[bytes] = []
        all_placed: list[Placed] = []
        try:
            for name, value in arguments.items():
                codec = self._codecs[name]
                written, placed = codec.encode_places(value, name)
                parts.append(self._prefixes[name] + (written if placed else codec.encode(value, name)))
                all_placed += placed
            return _object(parts), all_placed
        except CodecError as error:
            raise ArgumentsError(str(error), path=error.path) from None

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Read arguments.

        Raises:
            ArgumentsError: They don't fit the signature.
        """
        try:
            raw = _objects.decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ArgumentsError(f"the arguments can't be read as a JSON object: {error}") from None
        if unknown := sorted(raw.keys() - self._codecs.keys()):
            raise ArgumentsError(f"there is no parameter {', '.join(map(repr, unknown))}", path=unknown[0])
        if missing := sorted(self._required - raw.keys()):
            raise ArgumentsError(f"{', '.join(map(repr, missing))} is missing", path=missing[0])
        try:
            return {name: self._codecs[name].decode(bytes(value), name) for name, value in raw.items()}
        except CodecError as error:
            raise ArgumentsError(str(error), path=error.path) from error

    def decode_one(self, payload: bytes, name: str, default: object) -> object:
        """Read one argument of those that `encode` has written; the default, if it isn't among them."""
        raw = _objects.decode(payload).get(name)
        return default if raw is None else self._codecs[name].decode(bytes(raw), name)


def _object(parts: list[bytes]) -> bytes:
    written = b"{" + b",".join(parts) + b"}"
    if len(written) > LARGEST_VALUE_BYTES:
        try:
            check_size(written, "")
        except CodecError as error:
            raise ArgumentsError(f"the arguments together: {error}") from None
    return written


_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _unknown_types(root: inspect.Type, converters: Mapping[type, Converter]) -> set[Any]:
    """The types within an annotation that nothing can convert."""
    unknown: set[Any] = set()
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, inspect.CustomType):
            if node.cls is not object and node.cls not in converters and not is_model(node.cls):
                unknown.add(node.cls)
        elif isinstance(node, inspect.RawType):
            unknown.add(msgspec.Raw)
        elif isinstance(node, (inspect.Type, inspect.Field)):
            for name in node.__struct_fields__:
                child: object = getattr(node, name)
                waiting.extend(cast("tuple[object, ...]", child) if isinstance(child, tuple) else (child,))
    return unknown


def _pydantic_reader(annotation: Any) -> Callable[[bytes], Any] | None:
    """Read a union with pydantic models, which msgspec can't tell apart, through pydantic."""
    if not _mentions_model(annotation):
        return None
    from pydantic import TypeAdapter  # only where it's installed: a model was found

    adapter: Any = TypeAdapter(annotation)
    return cast("Callable[[bytes], Any]", adapter.validate_json)


def _mentions_model(annotation: Any, depth: int = 0) -> bool:
    if is_model(annotation):
        return True
    return depth < _MOST_LEVELS and any(_mentions_model(each, depth + 1) for each in getattr(annotation, "__args__", ()))


def _text_of(error: BaseException) -> str:
    """An error's text, if it has one that can be made."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - classified: the error's own code is broken too
        return type(error).__name__


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
