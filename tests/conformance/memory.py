"""A store in memory that passes every case, with mistakes that can be switched on: the cases must find each."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.abc import Changed, Due, JobFilter, Listener, Notification, Page, Stats, TypeStats
from aioqueue.errors import LeaseLost, RowRejected
from aioqueue.store_rules._history import KEPT_ERRORS
from aioqueue.store_rules._life import StoreLife
from aioqueue.vocabulary._job import (
    AttemptError,
    Claim,
    ClaimedJob,
    Inserted,
    Job,
    JobState,
    LostReason,
    NewJob,
    Settlement,
    SettlementKind,
    SettleResult,
    StoredState,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from tests.conformance.memory_database import FOR_EVER, KNOWN, Bug, Database, Row, due, fits, holder, insert, why
from tests.conformance.memory_parts import MemorySession, MemoryTransaction, Opened, subscribed, tell_inserted

__all__ = ["MemoryStore"]

_AS_INSERTED = ("id", "type", "payload", "priority", "max_attempts", "timeout", "key", "tags")
_AS_STORED = (
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "attempt",
    "outcome",
    "errors",
    "expires_at",
    "reschedules",
)


class MemoryStore:
    """See the module."""

    description = "memory"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.bugs = database.bugs
        self._life: StoreLife[Opened] = StoreLife(self.description)

    @property
    def database(self) -> Database:
        """What the store is about: each method asks for it first."""
        if Bug.CLOSED_STORE_WORKS not in self.bugs:
            self._life.here()
        return self._database

    def _check(self) -> None:
        _ = self.database

    @property
    def troubles(self) -> Mapping[str, str]:
        return {}

    async def open(self) -> None:
        await self._life.open(Opened)

    async def close(self) -> None:
        await self._life.close()

    # -- producers ------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        async with self.database.turn:
            results = insert(self.database, self.database.rows, jobs, repeated=repeated)
        tell_inserted(self.database, jobs)
        return results

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryTransaction]:
        async with self.database.turn:
            transaction = MemoryTransaction(self.database, lambda: self.database)
            users = self.database.users
            users.execute("begin")
            try:
                yield transaction
                transaction.check_open()
            except BaseException:
                users.execute("rollback")
                if Bug.ROLLBACK_KEEPS in self.bugs:
                    self.database.rows = transaction.rows
                raise
            users.execute("commit")
            self.database.rows = transaction.rows
        tell_inserted(self.database, transaction.inserted)

    # -- workers --------------------------------------------------------------------------------------------------

    async def open_lease(self, worker: str, duration: float, *, extra: bool = False) -> int:
        database = self.database
        lease_id = secrets.randbelow(2**62) + 1
        if Bug.LEASE_IDS_COUNTED in self.bugs:
            lease_id = next(database.counted)
        database.leases[lease_id] = (worker, database.now() + timedelta(seconds=duration))
        if extra:
            database.extra_leases.add(lease_id)
        return lease_id

    def lease_session(self, *, timeout: float = 10.0) -> MemorySession:
        return MemorySession(self.database, self._life.home)

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        database, now = self.database, self.database.now()
        named = {lease_id, *(leases or {}).values()} if Bug.LEASE_OF_TYPE_UNCHECKED not in self.bugs else {lease_id}
        if not all(map(database.valid, named)) and Bug.CLAIM_WITHOUT_LEASE not in self.bugs:
            raise LeaseLost("a lease isn't valid")
        own = leases or {} if Bug.LEASE_OF_TYPE_IGNORED not in self.bugs else {}
        ready = [
            row
            for row in database.rows.values()
            if row.state == StoredState.PENDING
            and (row.new.type in types or Bug.CLAIM_WITHOUT_TYPES in self.bugs)
            and (row.run_at <= now or Bug.CLAIM_WITHOUT_DUE in self.bugs)
        ]
        ready = self._sound(ready, Bug.ODD_ROWS_STOP_CLAIMS)
        if Bug.CLAIM_WITHOUT_ORDER not in self.bugs:
            ready.sort(key=lambda row: (row.new.priority, row.run_at, row.new.id))
        for row in ready[:limit]:
            late = row.expires_at is not None and row.expires_at <= now and Bug.EXPIRED_UNMARKED not in self.bugs
            row.expired = late and (row.started_at is None or Bug.EXPIRED_AFTER_START in self.bugs)
            row.state, row.started_at, row.written = StoredState.RUNNING, now, None
            row.lease_id = own.get(row.new.type, lease_id)
            row.attempt += 1
            row.claims += Bug.CLAIM_WITHOUT_FENCE_COUNT not in self.bugs
        return [self._claimed(row) for row in ready[:limit]]

    def _sound(self, rows: list[Row], stops: Bug) -> list[Row]:
        if stops in self.bugs and any(row.odd for row in rows):
            return []
        for row in rows:
            if row.odd:
                error = AttemptError(attempt=0, at=self.database.now(), type="UnreadableRow", message=row.odd)
                row.state, row.errors, row.odd, row.finished_at = StoredState.FAILED, (error,), "", self.database.now()
        return [row for row in rows if row.state != StoredState.FAILED]

    def _claimed(self, row: Row, *, recovered: bool = False) -> ClaimedJob:
        new = row.new
        assert row.started_at is not None
        expired = row.expired and not recovered
        if recovered and Bug.EXPIRED_AT_RECOVERY in self.bugs:
            expired = row.expires_at is not None and row.expires_at <= self.database.now()
        return ClaimedJob(
            **{name: getattr(new, name) for name in _AS_INSERTED},
            attempt=row.attempt,
            claims=row.claims,
            lease_id=row.lease_id,
            created_at=row.created_at,
            run_at=row.run_at,
            started_at=row.started_at,
            retry=new.retry,
            expired=expired,
            reschedules=row.reschedules,
            metadata=new.metadata,
        )

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        self._check()
        locked = {each.id for each in settlements if each.id in self.database.locked}
        if locked and Bug.LOCKED_ROWS_STOP_NEIGHBOURS in self.bugs:
            return [SettleResult(busy=True) for _ in settlements]
        return [
            SettleResult(busy=True) if each.id in locked else self._settle_alone(each, orphaned=orphaned)
            for each in settlements
        ]

    def _settle_alone(self, each: Settlement, *, orphaned: bool) -> SettleResult:
        try:
            return SettleResult(self._settle(each, orphaned=orphaned))
        except RowRejected as error:
            if Bug.NONSENSE_IN_SETTLEMENTS in self.bugs:
                raise ValueError(str(error)) from error
            return SettleResult(LostReason.ERROR, str(error))

    def _owned(self, row: Row, claims: int, lease_id: int) -> bool:
        return (
            row.state == StoredState.RUNNING
            and (row.claims == claims or Bug.CLAIMS_UNCHECKED in self.bugs)
            and (row.lease_id == lease_id or Bug.LEASE_UNCHECKED in self.bugs)
        )

    def _settle(self, each: Settlement, *, orphaned: bool) -> LostReason | None:
        database = self.database
        row = database.rows.get(each.id)
        if row is None:
            return LostReason.NOT_FOUND
        again = (row.claims, row.lease_id, row.written) == (each.claims, each.lease_id, each.kind)
        if again and Bug.REPEATED_SETTLE_REFUSED not in self.bugs:
            return None
        if orphaned:
            allowed = not database.valid(each.lease_id) or Bug.ORPHANS_UNCHECKED in self.bugs
        else:
            allowed = each.lease_id in database.leases or Bug.LEASE_ROW_UNCHECKED in self.bugs
        if not allowed or not self._owned(row, each.claims, each.lease_id):
            return why(row)
        self._write(row, each)
        if orphaned:
            database.leases.pop(each.lease_id, None)
        return None

    def _write(self, row: Row, each: Settlement) -> None:
        now = self.database.now()
        again = due(now, each.run_at, each.delay)
        row.written = each.kind
        if each.error is not None:
            row.errors = (*row.errors, each.error)
            if Bug.ERRORS_UNBOUNDED not in self.bugs:
                row.errors = row.errors[-KEPT_ERRORS:]
        if each.kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED):
            if each.kind is SettlementKind.RESCHEDULED:
                row.reschedules += 1
                row.attempt -= Bug.ATTEMPT_KEPT_ON_RESCHEDULE not in self.bugs
            delay = 0 if Bug.RETRY_AT_ONCE in self.bugs else each.delay or 0
            row.state = StoredState.PENDING
            row.run_at = max(now, again if delay or each.run_at else now)
            self.database.pending({row.new.type}, delay)
            return
        row.state, row.finished_at, row.output, row.outcome = int(each.kind), now, each.output, each.outcome
        if Bug.COMPLETED_ARE_LOST in self.bugs and each.kind is SettlementKind.COMPLETED:
            del self.database.rows[each.id]
        self.database.tell(Notification(finished=frozenset({each.id})))

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        with self.database.lock:
            for row in self.database.rows.values():
                named = row.claim in claims and (row.lease_id == lease_id or Bug.RELEASE_UNFENCED in self.bugs)
                ended = end and row.lease_id == lease_id
                if row.state != StoredState.RUNNING or not (named or ended) or lease_id not in self.database.leases:
                    continue
                row.state, row.run_at, row.written = StoredState.PENDING, self.database.now(), None
                row.attempt -= Bug.ATTEMPT_KEPT_ON_RELEASE not in self.bugs
                if not row.attempt and not row.reschedules and Bug.EXPIRED_AFTER_RELEASE_UNMARKED not in self.bugs:
                    row.started_at = None
                self.database.pending({row.new.type})
            if end:
                self.database.leases.pop(lease_id, None)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        database, now = self.database, self.database.now()
        own = own if Bug.OWN_LEASES_TAKEN not in self.bugs else ()
        ended = [
            lease_id
            for lease_id, (_, expires_at) in database.leases.items()
            if lease_id not in own and (expires_at < now or Bug.TAKES_VALID_LEASES in self.bugs)
        ][:1]
        for lease_id in ended:
            del database.leases[lease_id]
            database.tell(Notification(leases=frozenset({lease_id})))
        orphans = [
            row
            for row in self._orphans(own)
            if Bug.ORPHANS_WITHOUT_ROW_MISSED not in self.bugs or row.lease_id in (*ended, *database.leases)
        ]
        orphans = self._sound(orphans, Bug.ODD_ROWS_STOP_RECOVERY)
        orphans.sort(key=lambda row: row.new.id)
        return [self._claimed(row, recovered=True) for row in orphans[:limit]]

    def _orphans(self, own: Collection[int]) -> list[Row]:
        database = self.database
        running = [row for row in database.rows.values() if row.state == StoredState.RUNNING]
        return [row for row in running if row.lease_id not in own and not database.valid(row.lease_id)]

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        database, now = self.database, self.database.now()
        rows = [row for row in database.rows.values() if row.state == StoredState.PENDING and row.new.type in types]
        runs = [row.run_at for row in rows if row.run_at != FOR_EVER or Bug.DUE_FOR_EVER in self.bugs]
        ends = [end for lease_id, (_, end) in database.leases.items() if lease_id not in own]
        if any(row.lease_id not in database.leases for row in self._orphans(own)) and Bug.DUE_WITHOUT_ORPHANS not in self.bugs:
            ends.append(now)
        if Bug.DUE_WITHOUT_LEASES in self.bugs:
            ends = []
        return Due(
            job=min((max(0.0, (each - now).total_seconds()) for each in runs), default=None),
            lease=min((max(0.0, (each - now).total_seconds()) for each in ends), default=None),
        )

    # -- looking and operating ------------------------------------------------------------------------------------

    def _job(self, row: Row) -> Job:
        database = self.database
        state = StoredState(row.state).shown(due=row.run_at <= database.now()) if row.state in KNOWN else JobState.BLOCKED
        worker = database.leases.get(row.lease_id, (None,))[0] if row.state == StoredState.RUNNING else None
        return Job(
            **{name: getattr(row.new, name) for name in _AS_INSERTED},
            **{name: getattr(row, name) for name in _AS_STORED},
            state=state,
            worker=worker,
            output_json=row.output,
            metadata_json=row.new.metadata,
        )

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        self._check()
        rows = [self.database.rows.get(each) for each in ids]
        return [None if row is None else self._job(row) for row in rows]

    async def list(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        try:
            if cursor is not None and str(UUID(cursor)) != cursor:
                raise ValueError("not a cursor")
        except ValueError:
            if Bug.BAD_CURSOR_ACCEPTED not in self.bugs:
                raise
            cursor = None
        newest_first = Bug.LISTING_BY_AGE not in self.bugs
        rows = sorted(self.database.rows.values(), key=lambda row: row.new.id, reverse=newest_first)
        jobs = [job for row in rows if fits(job := self._job(row), where)]
        if cursor is not None:
            jobs = [job for job in jobs if (str(job.id) < cursor) == newest_first and str(job.id) != cursor]
        return Page(tuple(jobs[:limit]), str(jobs[limit - 1].id) if len(jobs) > limit else None)

    async def stats(self) -> Stats:
        now = self.database.now()
        counts: dict[str, dict[JobState, int]] = {}
        oldest: dict[str, float] = {}
        for row in self.database.rows.values():
            job = self._job(row)
            if job.state.finished and Bug.STATS_WITHOUT_ARCHIVE in self.bugs:
                continue
            of_type = counts.setdefault(job.type, {})
            of_type[job.state] = of_type.get(job.state, 0) + 1
            if job.state is JobState.READY:
                oldest[job.type] = max(oldest.get(job.type, 0.0), (now - job.run_at).total_seconds())
        types = {name: TypeStats(counts=of_type, oldest_ready=oldest.get(name)) for name, of_type in counts.items()}
        valid = {lease_id: worker for lease_id, (worker, end) in self.database.leases.items() if end > now}
        workers = tuple(worker for lease_id, worker in valid.items() if lease_id not in self.database.extra_leases)
        return Stats(types=types, workers=workers)

    async def retry(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        self._check()
        return [self._retry(each) for each in ids]

    def _retry(self, job_id: UUID) -> Changed:
        row = self.database.rows.get(job_id)
        if row is None:
            return Changed.NOT_FOUND
        if row.state == StoredState.RUNNING:
            return Changed.RUNNING
        held = row.new.unique and holder(self.database, self.database.rows, row.new) is not None
        if row.state not in (StoredState.FAILED, StoredState.CANCELLED) or (held and Bug.RETRY_BREAKS_UNIQUE not in self.bugs):
            return Changed.WRONG_STATE
        row.state, row.run_at, row.finished_at, row.expires_at = StoredState.PENDING, self.database.now(), None, None
        row.attempt = row.attempt if Bug.ATTEMPTS_KEPT_ON_RETRY in self.bugs else 0
        row.written = None
        self.database.pending({row.new.type})
        return Changed.DONE

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        self._check()
        return [self._run_now(each) for each in ids]

    def _run_now(self, job_id: UUID) -> Changed:
        row = self.database.rows.get(job_id)
        if row is None:
            return Changed.NOT_FOUND
        if row.state != StoredState.PENDING:
            return Changed.RUNNING if row.state == StoredState.RUNNING else Changed.WRONG_STATE
        row.run_at = min(row.run_at, self.database.now())
        self.database.pending({row.new.type})
        return Changed.DONE

    async def delete(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        self._check()
        return [self._delete(each) for each in ids]

    def _delete(self, job_id: UUID) -> Changed:
        row = self.database.rows.get(job_id)
        if row is None:
            return Changed.NOT_FOUND
        if row.state == StoredState.RUNNING and Bug.DELETE_RUNNING not in self.bugs:
            return Changed.RUNNING
        del self.database.rows[job_id]
        return Changed.DONE

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        return subscribed(self.database, listener)
