"""What the lease thread uses: blocking calls over an event loop and a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import ClientClosed, ConfigurationError, StoreUnavailable
from aioqueue.postgres._connections_closing import close_connection, close_socket
from aioqueue.postgres._connections_reconnects import LEASE
from aioqueue.postgres._errors import translated
from aioqueue.postgres._lease_rights import LEASE_THREAD, MISSING_RIGHTS, refuse_missing, rights_arguments
from aioqueue.postgres._rows import ASKED
from aioqueue.postgres._settle_fates import Fence, fate_of, fates_statements
from aioqueue.runtime._log import event
from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._answers import Renewal
from aioqueue.vocabulary._job import Claim, LostReason

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._connections_reconnects import Reconnects
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.runtime._home import Home

__all__ = ["PostgresLeaseSession", "compare", "session_statements"]

logger = logging.getLogger("aioqueue.postgres")

_LEFT_SECONDS = 0.2

T = TypeVar("T")


# A late renewal is granted: while the row is there, nobody has taken anything of it.
_RENEW = f"""WITH renewed AS (
    UPDATE @schema@.lease l SET expires_at = now() + $2::float8 * interval '1 second' WHERE l.id = $1::bigint RETURNING l.id
)
SELECT NULL::uuid, NULL::integer, NULL::text FROM renewed
UNION ALL SELECT j.id, j.claims, {ASKED} FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint"""


def session_statements(schema: Schema) -> dict[str, str]:
    """All statements of a session, by name."""
    return {"renew": schema.render(_RENEW), **fates_statements(schema)}


def compare(rows: Sequence[Row], held: Sequence[Claim]) -> tuple[bool, list[Claim], tuple[Claim, ...], dict[Claim, str]]:
    """Read `renew`: whether the lease is there, what was lost of `held`, what it owns beyond it, and what was asked to end."""
    valid = any(row[0] is None for row in rows)
    owned = {Claim(row[0], row[1]): row[2] for row in rows if row[0] is not None}
    asked = set(held)
    asked_to_stop = {claim: reason for claim, reason in owned.items() if reason is not None}
    return valid, [claim for claim in held if claim not in owned], tuple(owned.keys() - asked), asked_to_stop


class PostgresLeaseSession:
    """See `aioqueue.abc.LeaseSession`.

    Arguments:
        source: Where the connection comes from.
        schema: Where the tables are.
        home: Where the store is open.
        timeout: Seconds that each call may take.
        option: The store's option with the user's function that connects; None if there is no such function.
        reconnects: Where it's counted that a lost connection is there again.
    """

    def __init__(
        self, source: Source, schema: Schema, home: Home, timeout: float, option: str | None, reconnects: Reconnects
    ) -> None:
        self._source = replace(source, timeout=timeout, pool=None)
        self._schema = schema
        self._statements = session_statements(schema)
        self._timeout = timeout
        self._option = option
        self._reconnects = reconnects
        self._has_connected = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._home = home

    def connect(self) -> None:
        """See `aioqueue.abc.LeaseSession.connect`."""
        self._run(self._start())

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """See `aioqueue.abc.LeaseSession.renew`."""
        return self._run(self._renew(lease_id, duration, held))

    def close(self) -> None:
        """See `aioqueue.abc.LeaseSession.close`."""
        loop, self._loop = self._loop, None
        if loop is None or self._home.inherited:
            return
        try:
            loop.run_until_complete(self._end())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def __del__(self) -> None:
        if (loop := self._loop) is None or self._home.inherited:
            return
        what = f"a lease session on {self._source.description}"
        warnings.warn(f"{what} was never closed", ResourceWarning, stacklevel=2, source=self)
        if self._connection is not None:
            close_socket(self._connection)
        loop.close()

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_LEFT_SECONDS)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            self._home.check_from_thread("this lease session")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(_note)
        except ClientClosed:
            call.close()
            raise
        return self._loop.run_until_complete(self._guarded(call))

    async def _guarded(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call within the timeout, whatever it does when it's cancelled. After an error its connection is cut off."""
        task = asyncio.ensure_future(call)
        with translated(self._source.description):
            try:
                await asyncio.wait([task], timeout=self._timeout)
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=_LEFT_SECONDS)
                    raise TimeoutError
                return task.result()
            except BaseException as error:
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.terminate()
                    await asyncio.sleep(0)  # a transport closes its socket in the loop's next round
                if isinstance(error, TimeoutError):
                    raise StoreUnavailable(self._silence(connected=connection is not None)) from error
                raise

    def _silence(self, *, connected: bool) -> str:
        text = f"{self._source.description}: no answer to the lease thread within {self._timeout:g} s"
        if connected or self._option is None:
            return text
        return f"{text}. Does {self._option}= work in any event loop? Otherwise give lease_connect= too"

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            try:
                self._connection = await self._source.open()
            except StoreUnavailable:
                raise
            except Exception as error:
                if self._option is None:
                    raise
                raise ConfigurationError(
                    f"{self._source.description}: the lease thread can't connect with {self._option}=, which it calls in an "
                    f"event loop of its own: {type(error).__name__}: {str(error).split(chr(10), 1)[0][:300]}. Give "
                    "lease_connect= too: an async function that opens an asyncpg connection with nothing that belongs to "
                    "another event loop"
                ) from error
            if self._has_connected:
                self._reconnects.count(LEASE)
            self._has_connected = True
        return self._connection

    async def _start(self) -> None:
        """Connect, and see that this connection's role may renew: it needn't be the role of the others."""
        connection = await self._connect()
        rows = await self._source.query(connection, MISSING_RIGHTS, rights_arguments(self._schema, LEASE_THREAD))
        refuse_missing(rows, self._schema, self._source.description, "a worker's lease thread")

    async def _renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        connection = await self._connect()
        rows = await self._source.query(connection, self._statements["renew"], [lease_id, duration])
        valid, missing, unheld, asked_to_stop = compare(rows, held)
        lost: dict[Claim, LostReason] = {}
        if missing:
            arguments = [[claim.id for claim in missing], [lease_id] * len(missing)]
            fates = {row[0]: row for row in await self._source.query(connection, self._statements["fates"], arguments)}
            for claim in missing:
                result = fate_of(fates[claim.id], Fence(claim.id, claim.claims, lease_id), orphaned=False)
                if result is not None:
                    lost[claim] = result.lost or _lost_by_its_own_end(fates[claim.id])
        return Renewal(valid=valid, lost=lost, unheld=unheld, asked_to_stop=asked_to_stop)


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What is left of connecting that was given up, mostly."""
    logger.debug(
        "in the lease thread: %s",
        context.get("exception") or context.get("message"),
        extra=event("store.lease_connection_noise"),
    )


def _lost_by_its_own_end(fate: Row) -> LostReason:
    """Written by this very lease between the question and the answer."""
    return lost_reason(live=fate[1] is not None, archived=fate[4])
