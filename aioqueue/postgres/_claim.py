"""Claiming: lanes, quotas and floors.

A lane is one type at one priority: a range of the ready index. The statement looks at the heads of all lanes without
locking, merges those of one priority in turn to see how many of each lane come first, and takes that many of each, skipping
what others have locked. While there's a backlog, a worker's next claim begins in each lane where its last one ended: past the
index entries of jobs that have been claimed but not vacuumed. What was committed late, with an earlier due time, is found from
the beginning: by a claim that comes up short, and otherwise once a second. Where that has become slow (somebody keeps an old
snapshot, so that vacuum can't remove anything), it costs at most a twentieth of the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import LeaseLost, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.postgres._claim_blockers import claim_blockers_statements, with_blockers
from aioqueue.postgres._claim_lanes import READY, lanes_of
from aioqueue.postgres._claim_owners import ALL_VALID, LOGGED, OWNERS, Owners, claimed
from aioqueue.postgres._claim_parking import park, parking_statements
from aioqueue.postgres._claim_singly import SingleClaims
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._pauses_parked import key_is_paused, type_is_free
from aioqueue.postgres._rows import claimed_job
from aioqueue.store_rules._quotas import Rooms
from aioqueue.store_rules._turns import Turns, urgency_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = ["Claims", "Owners", "Throttle", "claim_statements", "lanes_of"]


# With so many heads for each job that's wanted, fewer are looked at in each lane from then on.
_MANY_HEADS = 4
_FEWEST_HEADS = 10
_MOST_ROUNDS = 6
_FROM_THE_BEGINNING_SECONDS = 1.0
"""Between claims that don't begin at the floors, while there's a backlog."""
_PARKING_SECONDS = 0.5
"""For which a claim goes on to park what has a paused key, where it comes to nothing else: the next one continues."""
_PARKING_SECONDS_LATER = 0.05
"""The same where it has taken something, which waits for it."""

_CLAIM = f"""WITH {OWNERS}, pausing AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM @schema@.pause) AS yes
), lane AS MATERIALIZED (
    SELECT given.type, given.priority, coalesce(given.floor_at, '-infinity'::timestamptz) AS floor_at,
           coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid) AS floor_id, given.turn
    FROM unnest($3::text[], $4::smallint[], $5::timestamptz[], $6::uuid[], $10::integer[])
        AS given(type, priority, floor_at, floor_id, turn)
    WHERE {ALL_VALID} AND @free@
), heads AS MATERIALIZED (
    SELECT lane.type, lane.priority, lane.turn, head.run_at, head.id, head.place
    FROM lane CROSS JOIN LATERAL (
        SELECT first.run_at, first.id, row_number() OVER (ORDER BY first.run_at, first.id) AS place
        FROM (SELECT j.run_at, j.id FROM {READY} LIMIT $7::integer) AS first
    ) AS head
), edge AS MATERIALIZED (
    SELECT min(priority) AS priority FROM heads WHERE place = $7::integer
), quota AS MATERIALIZED (
    SELECT type, priority, count(*) AS jobs
    FROM (SELECT heads.type, heads.priority FROM @heads@ AS heads CROSS JOIN edge
          WHERE (edge.priority IS NULL OR heads.priority <= edge.priority) AND @room@
          ORDER BY heads.priority, heads.place, heads.turn, heads.run_at, heads.id LIMIT $2::integer) AS first
    GROUP BY type, priority
), @picked@, @claimed@
SELECT (SELECT array_agg(wanted.id) FROM unnest($1::bigint[]) AS wanted(id) WHERE wanted.id NOT IN (SELECT id FROM owner)),
       (SELECT coalesce(sum(jobs), 0)::integer FROM quota), (SELECT priority IS NOT NULL FROM edge),
       (SELECT count(*) FROM heads), (SELECT yes FROM pausing), @left@, claimed.*
