"""Deciding ticks: each by whoever locks its schedule's row while that has still the next tick that was read.

Nobody waits for a row that another one has locked, as that one is deciding it, unless there's nothing else to decide. So no two
transactions wait for each other's schedules, in whatever order they're given. What a schedule looks at beside its own row is
looked at by later statements: the one that locks it is older than its wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.postgres._connections_source import HOLD_BRIEFLY, WAIT_BRIEFLY
from aioqueue.postgres._schedules_rows import NEXT_AT
from aioqueue.store_rules._schedules import ENQUEUED_BEFORE, KEPT_TICKS, OVERLAPPED
from aioqueue.vocabulary._schedules import DecidedTick, Ticked, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._insert import Inserter, Written
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Inserted, NewJob
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._schedules import Tick

__all__ = ["decide", "tick_statements"]

_MOST_WAITS = 5
_WAIT_FOR_ANOTHER = "SET LOCAL lock_timeout = '500ms'"
"""Whoever decides the same ticks is waited for, as that's mostly done in a moment; keys are waited for as briefly as always."""

# A time that never comes was given to it by whoever has found that there's none.
_AS_READ = f"""s.version = given.version AND (given.by_hand OR (
    NOT s.paused AND {NEXT_AT} IS NOT DISTINCT FROM given.expected AND s.next_at IS DISTINCT FROM 'infinity'))"""
_GIVEN = "unnest($1::text[], $2::integer[], $3::timestamptz[], $4::boolean[]) AS given(name, version, expected, by_hand)"
_LOCK = f"""SELECT locked.*, statement_timestamp() FROM {_GIVEN}
CROSS JOIN LATERAL (
    SELECT s.name, s.version, {NEXT_AT}, s.last_chain, s.paused FROM @schema@.schedule s
    WHERE s.name = given.name AND {_AS_READ} FOR UPDATE SKIP LOCKED) AS locked"""
_FIRST = f"""SELECT min(there.name) FROM {_GIVEN}
CROSS JOIN LATERAL (
    SELECT s.name FROM @schema@.schedule s WHERE s.name = given.name AND {_AS_READ} OFFSET 0) AS there"""
_WAIT = "SELECT s.name FROM @schema@.schedule s WHERE s.name = $1::text FOR UPDATE"
_LOOK = f"""SELECT given.name, given.nominal_at, NULL::uuid
FROM unnest($1::text[], $2::timestamptz[]) AS given(name, nominal_at)
CROSS JOIN LATERAL (
    SELECT FROM @schema@.schedule_tick t WHERE t.schedule = given.name AND t.nominal_at = given.nominal_at
      AND t.outcome <> {TickOutcome.SKIPPED:d} LIMIT 1) AS before
UNION ALL SELECT NULL, NULL, j.id FROM @schema@.job j WHERE j.id = ANY($3::uuid[])
UNION ALL SELECT NULL, NULL, j.chain_id FROM @schema@.job j WHERE j.chain_id = ANY($3::uuid[])"""
_KEEP = f"""WITH moved AS (
    UPDATE @schema@.schedule s
    SET next_at = CASE WHEN given.moves THEN coalesce(given.next_at, 'infinity') ELSE s.next_at END,
        last_at = greatest(s.last_at, given.last_at), last_chain = coalesce(given.last_chain, s.last_chain)
    FROM unnest($1::text[], $2::boolean[], $3::timestamptz[], $4::timestamptz[], $5::uuid[])
        AS given(name, moves, next_at, last_at, last_chain)
    WHERE s.name = given.name
)
INSERT INTO @schema@.schedule_tick AS t (schedule, nominal_at, decided_at, outcome, reason, chain_id, count)
SELECT * FROM unnest($6::text[], $7::timestamptz[], $8::timestamptz[], $9::smallint[], $10::text[], $11::uuid[], $12::integer[])
ON CONFLICT (schedule, nominal_at) DO UPDATE
    SET decided_at = excluded.decided_at, outcome = excluded.outcome, reason = excluded.reason,
        chain_id = excluded.chain_id, count = excluded.count
    WHERE t.outcome = {TickOutcome.SKIPPED:d}"""
