"""How a worker is looked at from other threads: the view that it offers while it runs, and who offers one in this process."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

__all__ = ["VIEWS", "Figures", "Gauges", "LoopWatch", "Readiness", "View", "Views"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the store said of its jobs.

    Attributes:
        read_at: When, by the monotonic clock.
        counts: Jobs by label and state.
        oldest_ready: By label, seconds for which the oldest ready job has been due.
        pauses: By what is paused (a type, a key, or all), how many pauses there are; empty where the store knows none.
        places, at_limit, waiting: By the name of a limit, of all its values: how many jobs it lets run or start, how many run
            there (not of rates), and how many are held; empty where the store knows none.
        kept_sequences: How many sequences a failed job keeps; None where the store knows none.
        tick_overdue: Seconds for which the first tick that nobody has decided has been due; None where it keeps no schedules.
    """

    read_at: float
    counts: Mapping[tuple[str, str], int]
    oldest_ready: Mapping[str, float]
    pauses: Mapping[str, int] = field(default_factory=dict[str, int])
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    at_limit: Mapping[str, int] = field(default_factory=dict[str, int])
    waiting: Mapping[str, int] = field(default_factory=dict[str, int])
    kept_sequences: int | None = None
    tick_overdue: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """A worker's state at one moment, as metrics show it.

    Attributes:
        in_flight: Running attempts by label.
        busy, free: Slots.
        unwritten: Outcomes and claims that wait to be written.
        late: Attempts that should have ended.
        failing: Parts that fail at the moment.
        lag: Seconds that the event loop takes, or has taken by now, to come to what it's asked for.
        figures: Of its store; None before they were read.
    """

    in_flight: Mapping[str, int]
    busy: int
    free: int
    unwritten: int
    late: int
    failing: frozenset[str]
    lag: float
    figures: Figures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a worker does its work, in words.

    Attributes:
        name: The worker's.
        reasons: Why it doesn't; empty if it does.
        notes: What is odd, and doesn't keep it from its work.
    """

    name: str
    reasons: Sequence[str] = ()
    notes: Sequence[str] = ()


class View(Protocol):
    """What a running worker shows. Each method may be called from any thread, while its event loop is blocked too."""

    @property
    def watch(self) -> LoopWatch:
        """That of its event loop."""
        ...

    def gauges(self) -> Gauges:
        """Its state at the moment."""
        ...

    def readiness(self) -> Readiness:
        """Whether it does its work."""
        ...

    def want_figures(self) -> None:
        """Have the store's figures read anew, if they're old; whoever looks next finds them."""
        ...


class LoopWatch:
    """Asks an event loop for a sign of life, from other threads: nothing runs while nobody asks.

    Arguments:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: float | None = None
        self._lag = 0.0
        self._answered = threading.Event()

    def ask(self) -> None:
        """Ask, unless an answer is awaited already."""
        if self._asked is not None:
            return
        self._answered.clear()
        self._asked = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed: nobody answers
            return

    def wait(self, seconds: float) -> None:
        """Give the loop so much time to answer."""
        self._answered.wait(seconds)

    def lag(self) -> float:
        """Seconds that the newest answer took, or for which it's awaited by now."""
        asked = self._asked
        return self._lag if asked is None else time.monotonic() - asked

    def _answer(self) -> None:
        if self._asked is not None:
            self._lag = time.monotonic() - self._asked
            self._asked = None
        self._answered.set()


@dataclass(slots=True)
class Views:
    """The views of the workers that run in this process."""

    _all: list[View] = field(default_factory=list["View"])

    def add(self, view: View) -> None:
        """Show this worker from now on."""
        self._all = [*self._all, view]

    def remove(self, view: View) -> None:
        """Show it no longer; nothing happens if it isn't shown."""
        self._all = [each for each in self._all if each is not view]

    def all(self) -> Sequence[View]:
        """Those that are shown; the list isn't changed by anybody."""
        return self._all

    def forget(self) -> None:
        """Show nobody: in a forked process they're its parent's."""
        self._all = []


VIEWS = Views()
"""This process's."""

os.register_at_fork(after_in_child=VIEWS.forget)
