"""The rows of the store in memory, and the mistakes that it can make with them."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.abc import JobFilter, Listener, Notification
from aioqueue.errors import RowRejected
from aioqueue.vocabulary._job import (
    AttemptError,
    Claim,
    Inserted,
    Job,
    LostReason,
    NewJob,
    SettlementKind,
    StoredState,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FOR_EVER = datetime.max.replace(tzinfo=UTC)
"""Stands for an infinite due time."""
RESOLUTION = timedelta(microseconds=1)
KNOWN = frozenset(int(state) for state in StoredState)


class Bug(StrEnum):
    """Mistakes that real queues have made."""

    ATTEMPT_KEPT_ON_RELEASE = "a release doesn't give the attempt back"
    ATTEMPT_KEPT_ON_RESCHEDULE = "a reschedule counts as an attempt"
    ATTEMPTS_KEPT_ON_RETRY = "an operator's retry goes on with the old attempts"
    BAD_CURSOR_ACCEPTED = "a cursor that isn't one starts from the beginning"
    CLAIM_WITHOUT_DUE = "a claim takes jobs that aren't due"
    CLAIM_WITHOUT_FENCE_COUNT = "claims aren't counted"
    CLAIM_WITHOUT_LEASE = "a claim works with any lease"
    CLAIM_WITHOUT_ORDER = "a claim takes the first inserted"
    CLAIM_WITHOUT_TYPES = "a claim takes unknown types"
    CLOSED_STORE_WORKS = "a closed store goes on"
    COMPLETED_ARE_LOST = "completed jobs aren't kept"
    DELETE_RUNNING = "running jobs can be deleted"
    DUE_FOR_EVER = "an infinite due time is waited for"
    DUE_IN_THE_PAST = "a due time in the past stays there"
    DUE_WITHOUT_LEASES = "nobody is told when a lease runs out"
    DUE_WITHOUT_ORPHANS = "nobody is told of jobs without a lease"
    ERRORS_UNBOUNDED = "all errors are kept"
    EXPIRED_AFTER_RELEASE_UNMARKED = "an expired job that was given back isn't marked again"
    EXPIRED_AFTER_START = "a job that started in time expires all the same"
    EXPIRED_AT_RECOVERY = "a job that started in time expires when its worker dies"
    EXPIRED_UNMARKED = "expired jobs aren't marked"
    LATE_RENEWAL_REFUSED = "an expired lease can't be renewed"
    LEASE_IDS_COUNTED = "lease ids come again after a restore"
    LEASE_OF_TYPE_IGNORED = "all jobs are taken for the first lease"
    LEASE_OF_TYPE_UNCHECKED = "a claim looks at the first lease only"
    LEASE_ROW_UNCHECKED = "a settlement doesn't look at the lease's row"
    LEASE_UNCHECKED = "a settlement doesn't compare the lease"
    CLAIMS_UNCHECKED = "a settlement doesn't compare the claims"
    LISTING_BY_AGE = "a listing shows the oldest first"
    NOTIFY_BEFORE_COMMIT = "listeners hear of a transaction's jobs before its commit"
    LOCKED_ROWS_STOP_NEIGHBOURS = "one locked row makes a whole batch wait"
    NONSENSE_IN_SETTLEMENTS = "a delay that makes no sense stops its batch for ever"
    ODD_ROWS_STOP_CLAIMS = "an odd row stops all claims"
    ODD_ROWS_STOP_RECOVERY = "an odd row stops all recovery"
    ORPHANS_UNCHECKED = "jobs of living workers can be settled as orphans"
    ORPHANS_WITHOUT_ROW_MISSED = "jobs whose lease row was deleted aren't found"
    OWN_LEASES_TAKEN = "a worker takes its own lease"
    RELEASE_UNFENCED = "a release takes jobs of others"
    REPEATED_INSERT_AFTER_END = "a repeated insert stores a finished job again"
    REPEATED_SETTLE_REFUSED = "a repeated settlement is refused"
    RETRY_AT_ONCE = "a retry's delay is ignored"
    RETRY_BREAKS_UNIQUE = "a retry takes a key that another job holds"
    ROLLBACK_KEEPS = "a rollback keeps the jobs"
    SILENT = "nobody is told"
    STATS_WITHOUT_ARCHIVE = "finished jobs aren't counted"
    TAKES_VALID_LEASES = "valid leases are taken"
    UNHELD_UNTOLD = "a renewal doesn't tell what isn't held"
    UNIQUE_IGNORED = "unique keys aren't"
    UNIQUE_FOR_EVER = "a unique key isn't free after the end"


@dataclass
class Row:
    new: NewJob
    created_at: datetime
    run_at: datetime
    expires_at: datetime | None
    state: int = StoredState.PENDING
    attempt: int = 0
    claims: int = 0
    lease_id: int = 0
    reschedules: int = 0
    started_at: datetime | None = None
    expired: bool = False
    odd: str = ""
    finished_at: datetime | None = None
    output: bytes | None = None
    outcome: str | None = None
    errors: tuple[AttemptError, ...] = ()
    written: SettlementKind | None = None

    @property
    def live(self) -> bool:
        return self.state < StoredState.COMPLETED or self.state not in KNOWN

    @property
    def claim(self) -> Claim:
        return Claim(self.new.id, self.claims)


@dataclass
class Database:
    """What several stores share."""

    bugs: frozenset[Bug] = frozenset()
    rows: dict[UUID, Row] = field(default_factory=dict)
    leases: dict[int, tuple[str, datetime]] = field(default_factory=dict)
    extra_leases: set[int] = field(default_factory=set)
    counted: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    locked: set[UUID] = field(default_factory=set[UUID])
    skipped: timedelta = timedelta()
    listeners: list[Listener] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: sqlite3.Connection = field(
        default_factory=lambda: sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    )

    def now(self) -> datetime:
        return datetime.now(UTC) + self.skipped

    def valid(self, lease_id: int) -> bool:
        return lease_id in self.leases and self.leases[lease_id][1] > self.now()

    def tell(self, notification: Notification) -> None:
        if Bug.SILENT not in self.bugs:
            for listener in list(self.listeners):
                listener(notification)

    def pending(self, names: set[str], delay: float = 0.0) -> None:
        if names:
            self.tell(Notification(types=frozenset(names), delay=delay))


def why(row: Row) -> LostReason:
    if row.state in (StoredState.COMPLETED, StoredState.FAILED):
        return LostReason.COMPLETED
    return LostReason.CANCELLED if row.state == StoredState.CANCELLED else LostReason.TAKEN


def fits(job: Job, where: JobFilter) -> bool:
    return (
        (not where.states or job.state in where.states)
        and (not where.types or job.type in where.types)
        and (where.key is None or job.key == where.key)
        and (where.tag is None or where.tag in job.tags)
    )


def _same_type(one: NewJob, other: NewJob) -> bool:
    """Whether they're of one type, also if it was renamed between them."""
    return bool({one.type, *one.aliases} & {other.type, *other.aliases})


