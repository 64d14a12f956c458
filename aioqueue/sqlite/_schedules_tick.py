"""Deciding ticks: a schedule's next tick is moved only from where it was seen, in the transaction that inserts its jobs.

Nobody can come in between: that transaction holds the write lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.errors import DuplicateJob
from aioqueue.sqlite._insert import insert_jobs
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_times import NOW, microseconds, moment
from aioqueue.sqlite._schedules_rows import NEVER, stored_time
from aioqueue.store_rules._schedules import ENQUEUED_BEFORE, KEPT_TICKS, OVERLAPPED
from aioqueue.vocabulary._schedules import DecidedTick, Ticked, TickOutcome

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import Inserted, NewJob
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._schedules import Tick

__all__ = ["decide_ticks"]

_LIVES = """(EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE job.chain_id = {0})
    OR EXISTS (SELECT 1 FROM job WHERE job.id = {0} AND job.chain_id IS NULL))"""

_LOOK = f"""
SELECT s.name, s.version, s.next_at, s.paused, s.last_chain IS NOT NULL AND {_LIVES.format("s.last_chain")}
FROM json_each(:names) AS asked CROSS JOIN schedule AS s ON s.name = asked.value
"""

_ENQUEUED = """
SELECT asked.value ->> 0, asked.value ->> 1 FROM json_each(:rows) AS asked
CROSS JOIN schedule_tick AS t ON t.schedule = asked.value ->> 0 AND t.nominal_at = asked.value ->> 1 WHERE t.outcome IN (1, 3)
"""

_LIVING = f"SELECT json_group_array(value) FROM json_each(:chains) AS asked WHERE {_LIVES.format('asked.value')}"

_MOVE = """
UPDATE schedule SET next_at = iif(n.value ->> 4, next_at, n.value ->> 1),
    last_at = iif(n.value ->> 2 IS NULL, last_at, max(coalesce(last_at, n.value ->> 2), n.value ->> 2)),
    last_chain = coalesce(n.value ->> 3, last_chain)
FROM json_each(:rows) AS n WHERE schedule.name = n.value ->> 0
"""

_KEEP = """
INSERT INTO schedule_tick (schedule, nominal_at, decided_at, outcome, reason, chain_id, count)
SELECT n.value ->> 0, n.value ->> 1, :now, n.value ->> 2, n.value ->> 3, n.value ->> 4, n.value ->> 5
FROM json_each(:rows) AS n WHERE true
ON CONFLICT (schedule, nominal_at) DO UPDATE SET decided_at = excluded.decided_at, outcome = excluded.outcome,
    reason = excluded.reason, chain_id = excluded.chain_id, count = excluded.count
WHERE schedule_tick.outcome = 2
"""
"""That one was enqueued is kept, whatever is said of it later."""

_FORGET = f"""
DELETE FROM schedule_tick WHERE (schedule, nominal_at) IN (
    SELECT t.schedule, t.nominal_at FROM json_each(:names) AS asked CROSS JOIN schedule_tick AS t ON t.schedule = asked.value
    WHERE t.nominal_at < (SELECT kept.nominal_at FROM schedule_tick AS kept WHERE kept.schedule = asked.value
                          ORDER BY kept.nominal_at DESC LIMIT 1 OFFSET {KEPT_TICKS - 1}))
