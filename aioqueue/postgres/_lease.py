"""What the lease thread uses: blocking calls over an event loop and a connection of its own."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue._job import Claim, LostReason
from aioqueue.abc import Renewal
from aioqueue.errors import StoreError
from aioqueue.postgres._errors import breaks_connection
from aioqueue.postgres._ownership import release_on
from aioqueue.postgres._settle import Fence, lost_reason
from aioqueue.postgres._source import Connection, Source, check_process, close_connection, in_transaction

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aioqueue.postgres._source import Row

__all__ = ["PostgresLeaseSession", "compare"]

T = TypeVar("T")


def compare(rows: Sequence[Row], held: Sequence[Claim]) -> tuple[bool, list[Claim], tuple[Claim, ...]]:
    """Read `renew`: whether the lease is there, what was lost of `held`, and what it owns beyond it."""
    valid = any(row[0] is None for row in rows)
    owned = {Claim(row[0], row[1]) for row in rows if row[0] is not None}
    asked = set(held)
    return valid, [claim for claim in held if claim not in owned], tuple(owned - asked)


class PostgresLeaseSession:
    """See `aioqueue.abc.LeaseSession`.

    Arguments:
        source: Where the connection comes from.
        statements: All statements of the store.
        origin: Who tells; None if nobody is to be told.
    """

    def __init__(self, source: Source, statements: dict[str, str], origin: str | None) -> None:
        self._source = source
        self._statements = statements
        self._origin = origin
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._process = os.getpid()

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """See `aioqueue.abc.LeaseSession.renew`."""
        return self._run(self._renew(lease_id, duration, held))

    def release(self, lease_id: int, claims: Sequence[Claim]) -> None:
        """See `aioqueue.abc.LeaseSession.release`."""
        self._run(self._release(lease_id, claims))

    def close(self) -> None:
        """See `aioqueue.abc.LeaseSession.close`."""
        loop, self._loop = self._loop, None
        if loop is None or os.getpid() != self._process:
            return
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                loop.run_until_complete(close_connection(connection))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            check_process(self._process)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
        except StoreError:
            call.close()
            raise
        return self._loop.run_until_complete(self._guarded(call))

    async def _guarded(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._source.timeout):
                return await call
        except Exception as error:
            connection = self._connection
            if connection is not None and breaks_connection(error):
                self._connection = None
                connection.terminate()
            if (ours := self._source.translated(error)) is error:
                raise
            raise ours from error

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._source.open()
        return self._connection

    async def _renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        connection = await self._connected()
        rows = await self._source.query(connection, self._statements["renew"], [lease_id, duration])
        valid, missing, unheld = compare(rows, held)
        lost: dict[Claim, LostReason] = {}
        if missing:
            arguments = [[claim.id for claim in missing], [lease_id] * len(missing)]
            fates = {row[0]: row for row in await self._source.query(connection, self._statements["fates"], arguments)}
            for claim in missing:
                result = lost_reason(fates[claim.id], Fence(claim.id, claim.claims, lease_id), orphaned=False)
                if result is not None:
                    lost[claim] = result.lost or _own_end(fates[claim.id])
        return Renewal(valid=valid, lost=lost, unheld=unheld)

    async def _release(self, lease_id: int, claims: Sequence[Claim]) -> None:
        connection = await self._connected()
        async with in_transaction(connection, self._source):
            await release_on(connection, self._statements, lease_id, claims, self._origin, end=False)


def _own_end(fate: Row) -> LostReason:
    """Written by this very lease between the question and the answer."""
    return LostReason.TAKEN if fate[1] is not None else LostReason.COMPLETED
