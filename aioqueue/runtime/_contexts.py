"""Which context a task runs in: what a task has started runs in a copy of that, so that it tells whose task it is."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["context_of", "tasks_whose_context"]


def context_of(task: object) -> contextvars.Context | None:
    """Give the context in which a task runs; None if it's something else than a task."""
    if sys.version_info >= (3, 12) and isinstance(task, asyncio.Task):
        return task.get_context()
    # Before that only the garbage collector tells. A task names its own first, before those of its callbacks.
    return next((each for each in gc.get_referents(task) if isinstance(each, contextvars.Context)), None)


def tasks_whose_context(belongs: Callable[[contextvars.Context], bool]) -> list[asyncio.Task[Any]]:
    """Give the running loop's tasks whose context fits."""
    return [task for task in asyncio.all_tasks() if (context := context_of(task)) is not None and belongs(context)]
