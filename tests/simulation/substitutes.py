"""Puts virtual time, seeded chance and virtual threads in place of the real ones, in the product's modules alone."""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import queue
import random
import sys
import threading
import time
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aioqueue.client
import aioqueue.worker
from aioqueue import _identifiers
from aioqueue.worker import _run
from tests.simulation.scheduler import START, Condition, SimpleQueue, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.simulation.scheduler import Scheduler

for package in (aioqueue.client, aioqueue.worker):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


class Bodies:
    """The set of the bodies that run in a process: one for each simulated process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._sets: dict[str, set[UUID]] = {}

    @property
    def _own(self) -> set[UUID]:
        return self._sets.setdefault(self._scheduler.host.name, set())

    def add(self, job_id: UUID) -> None:
        self._own.add(job_id)

    def discard(self, job_id: UUID) -> None:
        self._own.discard(job_id)

    def __contains__(self, job_id: UUID) -> bool:
        return job_id in self._own


@contextlib.contextmanager
def substituted(scheduler: Scheduler, chance: random.Random, clock_error: dict[str, float]) -> Iterator[None]:
    """Within the block, the product lives in the scheduler's time.

    Arguments:
        scheduler: Of this history.
        chance: Where its random numbers come from.
        clock_error: By which each process's time of day is wrong.
    """

    def time_of_day() -> float:
        return START + scheduler.now + clock_error.get(scheduler.host.name, 0.0)

    stand_ins: dict[int, Any] = {
        id(time): SimpleNamespace(
            monotonic=lambda: scheduler.now, time=time_of_day, time_ns=lambda: int(time_of_day() * 1_000_000_000)
        ),
        id(random): chance,
        id(threading): SimpleNamespace(
            Condition=functools.partial(Condition, scheduler),
            Event=threading.Event,
            Thread=lambda target, name, daemon: Thread(scheduler, target, name),
            get_ident=lambda: 0,
        ),
        id(queue): SimpleNamespace(SimpleQueue=functools.partial(SimpleQueue, scheduler)),
    }
    undo: list[tuple[Any, str, object]] = [(_run, "_BODIES", _run._BODIES), (_identifiers, "os", _identifiers.os)]
    undo += [(_identifiers, name, getattr(_identifiers, name)) for name in ("_last_millisecond", "_counter")]
    for name, module in sorted(sys.modules.items()):
        if name.startswith("aioqueue."):
            for word in ("time", "random", "threading", "queue"):
                value = getattr(module, word, None)
                if id(value) in stand_ins:
                    undo.append((module, word, value))
                    setattr(module, word, stand_ins[id(value)])
    _run._BODIES = Bodies(scheduler)  # type: ignore[assignment]
    _identifiers.os = SimpleNamespace(urandom=chance.randbytes)  # type: ignore[assignment]
    _identifiers._last_millisecond = _identifiers._counter = 0
    try:
        yield
    finally:
        for module, name, value in undo:
            setattr(module, name, value)