# Those that are still to come, as the clock had jumped ahead, say what isn't to be enqueued again.
_FORGET = f"""WITH kept AS MATERIALIZED (
    SELECT given.name, oldest.nominal_at
    FROM unnest($1::text[]) AS given(name)
    CROSS JOIN LATERAL (
        SELECT t.nominal_at FROM @schema@.schedule_tick t
        WHERE t.schedule = given.name AND t.nominal_at <= statement_timestamp()
        ORDER BY t.nominal_at DESC OFFSET {KEPT_TICKS - 1} LIMIT 1) AS oldest
), gone AS MATERIALIZED (
    SELECT old.schedule, old.nominal_at
    FROM kept CROSS JOIN LATERAL (
        SELECT t.schedule, t.nominal_at FROM @schema@.schedule_tick t
        WHERE t.schedule = kept.name AND t.nominal_at < kept.nominal_at OFFSET 0) AS old
)
DELETE FROM @schema@.schedule_tick t USING gone WHERE t.schedule = gone.schedule AND t.nominal_at = gone.nominal_at"""


def tick_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "schedules_lock": _LOCK,
        "schedules_first": _FIRST,
        "schedules_wait": _WAIT,
        "schedules_look": _LOOK,
        "schedules_keep": _KEEP,
        "schedules_forget": _FORGET,
    }
    return {name: schema.render(template) for name, template in templates.items()}


async def decide(
    pool: Pool, statements: dict[str, str], inserter: Inserter, ticks: Sequence[Tick]
) -> tuple[list[Ticked], list[Notification]]:
    """Decide ticks and commit, as `aioqueue.abc.SupportsSchedules.tick` says; returns what listeners are to be told, too.

    Arguments:
        pool: For the client's own operations.
        statements: Those of this module, and maybe others.
        inserter: Of the same store.
        ticks: What was worked out.
    """
    if not ticks:
        return [], []

    async def change(connection: Connection) -> _Deciding:
        await connection.execute(HOLD_BRIEFLY)
        deciding = _Deciding(connection, statements, inserter, ticks)
        await deciding.run()
        return deciding

    done = await pool.transact(change)
    return done.results(), [each for written, jobs in done.written for each in written.notifications(jobs)]


@dataclass(slots=True)
class _Schedule:
    """One schedule, locked, as it's decided.

    Attributes:
        next_at, last_chain, paused: As stored.
        turns: Jobs that are to be enqueued, in order, with the places of their ticks.
        known: Nominal times that were enqueued before, those of this transaction too.
        moves: Whether its next tick becomes `next_at`.
        last_at: The newest tick that was decided here.
        kept: What is kept of these, by nominal time.
        lives: Whether the last chain was made here, so that it lives.
    """

    next_at: datetime | None
    last_chain: UUID | None
    paused: bool
    turns: deque[tuple[int, NewJob]] = field(default_factory=deque[tuple[int, "NewJob"]])
    known: set[datetime] = field(default_factory=set["datetime"])
    moves: bool = False
    last_at: datetime | None = None
    kept: dict[datetime, DecidedTick] = field(default_factory=dict["datetime", DecidedTick])
    lives: bool = False