FROM {LOGGED} LEFT JOIN claimed ON true WHERE logged.done IS NULL"""

_COLUMNS_ABOUT_THE_CLAIM, _PAUSING = 6, 4
_TAKEN = f"""FROM lane JOIN quota ON quota.type = lane.type AND quota.priority = lane.priority
    CROSS JOIN LATERAL (SELECT @columns@ FROM {READY} LIMIT quota.jobs FOR UPDATE OF j SKIP LOCKED) AS taken"""
# Most claims meet no pauses at all: theirs looks whether there are any, and takes nothing then.
_WITHOUT_PAUSES = {
    "@free@": "NOT (SELECT yes FROM pausing)",
    "@picked@": f"picked AS MATERIALIZED (SELECT taken.id {_TAKEN.replace('@columns@', 'j.id')})",
    "@left@": "NULL::text[]",
}
# The lanes with something that has a paused key come as texts.
_WITH_PAUSES = {
    "@free@": type_is_free("given.type"),
    "@picked@": f"""met AS MATERIALIZED (
    SELECT lane.priority || ' ' || lane.type AS lane, taken.id, {key_is_paused("taken.key")} AS paused
    {_TAKEN.replace("@columns@", "j.id, j.key")}
), picked AS MATERIALIZED (SELECT id FROM met WHERE NOT paused)""",
    "@left@": "(SELECT array_agg(DISTINCT lane) FROM met WHERE paused)",
}
_WITHOUT_QUOTAS = {"@heads@": "heads", "@room@": "true"}
# Of each quota's types the first ones in the claim's order, as many as it has room for.
_WITH_QUOTAS = {
    "@heads@": """(
        SELECT heads.*, quota.jobs AS room, row_number() OVER (
            PARTITION BY quota.number
            ORDER BY heads.priority, heads.place, heads.turn, heads.run_at, heads.id) AS place_in_quota
        FROM heads LEFT JOIN unnest($11::text[], $12::integer[], $13::integer[]) AS quota(type, number, jobs)
            ON quota.type = heads.type)""",
    "@room@": "(heads.room IS NULL OR heads.place_in_quota <= heads.room)",
}
_NAMES = {
    (pausing, dry_run, quotas): f"claim{'_pausing' * pausing}{'_dry' * dry_run}{'_quotas' * quotas}"
    for pausing in (False, True)
    for dry_run in (False, True)
    for quotas in (False, True)
}
"""The statement, by whether there are pauses, whether it's a dry run, and whether there are quotas."""


def claim_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    statements = {**parking_statements(schema), **claim_blockers_statements(schema)}
    for (pausing, dry_run, quotas), name in _NAMES.items():
        sql = _CLAIM.replace("@claimed@", claimed("$8", "$9", dry_run=dry_run))
        parts = (_WITH_PAUSES if pausing else _WITHOUT_PAUSES) | (_WITH_QUOTAS if quotas else _WITHOUT_QUOTAS)
        for mark, text in parts.items():
            sql = sql.replace(mark, text)
        statements[name] = schema.render(sql)
    return statements


@dataclass(frozen=True, slots=True)
class _Found:
    """What one statement has come to.

    Attributes:
        jobs: What it has taken.
        missed: Whether it didn't take all that it saw: others were quicker, or it has left some.
        cut: Whether it looked at too few heads.
        paused: The lanes in which it met jobs with a paused key, which it has left.
        floors: Where it began in those, unless at their beginning.
    """

    jobs: list[ClaimedJob]
    missed: bool
    cut: bool
    paused: set[Lane]
    floors: dict[Lane, Floor]


