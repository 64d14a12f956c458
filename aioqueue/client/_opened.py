"""What a client has while it is open: it belongs to one event loop and one process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.client._end import Ender
from aioqueue.client._enqueue import Enqueuer
from aioqueue.client._event_feed import EventFeed
from aioqueue.client._ticks import Ticker
from aioqueue.client._tries import Tries
from aioqueue.client._waiters import Waiters
from aioqueue.errors import OutsideTransaction, StoreError
from aioqueue.runtime._home import Home
from aioqueue.runtime._left_behind import bounded
from aioqueue.runtime._log import event
from aioqueue.runtime._shield import finish
from aioqueue.telemetry._counters import LEDGER, Counters
from aioqueue.vocabulary._abilities import SupportsReconnects

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioqueue.abc import Store
    from aioqueue.definitions._middleware import EnqueueMiddleware
    from aioqueue.definitions._observers import Observers
    from aioqueue.telemetry._tracing import Tracing

__all__ = ["ClientSettings", "Opened"]

logger = logging.getLogger("aioqueue")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a client was made with, validated; durations are seconds. `Client` says what each is for."""

    middlewares: tuple[EnqueueMiddleware, ...]
    poll_interval: float
    retry_for: float
    uncommitted_grace: float
    close_timeout: float
    tracing: Tracing
    webhook: str | None


class Opened:
    """One opening of a client. Its `Session` makes one each time it's opened, in the event loop in which it's used.

    Arguments:
        store: Not open yet.
        settings: The client's.
        observers: Who observes the client and its workers.

    Attributes:
        store: Open, after `open`.
        settings: The client's.
        home: The process and event loop that it belongs to.
        enqueuer: What enqueues.
        ticker: What enqueues the jobs of schedules.
        ender: What ends jobs from outside.
        waiters: Those who wait for results.
        events: Reads what has happened, for streams.
        tasks_in_transaction: Those that are inside a `client.transaction()` block.
    """

    def __init__(self, store: Store, settings: ClientSettings, observers: Observers) -> None:
        self.store = store
        self._observers = observers
        self.settings = settings
        self.home = Home()
        self._counters = Counters()
        tries = Tries(settings.retry_for)
        self.enqueuer = Enqueuer(
            store, settings.middlewares, tries, self._counters, settings.tracing, observers, settings.webhook
        )
        self.ticker = Ticker(store, settings.middlewares, self._counters, settings.tracing, observers, settings.webhook)
        self.ender = Ender(store, tries, self.enqueuer.unclear)
        self.waiters = Waiters(store, settings.poll_interval)
        self.events = EventFeed(store, settings.poll_interval)
        self.tasks_in_transaction: set[asyncio.Task[Any] | None] = set()

    def refuse_outside_transaction(self) -> None:
        """Refuse to enqueue, or to change jobs, beside the transaction that the task has open.

        Raises:
            OutsideTransaction: It has one open.
        """
        if self.tasks_in_transaction and asyncio.current_task() in self.tasks_in_transaction:
            raise OutsideTransaction(
                "an enqueue, or a change of jobs, inside a block of client.transaction() or completion() that isn't part of it "
                "would be kept even if the block is rolled back, and might wait for what it has locked: use tx.enqueue(...), "
                "tx.complete(...), tx.retry(...) and the like, or do it before or after the block"
            )

    async def open(self) -> None:
        """Open the store. What fails or is cancelled leaves nothing open."""
        try:
            await self.store.open()
        except BaseException:
            await finish(self._begin_to_close_store(), again=self._begin_to_close_store)
            raise
        if isinstance(self.store, SupportsReconnects):
            self._counters.reconnects = self.store.reconnects
        LEDGER.open(self._counters)

    def begin_to_close(self) -> asyncio.Task[None]:
        """Close in a task of its own, so that nothing that cancels the one who waits cuts it short."""
        return self._task(self.close())

    def _begin_to_close_store(self) -> asyncio.Task[None]:
        return self._task(self._close_store(self.settings.close_timeout))

    def _task(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.home.loop.create_task(call, name="aioqueue close", context=contextvars.Context())

    async def close(self) -> None:
        """Finish what is in flight, and close the store; within the timeout as a whole, whatever the store does.

        Cancelling it leaves the rest undone; it may be called again.
        """
        # Half of the timeout for what is in flight, which may be a commit, and an eighth more to say what has become of it. An
        # eighth for those who wait for results or events, whose tasks have only to be cancelled, and for observers. What is
        # left, a quarter at least, is the store's.
        eighth = self.settings.close_timeout / 8
        began = self.home.loop.time()
        try:
            await bounded(self.enqueuer.aclose(4 * eighth), 5 * eighth, name="aioqueue close")
            await bounded(self._end_waiting(eighth / 2), eighth, name="aioqueue close")
        finally:
            LEDGER.close(self._counters)
            await self._close_store(self.settings.close_timeout - (self.home.loop.time() - began))

    async def _end_waiting(self, seconds: float) -> None:
        await asyncio.gather(self.waiters.aclose(), self.events.aclose(), self._observers.finish(seconds))

    async def _close_store(self, longest: float) -> None:
        try:
            if not await bounded(self.store.close(), longest, name="aioqueue close"):
                logger.warning(
                    "%s couldn't be closed within %.1f s", self.store.description, longest, extra=event("client.not_closed")
                )
        except StoreError as error:
            logger.warning(
                "%s couldn't be closed properly: %s",
                self.store.description,
                type(error).__name__,
                extra=event("client.not_closed"),
            )
