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
from aioqueue.runtime import _left_behind
from aioqueue.vocabulary import _identifiers
from aioqueue.worker import _run
from tests.simulation.scheduler import START, Condition, SimpleQueue, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.scheduler import Host, Scheduler

for package in (aioqueue.client, aioqueue.worker):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


class OfEachProcess:
    """What is one for all workers of a process: each simulated process has its own. As a set, and as a dictionary."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._all: dict[Host, dict[Any, Any]] = {}

    @property
    def _own(self) -> dict[Any, Any]:
        return self._all.setdefault(self._scheduler.host, {})

    def __contains__(self, key: object) -> bool:
        return key in self._own

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._own[key]

    def add(self, key: Any) -> None:
        self._own[key] = None

    def discard(self, key: Any) -> None:
        self._own.pop(key, None)

    def pop(self, key: Any, default: Any = None) -> Any:
        return self._own.pop(key, default)

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._own.items())


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
            Lock=threading.Lock,
            RLock=threading.RLock,
            Thread=lambda target, name, daemon: Thread(scheduler, target, name),
            get_ident=lambda: 0,
        ),
        id(queue): SimpleNamespace(SimpleQueue=functools.partial(SimpleQueue, scheduler)),
    }
    undo: list[tuple[Any, str, object]] = [(_run, "_BODIES", _run._BODIES), (_left_behind, "_left", _left_behind._left)]
    undo += [(_identifiers, "os", _identifiers.os)]
    undo += [(_identifiers, name, getattr(_identifiers, name)) for name in ("_last_millisecond", "_counter")]
    for name, module in sorted(sys.modules.items()):
        if name.startswith("aioqueue."):
            for word in ("time", "random", "threading", "queue"):
                value = getattr(module, word, None)
                if id(value) in stand_ins:
                    undo.append((module, word, value))
                    setattr(module, word, stand_ins[id(value)])
    _run._BODIES = OfEachProcess(scheduler)
    _left_behind._left = OfEachProcess(scheduler)
    _identifiers.os = SimpleNamespace(urandom=chance.randbytes)
    _identifiers._last_millisecond = _identifiers._counter = 0
    try:
        yield
    finally:
        for module, name, value in undo:
            setattr(module, name, value)
