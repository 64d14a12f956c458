"""Calls by name alone, for producers that don't have the job type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from aioqueue.definitions._call import Call
from aioqueue.definitions._names import check_name
from aioqueue.errors import ArgumentsError, ConflictingOptions
from aioqueue.vocabulary._codec import CodecError, ValueCodec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.vocabulary._codec import Converter, Placed
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import Priority
    from aioqueue.vocabulary._retry import Retry

__all__ = ["NamedType", "named_call"]

_objects = ValueCodec(dict[str, Any], {})


@dataclass(frozen=True, slots=True)
class NamedType:
    """A job type of which only the name is known: values are plain JSON, and options are the defaults."""

    name: str
    aliases: tuple[str, ...] = ()
    retry: Retry | None = None
    timeout: float | None = None
    priority: Priority = 2
    expires: float | None = None
    keep: float | None = None
    tags: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    dry_run: bool = False
    gate_rules: GateRules | None = None

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def converters(self) -> Mapping[type, Converter]:
        """None: values are plain JSON."""
        return {}

    def read_default(self, parameter: str) -> object:
        """Refuse: nothing is known of parameters that weren't given.

        Raises:
            ConflictingOptions: Always.
        """
        raise ConflictingOptions(
            f"{self.name} is known by its name only, and was given no argument {parameter!r}, which its key is to be made of "
            "(by=): give the argument, or key="
        )

    def has_set(self, parameter: str, payload: bytes) -> bool:
        """Never: values are plain JSON."""
        del parameter, payload
        return False

    def decode_arguments(self, payload: bytes) -> dict[str, Any]:
        """Read stored arguments as plain JSON values."""
        return cast("dict[str, Any]", orjson.loads(payload))

    def decode_output(self, stored: bytes) -> Any:
        """Read a stored output as plain JSON values."""
        return orjson.loads(stored)


def named_call(name: str, arguments: Mapping[str, object] | None, options: CallOptions) -> Call[Any]:
    """Make a call by name.

    Raises:
        ArgumentsError: The arguments can't be stored exactly.
        ConfigurationError: The name or an option is out of its range.
        ConflictingOptions: Options contradict each other.
    """
    given = dict(arguments or {})
    placed: list[Placed] = []
    try:
        try:
            payload = _objects.encode(given, "arguments")
        except CodecError as error:
            payload, placed = _objects.encode_places(given, "arguments")
            if not placed:
                raise error from None
    except CodecError as error:
        raise ArgumentsError(str(error), path=error.path) from None
    call: Call[Any] = Call(NamedType(name), payload, placed=[(placeholder, path[1:]) for placeholder, path in placed])
    return call.options(**options) if options else call
