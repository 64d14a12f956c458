"""Notifications of other processes: a listening connection that comes back by itself.

What this process has done itself is told directly after its commit; the note that the database sends for others names
its origin, and is dropped when it comes back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.errors import StoreError, StoreUnavailable
from aioqueue.postgres._connections_closing import close_connection, terminate
from aioqueue.postgres._connections_opener import Opener
from aioqueue.postgres._connections_reconnects import NOTIFICATIONS
from aioqueue.postgres._errors import translated
from aioqueue.postgres._notifications import CATCH_UP, decode_note, notify_statements
from aioqueue.runtime._log import event
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_reconnects import Reconnects
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._connections_tracker import Tracker
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._listeners import Listeners

__all__ = ["Listening", "listener_statements"]

logger = logging.getLogger("aioqueue.postgres")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
_PROBE_SECONDS = 5.0
_FIRST_PROBE_AGAIN, _LONGEST_PROBE_AGAIN = 5.0, 300.0
_ALIVE_SECONDS = 15.0
_ECHO_SECONDS = 60.0
SUBSCRIBED_SECONDS = 60.0


_SUBSCRIBE = """INSERT INTO @schema@.subscriber (id, expires_at)
VALUES ($1::uuid, clock_timestamp() + $2::float8 * interval '1 second')
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at"""
_UNSUBSCRIBE = "DELETE FROM @schema@.subscriber WHERE id = $1::uuid OR expires_at < now() - interval '1 hour'"


def listener_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"subscribe": _SUBSCRIBE, "unsubscribe": _UNSUBSCRIBE}
    return {name: schema.render(template) for name, template in templates.items()} | notify_statements(schema)


class Listening:
    """Listens on a connection of its own and keeps the row that says that somebody waits for finished jobs.

    Arguments:
        tracker: Holds its tasks and its connection.
        source: Where the connection comes from.
        schema: Whose channel.
        listeners: Who is told.
        pool: Sends the probes, and writes the row.
        origin: This store, in notes.
        reconnects: Where it's counted that it listens again.

    Attributes:
        trouble: Why notifications don't arrive at the moment; None if they do, or aren't expected yet.
    """

    def __init__(
        self,
        tracker: Tracker,
        source: Source,
        schema: Schema,
        listeners: Listeners,
        *,
        pool: Pool,
        origin: uuid.UUID,
        reconnects: Reconnects,
    ) -> None:
        self._tracker = tracker
        self._source = source
        self._opener = Opener(tracker, partial(tracker.open, source), terminate)
        self._schema = schema
        self._statements = listener_statements(schema)
        # Those who listen may hold the store, and its tasks mustn't: nobody would notice that it was never closed.
        self._listeners = weakref.ref(listeners)
        self._finished_wanted = listeners.finished_wanted
        self._pool = pool
        self._origin = origin
        self._reconnects = reconnects
        self._has_listened = False
        self._probe = ""
        self._probed = False
        self._woken = asyncio.Event()
        self._listening = asyncio.Event()
        self._warned = False
        self._probe_again = _FIRST_PROBE_AGAIN
        self._row_written = False
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble: str | None = None

    def start(self) -> None:
        """Begin to listen, in tasks that are held until `stop`."""
        start = self._tracker.start_task
        self._tasks = [start(self._listen(), "aioqueue listener"), start(self._keep_subscribed(), "aioqueue subscriber")]

    async def stop(self) -> None:
        """End the tasks and take the row away."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._opener.close()
        if self._row_written:
            try:
                async with asyncio.timeout(1.0):
                    await self._pool.fetch(self._statements["unsubscribe"], self._origin)
            except (StoreError, TimeoutError) as error:
                logger.debug("the subscriber's row is left to expire: %s", error, extra=event("notifications.subscriber_left"))

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                heard = await self._listen_once()
            except StoreError as error:
                heard = False
                self.trouble = f"the connection for notifications was lost, jobs are found by polling: {error}"
                logger.warning(
                    "the connection for notifications was lost, polling meanwhile: %s", error, extra=event("notifications.lost")
                )
            except Exception as error:
                heard = False
                self.trouble = f"listening for notifications has failed, jobs are found by polling: {type(error).__name__}"
                logger.exception(
                    "listening for notifications has failed, polling meanwhile", extra=event("notifications.failed")
                )
            finally:
                self._listening.clear()
            pause = _FIRST_PAUSE if heard else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - keeps processes apart

    async def _listen_once(self) -> bool:
        """Listen until the connection ends, or has gone deaf; returns whether it was of use."""
        connection = await self._opener.open()
        ended = asyncio.Event()
        with translated(self._source.description):
            try:

                def end(_connection: Connection) -> None:
                    ended.set()
                    self._woken.set()

                connection.add_termination_listener(end)
                async with asyncio.timeout(self._source.timeout):
                    await connection.add_listener(self._schema.channel, self._received)
                if not await self._hears(ended):
                    if not ended.is_set():
                        await self._stay_deaf(connection)
                    return False
                self._probe_again = _FIRST_PROBE_AGAIN
                self._warned = False
                self.trouble = None
                self._listening.set()
                if self._has_listened:
                    self._reconnects.count(NOTIFICATIONS)
                self._has_listened = True
                # What was told while nobody listened.
                self._tell(CATCH_UP)
                await self._watch(connection, ended)
                return True
            finally:
                await close_connection(connection)

    async def _stay_deaf(self, connection: Connection) -> None:
        """A new connection hears nothing: say so, and wait before the next try."""
        self.trouble = (
            f"{self._source.description}: notifications don't arrive (behind PgBouncer in transaction mode?), "
            "so jobs are found by polling; give listen_url= with a direct address, or notify=False"
        )
        if not self._warned:
            self._warned = True
            logger.warning("%s", self.trouble, extra=event("notifications.missing"))
        await close_connection(connection)
        # A busy server answers late; a pooler never does.
        await asyncio.sleep(self._probe_again)
        self._probe_again = min(self._probe_again * 2, _LONGEST_PROBE_AGAIN)

    async def _hears(self, ended: asyncio.Event) -> bool:
        """Whether a note that is sent on another connection arrives here, before this one ends."""
        self._probe = uuid.uuid4().hex
        self._probed = False
        self._woken.clear()
        note = orjson.dumps({"o": str(self._origin), "p": self._probe}).decode()
        await self._pool.fetch(self._statements["notify"], note)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROBE_SECONDS):
                while not (self._probed or ended.is_set()):
                    self._woken.clear()
                    await self._woken.wait()
        return self._probed and not ended.is_set()

    async def _watch(self, connection: Connection, ended: asyncio.Event) -> None:
        """Return when the connection has ended, or hears nothing any more though it answers."""
        loop = asyncio.get_running_loop()
        probed = loop.time()
        while not connection.is_closed():
            try:
                async with asyncio.timeout(_ALIVE_SECONDS):
                    await ended.wait()
            except TimeoutError:
                # A connection that has gone silent looks like one on which nothing happens.
                async with asyncio.timeout(min(self._source.timeout, _ALIVE_SECONDS)):
                    await connection.execute("SELECT 1")
                if loop.time() - probed >= _ECHO_SECONDS:
                    probed = loop.time()
                    if not await self._echoes(ended):
                        return
        logger.info(
            "%s: the connection for notifications has ended", self._source.description, extra=event("notifications.ended")
        )

    async def _echoes(self, ended: asyncio.Event) -> bool:
        """Whether notifications still arrive: somebody may have undone LISTEN on a connection that seems sound."""
        try:
            heard = await self._hears(ended)
        except StoreError as error:
            logger.debug("no probe could be sent: %s", error, extra=event("notifications.probe_failed"))
            return True
        if not heard and not ended.is_set():
            self.trouble = f"{self._source.description}: notifications have ceased to arrive, jobs are found by polling"
            logger.warning(
                "%s: notifications have ceased to arrive, listening on a new connection",
                self._source.description,
                extra=event("notifications.missing"),
            )
        return heard

    def _tell(self, notification: Notification) -> None:
        if (listeners := self._listeners()) is not None:
            listeners.tell(notification)

    def _received(self, _connection: Any, _process: int, _channel: str, payload: str) -> None:
        if self._probe and self._probe in payload:
            self._probed = True
            self._woken.set()
            return
        notification = decode_note(payload, str(self._origin))
        if notification is not None:
            self._tell(notification)

    async def _keep_subscribed(self) -> None:
        refused = False
        while True:
            await self._finished_wanted.wait()
            await self._listening.wait()
            try:
                first = not self._row_written
                await self._pool.fetch(self._statements["subscribe"], self._origin, SUBSCRIBED_SECONDS)
                self._row_written = True
                refused = False
                if first:
                    self._tell(Notification(finished=None))
            except StoreUnavailable as error:
                logger.debug(
                    "the subscriber's row couldn't be written: %s", error, extra=event("notifications.subscriber_failed")
                )
            except StoreError as error:
                # Such as a role that may not: who waits for results looks now and then, and nothing else would say why.
                (logger.debug if refused else logger.warning)(
                    "results are found by polling, as nobody tells of them: %s",
                    error,
                    extra=event("notifications.subscriber_refused"),
                )
                refused = True
            except Exception:
                logger.exception("keeping the subscriber's row has failed", extra=event("notifications.subscriber_failed"))
            await asyncio.sleep(SUBSCRIBED_SECONDS / 3)
