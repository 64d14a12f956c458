"""Sends what ends of chains have left to be sent: by a small pool beside the slots, and what hangs there holds nothing up."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import ClientClosed, ConfigurationError
from aioqueue.runtime._batcher import Batcher
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._log import event
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._webhook_url import webhook_host
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry
from aioqueue.worker._addresses import AllowedReceivers
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls
from aioqueue.worker._lasting_task import LastingTask
from aioqueue.worker._text import one_line
from aioqueue.worker._webhooks_answer import Answer
from aioqueue.worker._webhooks_told import log_try, tell_observers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._observers import Observers
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.telemetry._counters import Counters
    from aioqueue.telemetry._tracing import Tracing
    from aioqueue.vocabulary._webhooks import Delivery
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._webhooks_sender import Sender

__all__ = ["LONGEST_TRY_SECONDS", "Webhooks", "became_of", "webhooks_of"]

logger = logging.getLogger("aioqueue.worker")

T = TypeVar("T")

LONGEST_TRY_SECONDS = 15.0
"""That a receiver has, from the look-up of its name to the end of its answer."""
_MOST_AT_ONCE = 16
_MOST_OF_ONE_HOST = 4
"""Of one that was silent the last time, one: ten that hang leave room for others."""
_TAKEN_SECONDS = 60.0
"""For which a delivery that was taken is nobody else's: a try, and writing what became of it."""
_WAITS_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Between tries, as Standard Webhooks recommends; varied by a tenth. After the last one it's given up."""
_LONGEST_RETRY_AFTER_SECONDS = 86_400.0
"""For which a receiver may ask."""
_EVERY_SECONDS = 10.0
"""Between looks where no notification comes, varied by half."""
_STATEMENT_SECONDS = 20.0
"""That a statement may take until it's taken for one that hangs."""
_WRITTEN_TRIES = 3
"""Of writing what became of a try. After that the delivery is tried once more by whoever takes it next."""
_MOST_SILENT_HOSTS = 1_000
_GONE = 410
_SUCCESSES = range(200, 300)


