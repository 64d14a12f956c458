"""What an open store has: threads with a connection each, the rooms that use them, and somebody who watches the file."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.sqlite._claim import Claims
from aioqueue.sqlite._connections import Connection, connect
from aioqueue.sqlite._connections_access import Reader, Writer
from aioqueue.sqlite._connections_file import FileWatch
from aioqueue.sqlite._connections_threads import DatabaseThreads
from aioqueue.sqlite._events import Events
from aioqueue.sqlite._events_news import News
from aioqueue.sqlite._gates import Gates
from aioqueue.sqlite._gates_news import GateNews
from aioqueue.sqlite._gates_sweep import GateSweep
from aioqueue.sqlite._insert import Inserter
from aioqueue.sqlite._lease import Leases
from aioqueue.sqlite._migrations import check_file, migrate
from aioqueue.sqlite._notifications import Housekeeping
from aioqueue.sqlite._operate import Operator
from aioqueue.sqlite._operate_verbs import OperatingVerbs
from aioqueue.sqlite._pauses import Pauses
from aioqueue.sqlite._pauses_parked import ParkedJobs
from aioqueue.sqlite._progress import Progresses
from aioqueue.sqlite._recovery import Recovery
from aioqueue.sqlite._retention import Retention
from aioqueue.sqlite._rows_odd import OddRows
from aioqueue.sqlite._schedules import Schedules
from aioqueue.sqlite._settle import Settler
from aioqueue.sqlite._tend import Tending
from aioqueue.sqlite._webhooks import Webhooks
from aioqueue.store_rules._listeners import Listeners

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioqueue.sqlite._options import Options
    from aioqueue.vocabulary._store_parts import Listener

__all__ = ["Opened"]

logger = logging.getLogger("aioqueue.sqlite")

_READERS = 2
_CLOSE_SECONDS = 5.0


class Opened:
    """Made by a store when it's opened, dropped when it's closed.

    Users' listings and counts have two readers; what a worker asks for between its claims has one of its own, so that it
    never waits behind them. It's started at first use, and so is the thread of the store's own transactions.

    Arguments:
        options: Which file, and how.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.watch = FileWatch(options.path, compare=not options.allow_network)
        self.odd = OddRows(options.busy_timeout)
        self.news = News()
        self.gate_news = GateNews()
        self.listeners = Listeners(asyncio.get_running_loop(), logger)
        housekeeping = Housekeeping(options, self.listeners, self.watch, self.news, self.gate_news)
        self.writer = self._threads("writer", tick=housekeeping)
        self.readers = self._threads("reader", count=_READERS)
        self.transaction_lock = asyncio.Lock()
        self._looks: DatabaseThreads | None = None
        self._transactions: DatabaseThreads | None = None
        self.writing = Writer(self.writer, self.listeners, options.busy_timeout, self.news, self.gate_news)
        self.reading = Reader(lambda: self.readers)
        self.inserter = Inserter(self.writing)
        self.claims = Claims(self.writing, self.odd, self.gate_news)
        self.settler = Settler(self.writing)
        self.progresses = Progresses(self.writing)
        self.leases = Leases(self.writing, self.odd)
        self.recovery = Recovery(self.writing, Reader(lambda: self.looks), self.odd, self.gate_news)
        self.operator = Operator(self.writing)
        self.operations = OperatingVerbs(self.reading.read, self.operator.change)
        self.retention = Retention(self.writing, Reader(lambda: self.looks))
        self.events = Events(self.writing, Reader(lambda: self.looks), self.news)
        self.webhooks = Webhooks(self.writing, Reader(lambda: self.looks), self.reading)
        self.schedules = Schedules(self.writing, Reader(lambda: self.looks), self.reading)
        parked = ParkedJobs(options.busy_timeout)
        self.pauses = Pauses(self.writing, self.reading, parked)
        self.gates = Gates(self.writing, self.reading, self.gate_news)
        self.tending = Tending(self.writing, self.reading, parked, GateSweep(self.gate_news))

    def _threads(self, name: str, *, count: int = 1, tick: Housekeeping | None = None) -> DatabaseThreads:
        check = functools.partial(check_file, options=self._options)
        open_one = functools.partial(connect, self._options, tolerant=True, check=check)
        if tick is None:
            return DatabaseThreads(name, open_one, count=count, check=self.watch.check)
        return DatabaseThreads(name, open_one, check=self.watch.check, tick=tick.tick, interval=tick.interval)

    @property
    def looks(self) -> DatabaseThreads:
        """The reader for what workers ask between their claims: it doesn't stand behind listings."""
        if self._looks is None:
            self._looks = self._threads("worker's reader")
        return self._looks

    @property
    def transactions(self) -> DatabaseThreads:
        """Runs the transactions of the store's own, one after the other."""
        if self._transactions is None:
            # Without the check: a rollback is always possible.
            self._transactions = DatabaseThreads("transaction", functools.partial(connect, self._options))
        return self._transactions

    @contextmanager
    def subscribed(self, listener: Listener, *, finished: bool) -> Generator[None, None, None]:
        """Call a listener until the block is left. The first sets the writer's thread looking for other processes' commits."""
        with self.listeners.subscribe(listener, finished=finished):
            self.writer.poke()
            yield

    async def start(self) -> None:
        """Open the file, make it if it isn't there, and bring its schema up to date. What fails leaves nothing open."""

        def first(connection: Connection, _: object) -> None:
            migrate(connection, self._options.busy_timeout)
            self.watch.opened()

        try:
            await self.writer.call(first)
        except BaseException:
            self.give_up()
            raise

    def _all(self) -> list[DatabaseThreads]:
        every = (self.writer, self.readers, self._looks, self._transactions)
        return [each for each in every if each is not None]

    def give_up(self) -> None:
        """Take nothing more; the threads finish what was taken, close their connections, and end."""
        for each in self._all():
            each.close_soon()

    async def close(self) -> None:
        """Finish what was begun, and close the file; bounded in time."""
        self.give_up()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for each in self._all():
            await each.wait_closed(deadline - time.monotonic())