class Claims:
    """Claims over one reserved connection, with the floors of the lanes.

    Arguments:
        connection: The connection.
        schema: Where the tables are.
    """

    def __init__(self, connection: ReservedConnection, schema: Schema) -> None:
        self._connection = connection
        self._singly = SingleClaims(connection, schema)
        self._statements = claim_statements(schema)
        self._floors: dict[Lane, Floor] = {}
        self._lanes: dict[tuple[str, ...], tuple[list[str], list[int]]] = {}
        self._crowded: set[tuple[str, ...]] = set()
        self._full = Throttle()
        self._turns = Turns()
        self._backlog = False
        self._pausing = False

    @property
    def pause(self) -> float:
        """Seconds until a claim may start from the beginning again; 0 unless that has become slow."""
        return self._full.pause if self._floors else 0.0

    async def claim(
        self,
        lease_id: int,
        types: Sequence[str],
        limit: int,
        *,
        leases: Mapping[str, int] | None = None,
        dry_run: bool = False,
        quotas: Sequence[Quota] = (),
    ) -> list[ClaimedJob]:
        """Take due jobs, as `aioqueue.abc.Store.claim` says."""
        if limit < 1 or not types:
            return []
        taken: list[ClaimedJob] = []
        marked: set[UUID] = set()
        repeated = False
        owners, rooms = Owners.of(lease_id, leases or {}), Rooms(quotas)
        full = self.pause == 0 and (not self._backlog or time.monotonic() - self._full.last > _FROM_THE_BEGINNING_SECONDS)
        rounds, parked, began = 0, 0, time.monotonic()
        while rounds < _MOST_ROUNDS and (names := [name for name in types if rooms.has_room(name)]):
            try:
                found = await self._round(owners, names, limit - len(taken), marked, rooms, full=full, dry_run=dry_run)
                taken.extend(found.jobs)
                rooms.fill(job.type for job in found.jobs)
                parked = await self._park(found) if found.paused else 0
            except (StoreError, LeaseLost) as error:
                if taken:
                    break  # what was taken before is worth having; the next call meets the same error
                if not isinstance(error, StoreError) or isinstance(error, (StoreUnavailable, StoreIncompatible)):
                    raise
                taken = await self._singly.claim(owners, lanes_of(names), limit, marked, error, rooms, dry_run=dry_run)
                break
            enough = _PARKING_SECONDS_LATER if taken else _PARKING_SECONDS
            if len(taken) >= limit or (parked and time.monotonic() - began > enough):
                break
            rounds += not parked
            if parked or (found.cut and found.jobs) or (found.missed and not repeated):
                repeated = repeated or not (parked or found.cut)
                full = False
            elif not full and self._floors and self.pause == 0:
                full = True
            else:
                break
        self._backlog = len(taken) >= limit or parked > 0
        self._turns.serve({job.type for job in taken})
        taken.sort(key=urgency_of)
        if marked:
            return await with_blockers(self._connection.fetch, self._statements["claim_blockers"], taken, marked)
        return taken

    async def _round(
        self,
        owners: Owners,
        types: Sequence[str],
        limit: int,
        marked: set[UUID],
        rooms: Rooms,
        *,
        full: bool,
        dry_run: bool,
    ) -> _Found:
        """One statement. The ids of marked ones are added to `marked`."""
        names = tuple(types)
        lanes = self._lanes.get(names)
        if lanes is None:
            lanes = self._lanes[names] = lanes_of(names)
        floors: list[tuple[datetime, UUID] | None] = [None] * len(lanes[0])
        if not full:
            floors = [self._floors.get(lane) for lane in zip(*lanes, strict=True)]
        heads = max(_FEWEST_HEADS, -(-limit // _MANY_HEADS)) if names in self._crowded else limit
        began = time.monotonic()
        rows = await self._fetch(
            owners.leases,
            limit,
            *lanes,
            [floor and floor[0] for floor in floors],
            [floor and floor[1] for floor in floors],
            heads,
            owners.types,
            owners.of_types,
            [self._turns.of(name) for name in lanes[0]],
            quotas=rooms.left(),
            dry_run=dry_run,
        )
        if full:
            self._full.done(began, time.monotonic())
        lost, quota, cut, seen, _, paused = rows[0][:_COLUMNS_ABOUT_THE_CLAIM]
        if seen > _MANY_HEADS * limit >= _MANY_HEADS * _FEWEST_HEADS:
            self._crowded.add(names)
        elif seen <= 2 * heads:
            self._crowded.discard(names)  # a lane or two: their jobs would come in small portions
        if lost:
            raise LeaseLost(f"not valid any more: lease {', '.join(map(str, lost))}; nothing was claimed")
        jobs = [claimed_job(row[_COLUMNS_ABOUT_THE_CLAIM:]) for row in rows if row[_COLUMNS_ABOUT_THE_CLAIM] is not None]
        marked.update(row[_COLUMNS_ABOUT_THE_CLAIM] for row in rows if row[-1])
        left = {(name, int(priority)) for priority, _, name in (each.partition(" ") for each in paused or ())}
        begun = {} if full else {lane: self._floors[lane] for lane in left if lane in self._floors}
        self._raise_floors(jobs)
        return _Found(jobs, quota > len(jobs), cut, left, begun)

    async def _fetch(self, *arguments: Any, quotas: Sequence[Quota], dry_run: bool) -> Sequence[Row]:
        """Run the statement that fits: what it says of pauses was so at the moment at which it looked for jobs."""
        if quotas:
            rooms = [(name, number, quota.jobs) for number, quota in enumerate(quotas) for name in quota.types]
            arguments = (*arguments, *map(list, zip(*rooms, strict=True)))
        if not self._pausing:
            rows = await self._connection.fetch(self._statements[_NAMES[False, dry_run, bool(quotas)]], *arguments)
            if not rows[0][_PAUSING]:
                return rows
        rows = await self._connection.fetch(self._statements[_NAMES[True, dry_run, bool(quotas)]], *arguments)
        self._pausing = rows[0][_PAUSING]
        return rows

    async def _park(self, found: _Found) -> int:
        """Park what has a paused key where some was met; returns how many."""
        parked, fronts = await park(self._connection, self._statements["claim_park"], found.paused, found.floors)
        for lane, front in fronts.items():
            self._floors[lane] = max(front, self._floors.get(lane, front))
        return parked

    def _raise_floors(self, jobs: Sequence[ClaimedJob]) -> None:
        ends: dict[Lane, tuple[Any, Any]] = {}
        for job in jobs:
            lane, place = (job.type, job.priority), (job.run_at, job.id)
            if lane not in ends or ends[lane] < place:
                ends[lane] = place
        self._floors.update(ends)
