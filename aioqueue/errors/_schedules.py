"""What is wrong with a schedule that was named."""

from __future__ import annotations

from aioqueue.errors._root import AioqueueError

__all__ = ["ScheduleError", "ScheduleNotFound", "ScheduleOwned"]


class ScheduleError(AioqueueError):
    """A schedule can't be changed; `name` is its name."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class ScheduleNotFound(ScheduleError):
    """There is no schedule of this name."""


class ScheduleOwned(ScheduleError):
    """The schedule is defined in the code of a registry: it's changed and removed there. It may be paused."""
