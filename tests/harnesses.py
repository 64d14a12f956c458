"""What the conformance cases need to know of our two stores."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import asyncpg

from aioqueue.testing import Capability, Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from uuid import UUID

    from aioqueue.abc import Store


class _Harness:
    """Two stores on one database.

    Arguments:
        url: The database's, which is fresh.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = self.new_store()
        self._second: Store | None = None

    def new_store(self) -> Store:
        raise NotImplementedError

    async def open(self) -> None:
        await self.store.open()

    async def second_store(self) -> Store:
        if self._second is None:
            self._second = self.new_store()
            await self._second.open()
        return self._second

    async def close(self) -> None:
        if self._second is not None:
            await self._second.close()
        await self.store.close()


class SQLiteHarness(_Harness):
    """On one file."""

    capabilities = frozenset(
        {
            Capability.NAMES_TYPES,
            Capability.NAMES_FINISHED,
            Capability.KNOWS_GIVEN,
            Capability.TELLS_DELIVERIES,
            Capability.TELLS_SCHEDULES,
        }
    )
    resolution = timedelta(microseconds=1)

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(f"sqlite:///{quote(str(path))}")

    def new_store(self) -> Store:
        from aioqueue.sqlite import make_store  # lazy: the other store's tests don't need it

        return make_store(self.url)

    def execute(self, *statements: tuple[str, Sequence[object]]) -> None:
        """Run statements in one transaction, as somebody at the database's prompt might."""
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            for sql, arguments in statements:
                connection.execute(sql, arguments)
            connection.execute("commit")

    async def age(self, seconds: float) -> None:
        by = round(seconds * 1_000_000)
        columns = ("run_at", "created_at", "started_at", "expires_at")
        moved = ", ".join(f"{column} = {column} - ?1" for column in columns)
        ends = [(f"update {table} set expires_at = expires_at - ?1", [by]) for table in ("lease", "dedup", "duty", "reader")]
        times = ", ".join(f"{column} = {column} - ?1" for column in ("created_at", "next_at", "finished_at"))
        finished = "update archive set created_at = created_at - ?1, finished_at = finished_at - ?1, purge_at = purge_at - ?1"
        self.execute(
            (f"update job set {moved}", [by]),
            *ends,
            (f"update delivery set {times}", [by]),
            (finished, [by]),
            ("update event set at = at - ?1", [by]),
            ("update pause set at = at - ?1, until = until - ?1", [by]),
            ("update schedule_generation set live_until = live_until - ?1", [by]),
            ("update gate_rate set arrival = arrival - ?1, wake_at = wake_at - ?1", [by]),
        )

    async def spoil(self, job_id: UUID, fault: Fault) -> bool:
        changes = {
            Fault.PAYLOAD: "payload = '{broken'",
            Fault.STATE: "state = 3",
            Fault.ERRORS: """errors = '[1, "x", {"attempt": "y", "at": "yesterday"}, null]'""",
            Fault.TAGS: 'tags = \'{"not": ["a", "list"]}\'',
            Fault.DUE: "run_at = 9e999",
            Fault.TIMEOUT: "timeout = 9e999",
            Fault.CREATION: "created_at = x'00'",
            Fault.COUNTERS: "claims = 9223372036854775807, attempt = 9223372036854775807",
        }
        self.execute((f"update job set {changes[fault]} where id = ?", [str(job_id)]))
        return True

    async def delete_lease(self, lease_id: int) -> None:
        self.execute(("delete from lease where id = ?", [lease_id]))

    async def erase(self, job_id: UUID) -> None:
        self.execute(*[(f"delete from {table} where id = ?", [str(job_id)]) for table in ("job", "archive")])

    def locked(self, job_id: UUID) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError("SQLite locks the whole file")


class PostgresHarness(_Harness):
    """In one database."""

    capabilities = frozenset(Capability)
    resolution = timedelta(microseconds=1)

    store: Any
    _second: Any

    def new_store(self) -> Store:
        from aioqueue.postgres import make_store  # lazy: the other store's tests don't need it

        return make_store(self.url)

    async def execute(self, sql: str, *arguments: object) -> None:
        """Run a statement, as somebody at the database's prompt might."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql, *arguments)
        finally:
            await connection.close()

    async def age(self, seconds: float) -> None:
        def moved(table: str, *columns: str) -> str:
            return f"update aioqueue.{table} set " + ", ".join(f"{column} = {column} - $1::interval" for column in columns)

        beside = {
            "leases": moved("lease", "expires_at"),
            "windows": moved("dedup", "expires_at"),
            "archived": moved("archive", "created_at"),  # live again, it's as old as it is
            "deliveries": moved("delivery", "created_at", "next_at", "finished_at"),
            "pauses": moved("pause", "at", "until"),
            "generations": moved("schedule_generation", "live_until"),
            "rates": moved("gate_rate", "arrival", "wake_at"),
        }
        parts = ", ".join(f"{name} as ({update})" for name, update in beside.items())
        jobs = moved("job", "run_at", "created_at", "started_at", "expires_at")
        await self.execute(f"with {parts} {jobs}", timedelta(seconds=seconds))
        for store in (self.store, self._second):
            if store is not None:
                store._opened.claims._floors.clear()  # where the last claim ended: no due time ever moves back by itself

    async def spoil(self, job_id: UUID, fault: Fault) -> bool:
        changes = {
            Fault.PAYLOAD: "payload = '[1, 2]'",  # a column of type json refuses what isn't JSON
            Fault.STATE: "state = 3",
            Fault.ERRORS: """errors = array['1', '"x"', '{"attempt": "y", "at": "yesterday"}', 'null']::json[]""",
            Fault.DUE: "run_at = 'infinity'",
            Fault.TIMEOUT: "timeout = 'NaN'",
            Fault.CREATION: "created_at = '-infinity'",
            Fault.COUNTERS: "claims = 2147483647, attempt = 2147483647",
        }
        if fault not in changes:
            return False  # tags are an array of texts
        await self.execute(f"update aioqueue.job set {changes[fault]} where id = $1", job_id)
        return True

    async def delete_lease(self, lease_id: int) -> None:
        await self.execute("delete from aioqueue.lease where id = $1", lease_id)

    async def erase(self, job_id: UUID) -> None:
        for table in ("job", "archive"):
            await self.execute(f"delete from aioqueue.{table} where id = $1", job_id)

    @contextlib.asynccontextmanager
    async def locked(self, job_id: UUID) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                for table in ("job", "archive"):
                    await connection.execute(f"select from aioqueue.{table} where id = $1 for update", job_id)
                yield
        finally:
            await connection.close()
