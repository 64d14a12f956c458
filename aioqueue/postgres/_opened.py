"""What a store has while it is open: its connections, by what they serve, and what works over them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioqueue.postgres import _migrations
from aioqueue.postgres._claim import Claims
from aioqueue.postgres._connections import Pool
from aioqueue.postgres._connections_reconnects import Reconnects
from aioqueue.postgres._connections_reserved import ReservedConnection
from aioqueue.postgres._connections_tracker import Tracker
from aioqueue.postgres._connections_users import UsersPool
from aioqueue.postgres._events import EventReaders
from aioqueue.postgres._gates import GateStatuses
from aioqueue.postgres._gates_limits import Limits
from aioqueue.postgres._insert import Inserter
from aioqueue.postgres._lease import Leases
from aioqueue.postgres._listing import Listings
from aioqueue.postgres._notifications_listener import Listening
from aioqueue.postgres._operate import Operator
from aioqueue.postgres._pauses import Pauses
from aioqueue.postgres._progress import ProgressWriter
from aioqueue.postgres._recovery import Recovery
from aioqueue.postgres._retention import Retention
from aioqueue.postgres._schedules import Schedules
from aioqueue.postgres._schedules_due import TickFloor
from aioqueue.postgres._settle import Settler
from aioqueue.postgres._settle_end import Ender
from aioqueue.postgres._tend import Tender
from aioqueue.postgres._webhooks import Deliveries
from aioqueue.store_rules._listeners import Listeners

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres._options import Options

__all__ = ["Opened"]

logger = logging.getLogger("aioqueue.postgres")

_CLOSE_SECONDS = 10.0
_OPERATIONS_CONNECTIONS = 3
_WORKER_CONNECTIONS = 2
_LOCK_SECONDS = 2.0
"""Outcomes and releases don't wait for rows, but a trigger of the user's may make one of them wait for something else: then
its whole statement fails after this time, and the worker finds out which row it was.
"""


class Opened:
    """Three kinds of connections beside the reserved ones, so that nobody waits behind somebody else.

    Arguments:
        options: The store's.
        identity: What its notifications name as their origin.

    Attributes:
        tracker: Its tasks and connections.
        users: What users hold while their transactions are open; from their own pool, if they gave one.
        operations: The client's own operations: inserts, look-ups, changes by operators. None is held between two calls,
            so an operation inside a user's open transaction never waits for that transaction.
        work: What a worker needs beside claims and settlements: leases, recovery, due times, what is settled slowly.
        claims, settler: Over a reserved connection each.
        leases, recovery, progress, tender, deliveries: What workers need over `work`.
        inserter, ender, operator, retention, schedules, pauses, listings, readers: What clients need over `operations`.
        foreign_inserter, foreign_ender, foreign_operator: The same in transactions of other libraries.
        floor: Where ticks are looked for from.
        listeners: Who is told in this process.
        reconnects: How often the listening connection and those of lease threads were lost.
    """

    def __init__(self, options: Options, identity: UUID) -> None:
        self.tracker = tracker = Tracker()
        own = replace(options.source, pool=None)
        self._schema = options.schema
        self.users = UsersPool(tracker, options.source, options.pool_size)
        self.operations = Pool(tracker, own, _OPERATIONS_CONNECTIONS, "the client's own operations")
        workers = replace(own, lock_timeout=_LOCK_SECONDS)
        self.work = Pool(tracker, workers, _WORKER_CONNECTIONS, "the worker")
        self._reserved = for_claims, for_settlements = ReservedConnection(tracker, own), ReservedConnection(tracker, workers)
        origin = str(identity) if options.notify else None
        # What was let come at gates may be for other workers of this process, too.
        self.claims = Claims(for_claims, options.schema, "" if options.notify else None)
        self.settler = Settler(for_settlements, self.work, options.schema, origin)
        self.leases = Leases(self.work, options.schema, origin, options.description)
        self.floor = TickFloor()
        self.recovery = Recovery(self.work, options.schema, self.claims, self.floor, origin)
        self.progress = ProgressWriter(self.work, options.schema)
        self.tender = Tender(self.work, options.schema, origin)
        self.deliveries = Deliveries(self.work, options.schema, origin)
        self.ender = Ender(self.operations, options.schema, origin)
        self.inserter = Inserter(self.operations, options.schema, origin)
        # What is written in transactions of other libraries the server tells this process, too: it knows of the commit.
        foreign = "" if options.notify else None
        self.foreign_inserter = Inserter(self.operations, options.schema, foreign)
        self.foreign_ender = Ender(self.operations, options.schema, foreign)
        self.operator = Operator(self.operations, options.schema, origin)
        self.schedules = Schedules(self.operations, options.schema, origin, self.inserter, self.floor)
        self.retention = Retention(self.operations, options.schema)
        self.pauses = Pauses(self.operations, options.schema, origin)
        self.limits = Limits(self.operations, options.schema, origin)
        self.gate_statuses = GateStatuses(self.operations, options.schema, origin)
        self.foreign_operator = Operator(self.operations, options.schema, foreign)
        self.listings = Listings(self.operations, options.schema)
        self.readers = EventReaders(self.operations, options.schema, told=options.notify)
        self.listeners = Listeners(asyncio.get_running_loop(), logger)
        self.reconnects = Reconnects()
        self._listening: Listening | None = None
        if options.notify:
            self._listening = Listening(
                tracker,
                options.listen_source,
                options.schema,
                self.listeners,
                pool=self.operations,
                origin=identity,
                reconnects=self.reconnects,
            )

    async def start(self) -> None:
        """Connect, check the schema, and begin to listen. What fails leaves nothing open.

        Raises:
            StoreError: See `Store.open`.
        """
        try:
            async with self.operations.transaction() as connection:
                await _migrations.check_version(connection, self._schema, _migrations.known_migrations())
        except BaseException:
            await self.close()
            raise
        if self._listening is not None:
            self._listening.start()

    @property
    def troubles(self) -> dict[str, str]:
        """See `aioqueue.abc.Store.troubles`."""
        trouble = None if self._listening is None else self._listening.trouble
        return {} if trouble is None else {"notifications": trouble}

    async def close(self) -> None:
        """Stop listening and disconnect, bounded in time. Whatever cuts it short, no connection stays open."""
        closed = False
        try:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                if self._listening is not None:
                    await self._listening.stop()
                for each in (*self._reserved, self.work, self.operations, self.users):
                    await each.close()
                closed = True
        finally:
            if not closed:  # too late, or cancelled by the client's bound, which no scope holds off
                self.give_up()

    def give_up(self) -> None:
        """Cut all connections off, whatever has become of the event loop."""
        self.tracker.give_up()
