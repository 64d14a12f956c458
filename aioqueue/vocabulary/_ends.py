"""How a chain has ended, as a handler gets it that took `settled` of a call: with its value, or why there is none. No I/O."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, get_args
from uuid import UUID

import msgspec

__all__ = ["Completed", "Failed"]

R_co = TypeVar("R_co", covariant=True)


class Completed(msgspec.Struct, Generic[R_co], frozen=True, tag_field="end", tag="completed"):
    """A chain that has ended well: what `settled` of a call is then.

    Attributes:
        value: Its output.
    """

    value: R_co

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """For pydantic: how it's read and written as a part of a model."""
        (value,) = get_args(source) or (Any,)
        return _schema(cls, "completed", {"value": handler.generate_schema(value)})


class Failed(msgspec.Struct, frozen=True, tag_field="end", tag="failed"):
    """A chain without an output: what `settled` of a call is then.

    Attributes:
        chain_id: Its id: that of its first job.
        state: `failed`, `cancelled` (also if it wasn't started in time), or `deleted`.
        reason: What became of the first job that didn't complete, for people: `site.fetch 0190…: failed: ValueError: boom`.
    """

    chain_id: UUID
    state: Literal["failed", "cancelled", "deleted"]
    reason: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """For pydantic: how it's read and written as a part of a model."""
        fields = {"chain_id": UUID, "state": Literal["failed", "cancelled", "deleted"], "reason": str}
        return _schema(cls, "failed", {name: handler.generate_schema(each) for name, each in fields.items()})


def _schema(cls: type[Any], tag: str, fields: dict[str, Any]) -> Any:
    from pydantic_core import core_schema as schemas  # it asks, so it's installed

    stored = {"end": schemas.literal_schema([tag]), **fields}
    as_json = schemas.typed_dict_schema({name: schemas.typed_dict_field(each) for name, each in stored.items()})

    def read(values: dict[str, Any]) -> Any:
        return cls(**{name: values[name] for name in fields})

    def written(value: Any) -> dict[str, Any]:
        return {"end": tag, **{name: getattr(value, name) for name in fields}}

    made = schemas.no_info_after_validator_function(read, as_json)
    return schemas.json_or_python_schema(
        json_schema=made,
        python_schema=schemas.union_schema([schemas.is_instance_schema(cls), made]),
        serialization=schemas.plain_serializer_function_ser_schema(written, return_schema=as_json),
    )
