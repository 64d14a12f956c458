"""Time and threads of a history: one real thread, in which virtual ones take turns, in an order that the seed decides.

A virtual thread is a greenlet: an event loop of a simulated process, or a thread of the product's own. Whatever blocks it
(`Condition.wait`, an event loop's `select`, a handler's `sleep`) gives way to whoever is next, and the clock jumps to the
next moment at which something happens. Nothing ever waits for real.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

T = TypeVar("T")

START = 1_767_225_600
"""The time of day at which a history begins: 2026-01-01 00:00 UTC."""

_SPINS = 64
_TURN = 0.001


class Host:
    """What owns virtual threads: a simulated process. While it's frozen, none of them takes a turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen_until = 0.0


class VirtualThread:
    """One thread of a host. Made and started by `Scheduler.start`."""

    def __init__(self, scheduler: Scheduler, host: Host, target: Callable[[], None], name: str) -> None:
        self.host = host
        self.name = name
        self.turn = 0
        self.error: BaseException | None = None
        self._target = target
        self.greenlet = greenlet.greenlet(self._run, parent=scheduler.greenlet)

    def _run(self, _: bool) -> None:
        try:
            self._target()
        except BaseException as error:
            self.error = error


class Scheduler:
    """The clock, and whose turn it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.greenlet = greenlet.getcurrent()
        self.current: VirtualThread | None = None
        self.threads: list[VirtualThread] = []
        self.turns = 0
        self._sequence = 0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def host(self) -> Host:
        """Whose thread is running."""
        assert self.current is not None
        return self.current.host

    def call_at(self, when: float, work: Callable[[], None]) -> None:
        """Run something outside all hosts, such as the network's part."""
        self._sequence += 1
        heapq.heappush(self._calls, (max(when, self.now), self._sequence, work))

    def start(self, host: Host, target: Callable[[], None], name: str) -> VirtualThread:
        """Start a thread; it has its first turn soon."""
        thread = VirtualThread(self, host, target, name)
        self.threads.append(thread)
        self._turn_at(self.now, thread, woken=True)
        return thread

    def run(self, until: float, enough: Callable[[], bool]) -> None:
        """Let everything take its turns, until a time or until `enough` says so."""
        while self._calls and self._calls[0][0] <= until and not enough():
            when, _, work = heapq.heappop(self._calls)
            self.now = max(self.now, when)
            self.turns += 1
            work()

    # -- in a virtual thread ------------------------------------------------------------------------------------------

    def block(self, timeout: float | None) -> bool:
        """Give way until somebody wakes this thread, or a time has passed. Returns whether it was woken."""
        me = self.current
        assert me is not None
        if timeout is not None:
            self._turn_at(self.now + timeout, me, woken=False)
        loop = asyncio._get_running_loop()
        task = None if loop is None else asyncio.current_task(loop)
        if loop is not None and task is not None:
            asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
        woken: bool = self.greenlet.switch()
        asyncio._set_running_loop(loop)
        if loop is not None and task is not None:
            asyncio.tasks._enter_task(loop, task)
        return woken

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`."""
        self.block(seconds)

    def wake(self, thread: VirtualThread) -> None:
        """Let a blocked thread go on."""
        self._turn_at(self.now, thread, woken=True)

    def _turn_at(self, when: float, thread: VirtualThread, *, woken: bool) -> None:
        turn = thread.turn

        def take() -> None:
            if thread.turn != turn:  # it went on for another reason
                return
            if thread.host.frozen_until > self.now:
                self.call_at(thread.host.frozen_until, take)
                return
            thread.turn += 1
            self.current = thread
            thread.greenlet.switch(woken)
            self.current = None

        self.call_at(when, take)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop as a virtual thread. It has no descriptors.

    Arguments:
        scheduler: Of this history.
        starved: Gives the seconds for which it waits for the processor before its next turn.
    """

    def __init__(self, scheduler: Scheduler, starved: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._starved = starved
        self._selecting: VirtualThread | None = None
        super().__init__(_Selector(self))
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._scheduler.now

    def select(self, timeout: float | None) -> None:
        """Give way; a loop that is never idle does so too, now and then, or time would stand still."""
        self._selecting = self._scheduler.current
        self._scheduler.block(timeout)
        self._selecting = None

    def wait_for_processor(self) -> None:
        """Let other threads have turns between two of this one's, however much it has to do."""
        if (seconds := self._starved()) > 0:
            self._scheduler.block(seconds)

    def _write_to_self(self) -> None:
        if self._selecting is not None:
            self._scheduler.wake(self._selecting)

    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run to the end, and what is left after it."""
        try:
            self.run_until_complete(main)
        finally:
            while left := [task for task in asyncio.all_tasks(self) if not task.done()]:
                for task in left:
                    task.cancel()
                self.run_until_complete(asyncio.wait(left))
            self.close()


class _Selector(selectors.BaseSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._spins = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._spins = 0
            self._loop.select(timeout)
        else:
            self._loop.wait_for_processor()
            self._spins += 1
            if self._spins >= _SPINS:
                self._spins = 0
                self._loop.select(_TURN)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError

    def get_map(self) -> Any:
        return {}


# -- what stands in for `threading` and `queue` -----------------------------------------------------------------------


class Condition:
    """As `threading.Condition`. Only one virtual thread runs at a time, so its lock is always free."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[VirtualThread] = deque()

    def __enter__(self) -> bool:
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        me = self._scheduler.current
        assert me is not None
        self._waiting.append(me)
        woken = self._scheduler.block(timeout)
        if not woken and me in self._waiting:
            self._waiting.remove(me)
        return woken

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._scheduler.wake(self._waiting.popleft())


class SimpleQueue(Generic[T]):
    """As `queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._items: deque[T] = deque()
        self._condition = Condition(scheduler)

    def put(self, item: T) -> None:
        self._items.append(item)
        self._condition.notify()

    def get(self) -> T:
        while not self._items:
            self._condition.wait()
        return self._items.popleft()


class Thread:
    """As `threading.Thread`: it belongs to the host whose thread starts it."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], None], name: str) -> None:
        self._scheduler = scheduler
        self._target = target
        self._name = name
        self._runs = False

    def start(self) -> None:
        self._runs = True
        self._scheduler.start(self._scheduler.host, self._run, self._name)

    def is_alive(self) -> bool:
        return self._runs

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._runs = False