class _Deciding:
    """One transaction.

    Arguments:
        connection: In the transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        inserter: Of the same store.
        ticks: What was worked out.

    Attributes:
        written: What was inserted.
    """

    def __init__(self, connection: Connection, statements: dict[str, str], inserter: Inserter, ticks: Sequence[Tick]) -> None:
        self._connection = connection
        self._statements = statements
        self._inserter = inserter
        self._ticks = ticks
        self._schedules: dict[str, _Schedule] = {}
        self._decided: list[list[DecidedTick] | None] = [None] * len(ticks)
        self._now: datetime | None = None
        self.written: list[tuple[Written, Sequence[NewJob]]] = []

    def results(self) -> list[Ticked]:
        """What has become of each."""
        return [Ticked(decided=done is not None, ticks=tuple(done or ())) for done in self._decided]

    async def run(self) -> None:
        """Decide what is left to decide."""
        versions = await self._lock()
        for place, tick in enumerate(self._ticks):
            if (schedule := self._schedules.get(tick.name)) is not None and versions[tick.name] == tick.version:
                self._begin(place, tick, schedule)
        while turns := self._next_turns():
            await self._enqueue(turns)
        for done, tick in zip(self._decided, self._ticks, strict=True):
            if done is not None:
                self._skip(done, tick)
        if changed := {name: each for name, each in self._schedules.items() if each.moves or each.kept}:
            await self._keep(changed)

    async def _lock(self) -> dict[str, int]:
        """Lock the schedules that are as they were read; returns their versions.

        Raises:
            asyncpg.PostgresError: Others have locked all of them for longer than they may be waited for.
        """
        ticks = self._ticks
        given = (
            [each.name for each in ticks],
            [each.version for each in ticks],
            [each.expected for each in ticks],
            [each.by_hand for each in ticks],
        )
        for _ in range(_MOST_WAITS):
            rows = await self._connection.fetch(self._statements["schedules_lock"], *given)
            if rows:
                break
            # Mostly somebody else has decided all of them. What is there still, somebody else has locked.
            first = await self._connection.fetch(self._statements["schedules_first"], *given)
            if first[0][0] is None:
                return {}
            await self._connection.execute(_WAIT_FOR_ANOTHER)
            await self._connection.fetch(self._statements["schedules_wait"], first[0][0])
            await self._connection.execute(WAIT_BRIEFLY)
        else:
            return {}
        self._now = rows[0][5]
        self._schedules = {row[0]: _Schedule(row[2], row[3], row[4]) for row in rows}
        return {row[0]: row[1] for row in rows}

    def _begin(self, place: int, tick: Tick, schedule: _Schedule) -> None:
        """Move the schedule on, unless another tick of this batch has done so."""
        if not tick.by_hand:
            if schedule.moves or schedule.paused or schedule.next_at != tick.expected:
                return
            schedule.moves, schedule.next_at = True, tick.next_at
        self._decided[place] = []
        schedule.turns.extend((place, job) for job in tick.jobs)

    def _next_turns(self) -> list[tuple[_Schedule, int, NewJob]]:
        """What is enqueued next: of each schedule all, up to one that looks whether the one before it has ended."""
        turns: list[tuple[_Schedule, int, NewJob]] = []
        for schedule in self._schedules.values():
            first = True
            while schedule.turns and (first or not self._ticks[schedule.turns[0][0]].alone):
                turns.append((schedule, *schedule.turns.popleft()))
                first = False
        return turns

    async def _enqueue(self, turns: Sequence[tuple[_Schedule, int, NewJob]]) -> None:
        live = await self._look(turns)
        new: list[tuple[_Schedule, int, NewJob]] = []
        for schedule, place, job in turns:
            nominal = self._nominal_time(job)
            if nominal in schedule.known:
                # What is kept of it stays as it is.
                self._note(place, schedule, self._skipped(nominal, ENQUEUED_BEFORE), keep=False)
            elif self._ticks[place].alone and (schedule.lives or schedule.last_chain in live):
                self._note(place, schedule, self._skipped(nominal, OVERLAPPED))
            else:
                schedule.known.add(nominal)
                new.append((schedule, place, job))
        if not new:
            return
        jobs = [job for _, _, job in new]
        written = await self._inserter.insert_ticks(self._connection, jobs)
        self.written.append((written, jobs))
        for (schedule, place, job), result in zip(new, written.results, strict=True):
            schedule.lives = result.created or result.replaced
            self._note(place, schedule, self._stored(job, result))

    async def _look(self, turns: Iterable[tuple[_Schedule, int, NewJob]]) -> set[UUID]:
        """See which of their nominal times were enqueued before; returns which of the chains before them live."""
        names: list[str] = []
        nominal: list[datetime] = []
        chains: set[UUID] = set()
        for schedule, place, job in turns:
            tick = self._ticks[place]
            names.append(tick.name)
            nominal.append(self._nominal_time(job))
            if tick.alone and schedule.last_chain is not None and not schedule.lives:
                chains.add(schedule.last_chain)
        rows = await self._connection.fetch(self._statements["schedules_look"], names, nominal, list(chains))
        for name, at, _ in rows:
            if name is not None:
                self._schedules[name].known.add(at)
        return {row[2] for row in rows if row[0] is None}

    def _note(self, place: int, schedule: _Schedule, done: DecidedTick, *, keep: bool = True) -> None:
        """Note what has become of a tick."""
        decided = self._decided[place]
        assert decided is not None
        decided.append(done)
        if keep:
            schedule.kept[done.nominal_time] = done
        if done.chain_id is not None:
            schedule.last_chain = done.chain_id
        if not self._ticks[place].by_hand:
            schedule.last_at = done.nominal_time if schedule.last_at is None else max(schedule.last_at, done.nominal_time)

    def _skip(self, done: list[DecidedTick], tick: Tick) -> None:
        """Note what wasn't to be enqueued."""
        schedule = self._schedules[tick.name]
        for skipped in tick.skipped:
            told = self._skipped(skipped.nominal_time, skipped.reason, skipped.count)
            done.append(told)
            schedule.kept.setdefault(told.nominal_time, told)
            if not tick.by_hand:
                schedule.last_at = told.nominal_time if schedule.last_at is None else max(schedule.last_at, told.nominal_time)

    def _nominal_time(self, job: NewJob) -> datetime:
        assert self._now is not None
        return self._now if job.origin is None or job.origin.nominal_time is None else job.origin.nominal_time

    def _skipped(self, nominal_time: datetime, reason: str, count: int = 1) -> DecidedTick:
        assert self._now is not None
        return DecidedTick(
            nominal_time=nominal_time, decided_at=self._now, outcome=TickOutcome.SKIPPED, reason=reason, count=count
        )

    def _stored(self, job: NewJob, result: Inserted) -> DecidedTick:
        assert self._now is not None
        chain_id: UUID = getattr(result.refused, "chain_id", result.id)
        enqueued = result.created or result.replaced
        return DecidedTick(
            nominal_time=self._nominal_time(job),
            decided_at=self._now,
            outcome=TickOutcome.ENQUEUED if enqueued else TickOutcome.DUPLICATE,
            chain_id=chain_id,
        )

    async def _keep(self, changed: dict[str, _Schedule]) -> None:
        """Write what has become of the schedules, and forget what became of their ticks long ago."""
        ticks = [(name, tick) for name, each in changed.items() for tick in each.kept.values()]
        await self._connection.fetch(
            self._statements["schedules_keep"],
            list(changed),
            [each.moves for each in changed.values()],
            [each.next_at for each in changed.values()],
            [each.last_at for each in changed.values()],
            [each.last_chain for each in changed.values()],
            [name for name, _ in ticks],
            [tick.nominal_time for _, tick in ticks],
            [tick.decided_at for _, tick in ticks],
            [int(tick.outcome) for _, tick in ticks],
            [_storable(tick.reason) for _, tick in ticks],
            [tick.chain_id for _, tick in ticks],
            [tick.count for _, tick in ticks],
        )
        if ticks:
            await self._connection.fetch(self._statements["schedules_forget"], list({name for name, _ in ticks}))


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
