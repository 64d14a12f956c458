"""The connections that get into users' hands: a pool of ours, or the user's own."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres._connections import Loan, Pool
from aioqueue.postgres._connections_closing import CLOSE_SECONDS, terminate
from aioqueue.postgres._connections_source import TRUSTED_SECONDS
from aioqueue.postgres._errors import breaks_connection, translated
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._connections_tracker import Tracker

__all__ = ["UsersPool"]

logger = logging.getLogger("aioqueue.postgres")

_RESET_SECONDS = 5.0
# What asyncpg's own reset leaves: it undoes settings, cursors, LISTEN and advisory locks.
_RESET = "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; DISCARD TEMP; DISCARD SEQUENCES"
# Stays prepared, so that it fails after a DEALLOCATE ALL; and says whether the driver still gives the types that we know.
_CANARY = "SELECT $1::uuid"
_CANARY_VALUE = UUID("00000000-0000-4000-8000-000000000000")


class UsersPool(Pool):
    """For `Store.transaction`. What users leave behind on a connection is undone before its next use.

    A pool of the user's is left to its own rules: it resets its connections as it was told to.

    Arguments:
        tracker: Holds them, unless they're of the user's pool.
        source: Where they come from.
        size: How many there are at most.
    """

    def __init__(self, tracker: Tracker, source: Source, size: int) -> None:
        super().__init__(tracker, replace(source, for_users=True), size, "client.transaction()")

    async def _connect(self) -> Connection:
        pool = self.source.pool
        if pool is not None:
            return await pool.acquire(timeout=self.source.timeout)
        connection = await self._tracker.open(self.source)
        if self.source.prepared:
            with translated(self.source.description):
                try:
                    await self._test(connection)
                except BaseException:
                    terminate(connection)
                    raise
        return connection

    async def _test(self, connection: Connection) -> None:
        async with asyncio.timeout(self.source.timeout):
            rows = await connection.fetch(_CANARY, _CANARY_VALUE)
        if rows[0][0] != _CANARY_VALUE:
            raise TypeError(f"a uuid comes back as {type(rows[0][0]).__name__}")

    async def _pick(self) -> Connection:
        try:
            return await super()._pick()
        except TimeoutError:
            raise StoreUnavailable(self._none_free()) from None

    def _trusted(self, since: float) -> bool:
        # That another transaction has been open for long says nothing about the line.
        return asyncio.get_running_loop().time() - since < TRUSTED_SECONDS and since > self._doubted

    def _breaks(self, failure: BaseException) -> bool:
        # Anything else may be the user's own: the rollback tells.
        cause = failure.__cause__ if failure.__cause__ is not None else failure
        return isinstance(cause, asyncpg.PostgresError) and breaks_connection(cause)

    def _none_free(self) -> str:
        return (
            f"{super()._none_free()}. Keep such blocks short, or give a larger {'pool' if self.source.pool else 'pool_size='}"
        )

    async def _reset(self, connection: Connection) -> None:
        if self.source.pool is not None or not self.source.prepared:
            return
        try:
            async with asyncio.timeout(_RESET_SECONDS):
                await connection.reset()
                await connection.execute(_RESET)
                await self.source.set_up(connection)
                await self._test(connection)
        except BaseException as error:
            logger.debug("a connection that was in a user's hands is cut off: %s", error, extra=event("store.connection_cut"))
            terminate(connection)
            if not isinstance(error, Exception):
                raise

    def take_back(self, loan: Loan) -> None:
        """Take back what nobody will give back; a connection of the user's pool goes back there, cut off."""
        super().take_back(loan)
        if self.source.pool is not None and loan.connection is not None:
            self._cleanup.start(self._keep_or_close(loan.connection), partial(terminate, loan.connection))

    def _keep(self, connection: Connection) -> None:
        if self.source.pool is None:
            super()._keep(connection)
        else:
            self._cleanup.start(self._keep_or_close(connection), partial(terminate, connection))

    async def _keep_or_close(self, connection: Connection) -> None:
        pool = self.source.pool
        if pool is None:
            await super()._keep_or_close(connection)
            return
        try:
            await pool.release(connection, timeout=CLOSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the pool cuts it off
            logger.debug(
                "a connection of the user's pool couldn't be given back in order: %s",
                error,
                extra=event("store.connection_cut"),
            )
