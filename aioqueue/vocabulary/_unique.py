"""Unique keys: until when a job keeps its key to itself, and what becomes of another one with the same key. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_repr
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["OnConflict", "Unique", "Until"]

Until = Literal["started", "finished"]
OnConflict = Literal["return", "replace", "raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one job of a type has a key: `call.options(key="report 7", unique=Unique(...))`; `unique=True` is `Unique()`.

    Arguments:
        until: Until when a job keeps its key from others: `"finished"`, until its whole chain has ended, or `"started"`, until
            a worker takes it for the first time; it never takes the key again.
        window: Seconds or timedelta, from the enqueueing, for which the key is kept from other calls with a window even if the
            chain completes sooner. A chain that fails, is cancelled or deleted frees it at once. Only with `until="finished"`.
        on_conflict: What becomes of a call whose key is held. `"return"`: nothing; its handle is that of the holder.
            `"replace"`: if the holder is a first job that isn't running, it gets the call's arguments and options; otherwise
            the new job takes the key over, and waits until the holder's chain has ended. A chain that has ended, but is within
            its window, can't be replaced: it's returned. `"raise"`: enqueueing raises `DuplicateJob`.
        by: Names of arguments that make the key, instead of `key=`: `by=("tenant_id",)`.

    Raises:
        ConfigurationError: A value is out of its range, or they contradict each other.
    """

    until: Until = "finished"
    window: float | timedelta | None = None
    on_conflict: OnConflict = "return"
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.until not in ("started", "finished"):
            raise ConfigurationError(f'until must be "started" or "finished", not {safe_repr(self.until)}')
        if self.on_conflict not in ("return", "replace", "raise"):
            raise ConfigurationError(f'on_conflict must be "return", "replace" or "raise", not {safe_repr(self.on_conflict)}')
        if self.window is not None:
            object.__setattr__(self, "window", seconds(self.window, "window", positive=True))
            if self.until == "started":
                raise ConfigurationError('a window counts what has finished; until="started" frees the key before: give one')
        by: object = self.by
        if not isinstance(by, (tuple, list)) or not all(isinstance(name, str) for name in self.by):
            raise ConfigurationError(f'by takes several names of arguments, such as ("tenant_id",), not {safe_repr(by)}')
        if len(set(self.by)) < len(self.by):
            raise ConfigurationError(f"by names an argument twice: {safe_repr(by)}")
        object.__setattr__(self, "by", tuple(self.by))

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return f"Unique({', '.join(f'{name}={value!r}' for name, value, default in values if value != default)})"

    @property
    def window_seconds(self) -> float | None:
        """The window in seconds."""
        return None if self.window is None else seconds(self.window, "window", positive=True)
