"""Why a worker doesn't work, or not for real."""

from __future__ import annotations

from aioqueue.errors._root import AioqueueError

__all__ = ["DryRunRefused", "SingletonHeld"]


class SingletonHeld(AioqueueError):
    """A worker that is to be the only one of its name isn't, as another one lives.

    Attributes:
        name: The name.
        worker: The name of the worker that has it.
        ends_in: Seconds until its lease runs out unless it's renewed.
    """

    def __init__(self, message: str, *, name: str, worker: str, ends_in: float) -> None:
        super().__init__(message)
        self.name = name
        self.worker = worker
        self.ends_in = ends_in


class DryRunRefused(AioqueueError):
    """What can't be part of a dry run.

    Attributes:
        type: The name of the job type that isn't declared for it, or of whose call something doesn't go together with it.
    """

    def __init__(self, message: str, *, type: str) -> None:  # noqa: A002 - as everywhere else
        super().__init__(message)
        self.type = type