"""


def decide_ticks(connection: sqlite3.Connection, ticks: Sequence[Tick]) -> tuple[list[Ticked], Notification | None]:
    """Decide ticks, as `aioqueue.abc.SupportsSchedules.tick` promises.

    Raises:
        RowRejected: One of the jobs can't be stored.
    """
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: dict[int, Ticked] = {}
    notifications: list[Notification] = []
    for part in _distinct(ticks):
        decisions = _still_theirs(connection, part, now)
        notifications += _insert(connection, list(decisions.values()))
        _write(connection, list(decisions.values()), now)
        results.update((place, each.answer) for place, each in decisions.items())
    undecided = Ticked(decided=False)
    return [results.get(place, undecided) for place in range(len(ticks))], merged(notifications)


def _distinct(ticks: Sequence[Tick]) -> list[dict[int, Tick]]:
    """Ticks by their places, in portions with one of each schedule: a second one is about what the first has left."""
    parts: list[dict[int, Tick]] = []
    earlier: dict[str, int] = {}
    for place, each in enumerate(ticks):
        part = earlier.get(each.name, 0)
        earlier[each.name] = part + 1
        if part == len(parts):
            parts.append({})
        parts[part][place] = each
    return parts


@dataclass(slots=True)
class _Decision:
    """What becomes of one tick.

    Attributes:
        tick: That.
        now: The database's time.
        overlapped: Whether the chain of the one before it lives, and that counts.
        jobs: Those of its jobs that are to be inserted, by their places.
        outcomes: What became of its jobs, by their places.
        following: The places of those that come after one that is inserted now, where only one may live.
        kept: What is written of it.
    """

    tick: Tick
    now: int
    overlapped: bool
    jobs: dict[int, NewJob] = field(default_factory=dict[int, "NewJob"])
    outcomes: dict[int, DecidedTick] = field(default_factory=dict[int, DecidedTick])
    following: list[int] = field(default_factory=list[int])
    kept: list[DecidedTick] = field(default_factory=list[DecidedTick])

    def nominal_time(self, job: NewJob) -> datetime:
        """For which tick a job is."""
        at = None if job.origin is None else job.origin.nominal_time
        return moment(self.now) if at is None else at

    @property
    def times(self) -> list[list[object]]:
        """Those of its jobs, as they're stored."""
        return [[self.tick.name, microseconds(self.nominal_time(job))] for job in self.tick.jobs]

    def sort(self, enqueued: Collection[tuple[str, int]]) -> None:
        """See which of its jobs are to be inserted, without ticks that were enqueued before."""
        for place, job in enumerate(self.tick.jobs):
            if (self.tick.name, microseconds(self.nominal_time(job))) in enqueued:
                self._skip(place, ENQUEUED_BEFORE)
            elif self.overlapped:
                self.keep(place, self._skip(place, OVERLAPPED))
            elif self.tick.alone and self.jobs:
                self.following.append(place)
            else:
                self.jobs[place] = job

    def _skip(self, place: int, reason: str) -> DecidedTick:
        decided = self._outcome(place, TickOutcome.SKIPPED, None, reason)
        self.outcomes[place] = decided
        return decided

    def _outcome(self, place: int, outcome: TickOutcome, chain: UUID | None, reason: str = "") -> DecidedTick:
        at = self.nominal_time(self.tick.jobs[place])
        return DecidedTick(nominal_time=at, decided_at=moment(self.now), outcome=outcome, chain_id=chain, reason=reason)

    def keep(self, place: int, decided: DecidedTick) -> None:
        """Note what became of one of its jobs, for good."""
        self.outcomes[place] = decided
        self.kept.append(decided)

    def inserted(self, place: int, result: Inserted) -> None:
        """Note what an insert says of one of its jobs."""
        if isinstance(result.refused, DuplicateJob):
            self.keep(place, self._outcome(place, TickOutcome.DUPLICATE, result.refused.chain_id))
        elif result.refused is not None:
            self.keep(place, self._skip(place, str(result.refused)))
        else:
            is_new = result.created or result.replaced
            outcome = TickOutcome.ENQUEUED if is_new else TickOutcome.DUPLICATE
            self.keep(place, self._outcome(place, outcome, result.id))

    def follow(self, living: frozenset[str]) -> None:
        """Decide those behind the one that was inserted: it's their predecessor."""
        (first,) = self.jobs
        chain = self.outcomes[first].chain_id
        for place in self.following:
            if str(chain) in living:
                self.keep(place, self._skip(place, OVERLAPPED))
            else:
                # It has found one that has ended, and so would they.
                self.keep(place, self._outcome(place, self.outcomes[first].outcome, chain, self.outcomes[first].reason))

    @property
    def answer(self) -> Ticked:
        """What is told of it."""
        own = [self.outcomes[place] for place in range(len(self.tick.jobs))]
        return Ticked(decided=True, ticks=(*own, *self._skipped))

    @property
    def _skipped(self) -> list[DecidedTick]:
        return [
            DecidedTick(
                nominal_time=each.nominal_time,
                decided_at=moment(self.now),
                outcome=TickOutcome.SKIPPED,
                reason=each.reason,
                count=each.count,
            )
            for each in self.tick.skipped
        ]

    @property
    def kept_rows(self) -> list[list[object]]:
        """What is kept of its ticks."""
        return [
            [
                self.tick.name,
                microseconds(each.nominal_time),
                int(each.outcome),
                each.reason,
                None if each.chain_id is None else str(each.chain_id),
                each.count,
            ]
            for each in (*self.kept, *self._skipped)
        ]

    @property
    def move(self) -> list[object]:
        """How its schedule is changed."""
        tick = self.tick
        times = [microseconds(each.nominal_time) for each in self.answer.ticks]
        chains = [each.chain_id for each in self.kept if each.chain_id is not None]
        last_at = max(times, default=None) if not tick.by_hand else None
        chain = str(chains[-1]) if chains else None
        return [tick.name, stored_time(tick.next_at, NEVER), last_at, chain, int(tick.by_hand)]


def _still_theirs(connection: sqlite3.Connection, ticks: dict[int, Tick], now: int) -> dict[int, _Decision]:
    """Those whose schedules are still as they were when the ticks were worked out."""
    rows = connection.execute(_LOOK, {"names": dump([each.name for each in ticks.values()])}).fetchall()
    found: dict[str, Sequence[Any]] = {name: row for name, *row in rows}
    decisions: dict[int, _Decision] = {}
    for place, each in ticks.items():
        if each.name in found:
            version, next_at, paused, lives = found[each.name]
            as_seen = each.by_hand or (next_at == stored_time(each.expected) and not paused)
            if version == each.version and as_seen:
                decisions[place] = _Decision(each, now, overlapped=bool(lives) and each.alone)
    return decisions


def _insert(connection: sqlite3.Connection, decisions: Sequence[_Decision]) -> list[Notification]:
    """Insert their jobs, and say what became of each."""
    asked = [time for each in decisions for time in each.times]
    if not asked:
        return []
    enqueued = frozenset(connection.execute(_ENQUEUED, {"rows": dump(asked)}).fetchall())
    for each in decisions:
        each.sort(enqueued)
    result = insert_jobs(connection, [job for each in decisions for job in each.jobs.values()], apart=True)
    answers = iter(result.inserted)
    for each in decisions:
        for place in each.jobs:
            each.inserted(place, next(answers))
    followed = [each for each in decisions if each.following]
    if followed:
        chains = dump([str(decided.chain_id) for each in followed for decided in each.kept])
        living = frozenset[str](load(connection.execute(_LIVING, {"chains": chains}).fetchone()[0]))
        for each in followed:
            each.follow(living)
    return [] if result.notification is None else [result.notification]


def _write(connection: sqlite3.Connection, decisions: Sequence[_Decision], now: int) -> None:
    """Move the schedules, and keep what became of their ticks."""
    if not decisions:
        return
    connection.execute(_MOVE, {"rows": dump([each.move for each in decisions])})
    kept = [row for each in decisions for row in each.kept_rows]
    if kept:
        connection.execute(_KEEP, {"rows": dump(kept), "now": now})
        connection.execute(_FORGET, {"names": dump(sorted({str(row[0]) for row in kept}))})
