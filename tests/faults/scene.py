"""One fault test's stage: a database, a ledger, worker processes, and what is checked when it's over."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from anyio import to_thread

from aioqueue import Client, Job, JobHandle
from tests.faults import app
from tests.postgres_server import execute
from tests.processes import Entry, Ledger, WorkerProcess, check_ledger, check_logs, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FAST = {
    "AIOQUEUE_LEASE": "3s",
    "AIOQUEUE_RENEW_EVERY": "1s",
    "AIOQUEUE_POLL_INTERVAL": "500ms",
    "AIOQUEUE_GRACE": "5s",
    "AIOQUEUE_CONCURRENCY": "4",
}
"""Settings that make recovery quick."""


def _first_on(first: str, second: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", [first, pytest.param(second, marks=pytest.mark.soak)], indirect=True)


FIRST_ON_SQLITE, FIRST_ON_POSTGRES = _first_on("sqlite", "postgres"), _first_on("postgres", "sqlite")
"""Tests that take seconds and have little to do with the store: on the other one only in the long run."""

_LOST = re.compile(r"(?:lease|attempt) \d+ is (?:lost|over)")
"""What the log says of what was the worker's own; it says also that it takes over jobs of lost workers."""

ORPHANS = """
select count(*) from {job} as job where state = 2
and not exists (select 1 from {lease} as lease where lease.id = job.lease_id and lease.expires_at > {now})
"""


