"""What a running worker shows to other threads: the ones that serve the port, and those of OpenTelemetry's exporters."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import ClientClosed
from aioqueue.runtime._left_behind import leave
from aioqueue.telemetry._counters import LEDGER, OTHER
from aioqueue.telemetry._instruments import instrument
from aioqueue.telemetry._views import VIEWS, Figures, Gauges, LoopWatch, Readiness
from aioqueue.vocabulary._abilities import SupportsGates, SupportsPauses, SupportsSchedules
from aioqueue.vocabulary._gates import LimitKind
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._pauses import PauseTarget
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from aioqueue.abc import Store
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.worker._health import Health, Troubles
    from aioqueue.worker._holdings import Holdings

__all__ = ["WorkerView"]

_STATES = (JobState.READY, JobState.SCHEDULED, JobState.BLOCKED, JobState.HELD, JobState.RUNNING, JobState.FAILED)
_OLD_SECONDS = 10.0
"""After which figures are read anew when somebody looks. Below the usual 15 s between scrapes, so that each has new ones."""
_LONGEST_READ_SECONDS = 60.0
_MOST_LIMITS = 200
"""That are shown: each is a label."""
_OWN_WORDS = frozenset({"event_loop"})
"""Troubles that are told in the worker's own words, not in those of an error."""
_INSTEAD = {"notifications": "they don't arrive: jobs are found by polling"}


class WorkerView:
    """The view of one run.

    Arguments:
        name: The worker's.
        store: Whose figures are shown.
        holdings: What runs.
        troubles: Where it's told that the figures can't be read.
        health: The worker's own.
        declared: Job types that wait for an answer from outside: however long that takes, they aren't late.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        holdings: Holdings,
        troubles: Troubles,
        health: Callable[[], Health],
        declared: Collection[str] = (),
    ) -> None:
        self._name = one_line(name)
        self._store = store
        self._holdings = holdings
        self._troubles = troubles
        self._health = health
        self._labels = holdings.counters.labels
        self._declared = declared
        self._loop = asyncio.get_running_loop()
        self.watch = LoopWatch(self._loop)
        self._figures: Figures | None = None
        self._reading: asyncio.Task[None] | None = None
        self._wanted = threading.Lock()
        self._closed = False

    # -- from any thread ----------------------------------------------------------------------------------------------

    def gauges(self) -> Gauges:
        """See `aioqueue.telemetry._views.View`."""
        health, labels = self._health(), self._labels
        in_flight = Counter(dict.fromkeys(labels.values(), 0))
        in_flight.update(labels.get(slot.job.type, OTHER) for slot in list(self._holdings.running.values()))
        return Gauges(
            in_flight=in_flight,
            busy=health.busy,
            free=max(0, health.concurrency - health.busy),
            unwritten=health.unwritten,
            late=len(health.late),
            failing=frozenset(health.troubles),
            lag=self.watch.lag(),
            figures=self._figures,
        )

    def readiness(self) -> Readiness:
        """See `aioqueue.telemetry._views.View`."""
        health = self._health()
        health = replace(health, troubles={part: self._public(part) for part in health.troubles})
        return Readiness(name=self._name, reasons=health.reasons, notes=health.notes)

    def _public(self, part: str) -> str:
        """What anybody may read of a trouble: the error's class. Its text may quote addresses and values."""
        if part in _INSTEAD:
            return _INSTEAD[part]
        text = self._troubles.current.get(part)
        if text is None:  # the store's own, whatever that says
            return "see the log"
        return text if part in _OWN_WORDS else text.partition(":")[0]

    def want_figures(self) -> None:
        """See `aioqueue.telemetry._views.View`."""
        figures = self._figures
        if figures is not None and time.monotonic() - figures.read_at < _OLD_SECONDS:
            return
        if self._wanted.acquire(blocking=False):
            try:
                self._loop.call_soon_threadsafe(self._read_figures, context=contextvars.Context())
            except RuntimeError:  # the loop is closed: there will be none
                return

    # -- in the event loop --------------------------------------------------------------------------------------------

    def _read_figures(self) -> None:
        if not self._closed:
            self._reading = self._loop.create_task(self._read(), name="aioqueue figures", context=contextvars.Context())
            self._reading.add_done_callback(lambda _: self._wanted.release(), context=contextvars.Context())

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(_LONGEST_READ_SECONDS):
                self._figures = figures = self._labelled(await self._store.stats())
                self._figures = figures = replace(figures, pauses=await _pauses(self._store))
                self._figures = figures = replace(figures, tick_overdue=await _tick_overdue(self._store))
                self._figures = await _with_gates(figures, self._store)
        except ClientClosed:
            return
        except Exception as error:  # noqa: BLE001 - logged by the troubles; the next look tries it again
            self._troubles.add("stats", error)
        else:
            self._troubles.clear("stats")

    def _labelled(self, stats: Stats) -> Figures:
        counts = Counter({(label, state.value): 0 for label in self._labels.values() for state in _STATES})
        oldest = dict.fromkeys(self._labels.values(), 0.0)
        for name, found in stats.types.items():
            label = self._labels.get(name, OTHER)
            for state in _STATES:
                counts[label, state.value] += found.counts.get(state, 0)
            if name not in self._declared:
                oldest[label] = max(oldest.get(label, 0.0), found.oldest_ready or 0.0)
        return Figures(read_at=time.monotonic(), counts=counts, oldest_ready=oldest)

    @contextmanager
    def shown(self) -> Generator[None]:
        """Within the block, the worker is seen from other threads, and what it counts is in the metrics."""
        instrument()
        LEDGER.open(self._holdings.counters)
        VIEWS.add(self)
        try:
            yield
        finally:
            VIEWS.remove(self)
            LEDGER.close(self._holdings.counters)
            self._closed = True
            if self._reading is not None:
                self._reading.cancel()
                leave(self._reading)


async def _pauses(store: Store) -> dict[str, int]:
    if not isinstance(store, SupportsPauses):
        return {}
    counts = dict.fromkeys((each.value for each in PauseTarget), 0)
    return counts | Counter(each.target.value for each in await store.list_pauses())


async def _with_gates(figures: Figures, store: Store) -> Figures:
    if not isinstance(store, SupportsGates):
        return figures
    limits = (await store.list_limits())[:_MOST_LIMITS]
    return replace(
        figures,
        places={each.name: each.places for each in limits},
        at_limit={each.name: each.running for each in limits if each.kind is LimitKind.PLACES},
        waiting={each.name: each.waiting for each in limits},
        kept_sequences=len(await store.kept_sequences()),
    )


async def _tick_overdue(store: Store) -> float | None:
    if not isinstance(store, SupportsSchedules):
        return None
    due = await store.due_schedules(1)
    return max(((due.now - (each.next_at or each.since)).total_seconds() for each in due.schedules), default=0.0)