def holder(database: Database, rows: dict[UUID, Row], new: NewJob) -> UUID | None:
    """Whose the unique key is."""
    for row in rows.values():
        held = row.live or Bug.UNIQUE_FOR_EVER in database.bugs
        if held and row.new.unique and row.new.key == new.key and _same_type(row.new, new):
            return row.new.id
    return None


def insert(database: Database, rows: dict[UUID, Row], jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Inserted]:
    """Store jobs among the rows."""
    now = database.now()
    results: list[Inserted] = []
    stored = dict(rows)
    for new in jobs:
        there = new.id if new.id in stored else None
        if repeated and there is not None and not stored[there].live and Bug.REPEATED_INSERT_AFTER_END in database.bugs:
            there = None
        if there is None and new.unique and Bug.UNIQUE_IGNORED not in database.bugs:
            there = holder(database, stored, new)
        if there is not None:
            results.append(Inserted(there, created=False))
            continue
        sense(new.timeout or 0)
        run_at = due(now, new.run_at, new.delay)
        if Bug.DUE_IN_THE_PAST not in database.bugs:
            run_at = max(run_at, now)
        expires_at = None if new.expires is None else due(run_at, None, new.expires)
        stored[new.id] = Row(new, now, run_at, expires_at)
        results.append(Inserted(new.id, created=True))
    rows |= stored
    return results


def sense(seconds: float) -> timedelta:
    """A duration, if it makes sense."""
    try:
        return timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        raise RowRejected(f"not a number of seconds: {seconds!r}") from None


def due(now: datetime, moment: datetime | None, delay: float | None) -> datetime:
    """When a job is due."""
    if moment is not None and moment.tzinfo is None:
        raise RowRejected("a time without a zone")
    return moment or now + sense(delay or 0)