class Webhooks:
    """Takes due deliveries, sends each in a task of its own, and has what became of them written.

    Arguments:
        store: Where they are.
        sender: Sends one.
        name: The worker's.
        troubles: Where errors show, as `webhooks`.
        counters: What the run counts.
        observers: Who is told of what was delivered, or given up.
        tracing: Makes the spans: one for each try.
    """

    def __init__(
        self,
        store: SupportsWebhooks,
        sender: Sender,
        name: str,
        *,
        troubles: Troubles,
        counters: Counters,
        observers: Observers,
        tracing: Tracing,
    ) -> None:
        self._store = store
        self._sender = sender
        self._worker = name
        self._name = one_line(name)
        self._troubles = troubles
        self._counters = counters
        self._observers = observers
        self._tracing = tracing
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._after_errors = Backoff(0.5, 2 * _EVERY_SECONDS)
        self._statements = BoundedCalls("aioqueue statement of webhooks")
        self._task = LastingTask("aioqueue webhooks", self._statements, self._after_errors.next)
        self._sending: dict[asyncio.Task[None], str] = {}
        self._silent: dict[str, None] = {}
        self._closing: asyncio.Task[None] | None = None
        self._batcher: Batcher[DeliveryTry, None] = Batcher(self._write_batch, patience=1.0, name="writer of webhooks")

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to look for deliveries, at once."""
        self._woken.set()
        self._task.begin(self._run)

    def soon(self) -> None:
        """Look at once: there is something to be sent."""
        self._woken.set()

    async def send_due(self) -> None:
        """Send what is due, each once, and wait until that's done: for a worker that then ends. Others go on with it."""
        try:
            while not self._task.stopped and await self._take_what_fits():
                await self.finish()
        except Exception as error:  # noqa: BLE001 - logged by the troubles
            self._troubles.add("webhooks", error)

    def stop(self) -> None:
        """Take nothing more. What is being sent goes on. May be called again."""
        self._task.stop()

    async def finish(self) -> None:
        """Wait for what is being sent; each ends by itself."""
        while self._sending:
            await asyncio.wait(list(self._sending))

    def let_go(self) -> None:
        """Wait for nothing any more: what is still being sent is cancelled, and sent again in a minute. May be called again."""
        self.stop()
        if self._closing is not None:
            return
        if self._sending:
            logger.warning(
                "worker %s: %d webhooks are still being sent: they're sent again in a minute",
                self._name,
                len(self._sending),
                extra=event("webhook.interrupted", worker=self._worker, deliveries=len(self._sending)),
            )
        self._batcher.abort()
        for task in self._sending:
            task.cancel()
        self._closing = self._loop.create_task(self._sender.aclose(), name="aioqueue closing of webhooks")
        for task in self._tasks:
            leave(task)

    async def ended(self, longest: float) -> None:
        """Wait until what was let go has ended, for so many seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=longest)

    @property
    def _tasks(self) -> list[asyncio.Task[Any]]:
        closing = () if self._closing is None else (self._closing,)
        return [*self._task.tasks, *closing, *self._sending]

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                taken = await self._take_what_fits()
                wait = await self._wait_for_next(taken=taken)
            except ClientClosed:
                return
            except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
                self._troubles.add("webhooks", error)
                await asyncio.sleep(self._after_errors.next())
                continue
            self._troubles.clear("webhooks")
            self._after_errors.reset()
            await self._pause(wait)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _wait_for_next(self, *, taken: bool) -> float:
        """Seconds to wait, unless somebody wakes it: whatever ends being sent does."""
        usual = _EVERY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets
        if len(self._sending) >= _MOST_AT_ONCE:
            return usual
        due = await self._statements.call(self._store.next_delivery(), _STATEMENT_SECONDS)
        if due is None:
            return usual
        if due <= 0 and not taken:  # of hosts that have no room, or locked by somebody
            return 1.0
        return min(due, usual)

    async def _take_what_fits(self) -> bool:
        """Take as much as there is room for, and begin to send it. Returns whether there was something."""
        found = False
        while (room := self._room()) > 0:
            full = [host for host, free in self._free().items() if free <= 0]
            taken: Sequence[Delivery] = await self._statements.call(
                self._store.take_deliveries(room, _TAKEN_SECONDS, without=full), _STATEMENT_SECONDS
            )
            for delivery in taken:
                self._begin_to_send(delivery)
            if not taken:
                break
            found = True
        return found

    def _free(self) -> dict[str, int]:
        """How many more may be sent at once to each host of which something is known; to others `_MOST_OF_ONE_HOST`."""
        busy = Counter(self._sending.values())
        return {host: (1 if host in self._silent else _MOST_OF_ONE_HOST) - busy.get(host, 0) for host in {*busy, *self._silent}}

    def _room(self) -> int:
        """How many to take: whichever host they're all of, it has room for them."""
        room = _MOST_AT_ONCE - len(self._sending)
        return min(room, *(free for free in self._free().values() if free > 0), _MOST_OF_ONE_HOST)

    # -- one delivery -------------------------------------------------------------------------------------------------

    def _begin_to_send(self, delivery: Delivery) -> None:
        task = self._loop.create_task(self._send(delivery), name="aioqueue webhook", context=contextvars.Context())
        self._sending[task] = webhook_host(delivery.url)
        task.add_done_callback(self._sent, context=contextvars.Context())

    def _sent(self, task: asyncio.Task[None]) -> None:
        del self._sending[task]
        self._woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._troubles.add("webhooks", error)

    async def _send(self, delivery: Delivery) -> None:
        host = webhook_host(delivery.url)
        answer = await self._answer(delivery, host)
        self._silent.pop(host, None)
        if answer.unreachable:
            while len(self._silent) >= _MOST_SILENT_HOSTS:
                del self._silent[next(iter(self._silent))]
            self._silent[host] = None
        tried = became_of(delivery, answer)
        self._count(tried)
        log_try(self._worker, delivery, tried, host)
        if await self._write(tried) and self._observers.active:
            tell_observers(self._observers, delivery, tried)

    async def _answer(self, delivery: Delivery, host: str) -> Answer:
        span, status = self._tracing.webhook(delivery, host), None
        try:
            answer = await self._sender.send(delivery)
            status = answer.status
        except Exception as error:  # noqa: BLE001 - logged by the troubles; it's a try like others, so that they end
            self._troubles.add("webhooks", error)
            answer = Answer(None, "the worker couldn't send it: its log says why")
        finally:
            if span is not None:
                span.end(status, delivered=status in _SUCCESSES)
        return answer

    def _count(self, tried: DeliveryTry) -> None:
        counters = self._counters
        if tried.state is DeliveryState.DELIVERED:
            counters.webhooks_delivered += 1
        elif tried.state is DeliveryState.FAILED:
            counters.webhooks_failed += 1
        else:
            counters.webhooks_retried += 1

    async def _write(self, tried: DeliveryTry) -> bool:
        backoff = Backoff(0.5)
        for left in reversed(range(_WRITTEN_TRIES)):
            try:
                await self._batcher.submit(tried)
            except Exception as error:  # noqa: BLE001 - logged by the troubles; what isn't written is sent once more
                self._troubles.add("webhooks", error)
                if left:
                    await asyncio.sleep(backoff.next())
            else:
                return True
        return False

    async def _write_batch(self, tries: Sequence[DeliveryTry]) -> Sequence[None]:
        await self._store.write_tries(tries)
        return [None] * len(tries)


def webhooks_of(
    store: Store,
    settings: WorkerSettings,
    name: str,
    *,
    troubles: Troubles,
    counters: Counters,
    observers: Observers,
    tracing: Tracing,
) -> Webhooks | None:
    """Make what sends webhooks; None for a worker that sends none, since it has nothing to sign with.

    Raises:
        ConfigurationError: What sending needs isn't installed.
    """
    if settings.webhook_secret is None or not isinstance(store, SupportsWebhooks):
        return None
    try:
        # Only who sends needs these libraries: they come with an extra.
        from aioqueue.worker._webhooks_sender import Sender
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"webhook_secret is set, and sending webhooks needs {error.name}, which isn't installed: pip install "
            "'aioqueue-jobs[webhooks]'"
        ) from error
    sender = Sender(name, settings.webhook_secret, AllowedReceivers(settings.webhook_allow), longest=LONGEST_TRY_SECONDS)
    return Webhooks(store, sender, name, troubles=troubles, counters=counters, observers=observers, tracing=tracing)


def became_of(delivery: Delivery, answer: Answer) -> DeliveryTry:
    """What is kept of a try: whether it was delivered, is tried again, and when, or is given up."""
    delay = 0.0
    if answer.status in _SUCCESSES:
        state = DeliveryState.DELIVERED
    elif answer.status == _GONE or delivery.tries > len(_WAITS_SECONDS):
        state = DeliveryState.FAILED
    else:
        state = DeliveryState.PENDING
        delay = _WAITS_SECONDS[max(0, delivery.tries - 1)] * random.uniform(0.9, 1.1)  # noqa: S311 - not for secrets
        if answer.retry_after is not None:
            delay = max(delay, min(answer.retry_after, _LONGEST_RETRY_AFTER_SECONDS))
    return DeliveryTry(
        id=delivery.id, tries=delivery.tries, state=state, delay=delay, status=answer.status, response=answer.text
    )