class Scene:
    """See above.

    Arguments:
        url: The database, as the workers see it.
        folder: For files.
        direct: The database without a proxy in between, if there's one.
    """

    def __init__(self, url: str, folder: Path, *, direct: str | None = None) -> None:
        self.url = url
        self.direct = direct or url
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.workers: list[WorkerProcess] = []
        self.hit: set[int] = set()
        """The process ids of workers that were killed or stopped: their attempts may have no end, or a late one."""

    @property
    def on_sqlite(self) -> bool:
        return self.direct.startswith("sqlite")

    def worker(
        self,
        *options: str,
        url: str | None = None,
        clock: Path | None = None,
        schedules: Mapping[str, object] | None = None,
        serves: str = "app",
        **settings: str,
    ) -> WorkerProcess:
        """Start a worker. Settings are names without `AIOQUEUE_`; `clock` is a file of `tests.faults.clock`.

        `schedules` are those of `tests.faults.scheduled`, which it runs then; `serves` is the module whose registry it runs.
        """
        environment = {**FAST, **{f"AIOQUEUE_{name.upper()}": value for name, value in settings.items()}}
        if clock is not None:
            environment["FAULTS_CLOCK"] = str(clock)
        served = f"tests.faults.{serves}:registry"
        if schedules is not None:
            served = "tests.faults.scheduled:registry"
            environment |= {"FAULTS_SCHEDULES": json.dumps(schedules), "FAULTS_RECONCILED": "0.3 1.5"}
        worker = WorkerProcess(url or self.url, self.ledger, self.folder, *options, app=served, environment=environment)
        self.workers.append(worker)
        return worker.start()

    def client(self, **options: Any) -> Client:
        return Client(self.direct, **options)

    def gate(self, name: str = "gate") -> Path:
        """A file that doesn't exist yet, for jobs that run until it does."""
        return self.folder / name

    # -- signals ------------------------------------------------------------------------------------------------------

    def kill(self, worker: WorkerProcess) -> None:
        self.hit.add(worker.pid)
        worker.kill()

    async def freeze(self, worker: WorkerProcess) -> None:
        """SIGSTOP at a moment when the worker holds no lock: what it holds while it's frozen nobody else gets."""
        self.hit.add(worker.pid)
        deadline = time.monotonic() + 60
        while True:
            worker.stop()
            if await to_thread.run_sync(self._writable):
                return
            worker.cont()
            assert time.monotonic() < deadline, "the worker always holds a lock"

    def _writable(self) -> bool:
        try:
            if self.on_sqlite:
                with closing(sqlite3.connect(self.direct.removeprefix("sqlite:///"), timeout=2, isolation_level=None)) as other:
                    other.execute("begin immediate")
                    other.execute("rollback")
            else:
                with psycopg.connect(self.direct, autocommit=True) as other:
                    other.execute("set lock_timeout = '2s'")
                    other.execute("begin; lock table aioqueue.job, aioqueue.lease in share row exclusive mode; rollback")
        except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
            return False
        return True

    # -- states -------------------------------------------------------------------------------------------------------

    async def started(self, count: int) -> None:
        """Wait until the ledger has that many starts."""
        await until(lambda: self.ledger.count("start") >= count, f"{count} starts", story=self.story)

    async def ended(self, count: int) -> None:
        """Wait until the ledger has that many ends."""
        await until(lambda: self.ledger.count("end") >= count, f"{count} ends", story=self.story)

    async def finished(self, handles: Sequence[JobHandle[Any]], *, within: float = 180.0) -> list[Job]:
        """Wait until all these jobs are finished; gives their snapshots."""

        async def all_are() -> bool:
            return all([(await handle.snapshot()).state.finished for handle in handles])

        await until(all_are, "the end of all jobs", within=within, story=self.story)
        return [await handle.snapshot() for handle in handles]

    def story(self) -> str:
        """What the ledger and the workers' logs say, for whoever reads a failure."""
        lines = [str(entry) for entry in self.ledger.entries()[-40:]]
        logs = [f"--- {worker.log.name} ({worker.process.poll()})\n{worker.output()[-4000:]}" for worker in self.workers]
        return "\n".join([*lines, *logs])

    @staticmethod
    def age(entry: Entry) -> float:
        """Seconds since an entry was written."""
        return time.monotonic() - entry.at

    def late(self) -> set[int]:
        """The process ids of workers that have lost a lease or an attempt, and may go on for a moment with it."""
        return {worker.pid for worker in self.workers if _LOST.search(worker.output())}

    def orphans(self) -> int:
        """How many jobs are running without a valid lease."""
        if self.on_sqlite:
            now = f"{time.time_ns() // 1000}"
            with closing(sqlite3.connect(self.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
                found: int = connection.execute(ORPHANS.format(job="job", lease="lease", now=now)).fetchone()[0]
                return found
        rows = execute(self.direct, ORPHANS.format(job="aioqueue.job", lease="aioqueue.lease", now="clock_timestamp()"))
        return int(str(rows[0][0]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else can claim or settle meanwhile: they wait for a lock. On SQLite nobody can write at all."""
        if self.on_sqlite:
            with closing(sqlite3.connect(self.direct.removeprefix("sqlite:///"), timeout=60, isolation_level=None)) as other:
                other.execute("begin immediate")
                yield
                other.execute("rollback")
        else:
            with psycopg.connect(self.direct) as other, other.transaction(force_rollback=True):
                other.execute("lock table aioqueue.job in exclusive mode")
                yield

    def waiting(self) -> bool:
        """Whether somebody waits for a lock; SQLite doesn't tell, and says yes."""
        if self.on_sqlite:
            return True
        return bool(execute(self.direct, "select 1 from pg_stat_activity where wait_event_type = 'Lock'"))

    def forget_leases(self) -> None:
        """Delete all lease rows, as somebody tidying up might."""
        if self.on_sqlite:
            with closing(sqlite3.connect(self.direct.removeprefix("sqlite:///"), timeout=60)) as connection, connection:
                connection.execute("delete from lease")
        else:
            execute(self.direct, "delete from aioqueue.lease")

    # -- the end ------------------------------------------------------------------------------------------------------

    async def check(self, jobs: Sequence[Job]) -> None:
        """What must hold after every case: see `check_ledger`, and no job runs without a lease, and all workers still work."""
        await until(lambda: self.orphans() == 0, "no job without a lease", story=self.story)
        jobs = [*jobs, *await self._canaries()]
        check_ledger(self.ledger, jobs, killed=self.hit | self.late())

    async def _canaries(self) -> list[Job]:
        """Every worker that is alive, and not restricted to some types, runs a job. Returns the jobs."""
        waited_for = {worker.pid for worker in self.workers if worker.alive and "--types" not in worker.options}
        jobs: list[Job] = []
        deadline = time.monotonic() + 120
        async with self.client() as client:
            while waited_for:
                calls = [app.nap(0.1 if len(waited_for) > 1 else 0) for _ in range(6 * len(waited_for) - 5)]
                done = await self.finished(await client.enqueue_many(calls))
                waited_for -= {job.output["pid"] for job in done}
                jobs += done
                assert time.monotonic() < deadline, f"workers that do nothing any more: {waited_for}\n{self.story()}"
        return jobs

    def close(self) -> None:
        """Kill what's left, and look at the logs."""
        for worker in self.workers:
            if worker.alive:
                worker.kill()
        check_logs(self.workers)
