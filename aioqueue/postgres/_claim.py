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
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import LeaseLost, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.postgres._claim_blockers import with_blockers
from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_owners import Owners
from aioqueue.postgres._claim_parking import park
from aioqueue.postgres._claim_singly import SingleClaims
from aioqueue.postgres._claim_statements import COLUMNS_ABOUT_THE_CLAIM, PAUSING, claim_name, claim_statements
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._gates_claim import GateClaims, Gated
from aioqueue.postgres._gates_fair import waits_at_gates
from aioqueue.postgres._rows import claimed_job
from aioqueue.store_rules._quotas import Rooms, narrowed
from aioqueue.store_rules._turns import Turns, urgency_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._gates_refusals import Refusals
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._gates import GateRules
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What one statement has come to.

    Attributes:
        jobs: What it has taken.
        missed: Whether it didn't take all that it saw: others were quicker, or it has left some.
        cut: Whether it looked at too few heads.
        paused: The lanes in which it met jobs with a paused key, which it has left.
        gated: How many it has left in which lanes, since they may wait at gates.
        floors: Where it began in those, unless at their beginning.
    """

    jobs: list[ClaimedJob]
    missed: bool
    cut: bool
    paused: set[Lane]
    gated: dict[Lane, int]
    floors: dict[Lane, Floor]


class Claims:
    """Claims over one reserved connection, with the floors of the lanes.

    Arguments:
        connection: The connection.
        schema: Where the tables are.
        origin: Who tells other processes of jobs that were let come at gates; None if nobody is to be told.
    """

    def __init__(self, connection: ReservedConnection, schema: Schema, origin: str | None = None) -> None:
        self._connection = connection
        self._statements = claim_statements(schema)
        self._floors: dict[Lane, Floor] = {}
        self._lanes: dict[tuple[str, ...], tuple[list[str], list[int]]] = {}
        self._crowded: set[tuple[str, ...]] = set()
        self._full = Throttle()
        self._turns = Turns()
        self._gates = GateClaims(connection, schema, origin, self._turns)
        self._singly = SingleClaims(connection, schema, self._gates)
        self._backlog = False
        self._pausing = False
        self._marks = False
        self._fruitless = False  # whether the last claim has parked jobs, and taken none

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
        gates: Mapping[str, GateRules] | None = None,
    ) -> list[ClaimedJob]:
        """Take due jobs, as `aioqueue.abc.Store.claim` says."""
        if limit < 1 or not types:
            return []
        rules = gates or {}
        while True:
            await self._let_come(rules, types, limit)
            most = {name: self._gates.turns.most([name], limit) for name in self._gates.turns.sorting if name in rules}
            rooms = Rooms(narrowed(quotas, most))
            taken = await self._take(Owners.of(lease_id, leases or {}), types, limit, rooms, rules, dry_run=dry_run)
            if taken or 0 not in most.values():
                return taken

    async def _take(
        self,
        owners: Owners,
        types: Sequence[str],
        limit: int,
        rooms: Rooms,
        rules: Mapping[str, GateRules],
        *,
        dry_run: bool,
    ) -> list[ClaimedJob]:
        """Take jobs, once those that may come have been let come."""
        taken: list[ClaimedJob] = []
        marked: set[UUID] = set()
        closed: set[str] = set()
        repeated = was_parked = False
        full = self.pause == 0 and (not self._backlog or time.monotonic() - self._full.last > _FROM_THE_BEGINNING_SECONDS)
        rounds, parked, began = 0, 0, time.monotonic()
        while rounds < _MOST_ROUNDS and (names := [name for name in types if rooms.has_room(name) and name not in closed]):
            try:
                found = await self._round(owners, names, limit - len(taken), marked, rooms, rules, full=full, dry_run=dry_run)
                taken.extend(found.jobs)
                rooms.fill(job.type for job in found.jobs)
                parked = await self._park(found.paused, found.floors) if found.paused else 0
                if found.gated:
                    self._marks = True
                    gated = await self._take_gated(owners, found, rules, marked, rooms, more=was_parked, dry_run=dry_run)
                    taken.extend(gated.jobs)
                    parked += gated.parked
                    was_parked = was_parked or gated.parked > 0
                    if taken or not self._fruitless:
                        closed |= gated.closed  # there may be room again soon, and who is parked has to be let come first
            except (StoreError, LeaseLost) as error:
                if taken:
                    break  # what was taken before is worth having; the next call meets the same error
                if not isinstance(error, StoreError) or isinstance(error, (StoreUnavailable, StoreIncompatible)):
                    raise
                taken = await self._singly.claim(owners, lanes_of(names), limit, marked, error, rooms, rules, dry_run=dry_run)
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
        self._fruitless = was_parked and not taken
        self._turns.serve({job.type for job in taken})
        self._gates.turns.taken(rules, (job.type for job in taken), short=len(taken) < limit)
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
        rules: Mapping[str, GateRules],
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
        known = [name for name in rules if name in names]
        ruled = {name for name in known if waits_at_gates(rules[name])}
        in_turn = await self._gates.turns.heads(rules, types, limit) if rules and not self._pausing else []
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
            ruled=(list(ruled), in_turn) if known else None,
            dry_run=dry_run,
        )
        if full:
            self._full.done(began, time.monotonic())
        lost, quota, cut, seen, _, paused, at_gates = rows[0][:COLUMNS_ABOUT_THE_CLAIM]
        if seen > _MANY_HEADS * limit >= _MANY_HEADS * _FEWEST_HEADS:
            self._crowded.add(names)
        elif seen <= 2 * heads:
            self._crowded.discard(names)  # a lane or two: their jobs would come in small portions
        if lost:
            raise LeaseLost(f"not valid any more: lease {', '.join(map(str, lost))}; nothing was claimed")
        jobs = [claimed_job(row[COLUMNS_ABOUT_THE_CLAIM:]) for row in rows if row[COLUMNS_ABOUT_THE_CLAIM] is not None]
        marked.update(row[COLUMNS_ABOUT_THE_CLAIM] for row in rows if row[-1])
        left = {(name, int(priority)) for priority, _, name in (each.partition(" ") for each in paused or ())}
        gated: dict[Lane, int] = {}
        for each in at_gates or ():
            count, priority, name = each.split(" ", 2)
            gated[name, int(priority)] = gated.get((name, int(priority)), 0) + int(count)
        begun = {} if full else {lane: self._floors[lane] for lane in left | gated.keys() if lane in self._floors}
        self._took(jobs, set(in_turn))
        met = sum(count for (name, _), count in gated.items() if name not in ruled)
        return _Found(jobs, quota > len(jobs) + met, cut, left, gated, begun)

    async def _fetch(
        self, *arguments: Any, quotas: Sequence[Quota], ruled: tuple[list[str], list[UUID]] | None, dry_run: bool
    ) -> Sequence[Row]:
        """Run the statement that fits: what it says of pauses was so at the moment at which it looked for jobs."""
        if ruled is not None:
            arguments = (*arguments, *ruled)
        if quotas:
            rooms = [(name, number, quota.jobs) for number, quota in enumerate(quotas) for name in quota.types]
            arguments = (*arguments, *map(list, zip(*rooms, strict=True)))
        form = partial(claim_name, dry_run=dry_run, quotas=bool(quotas), gates=ruled is not None)
        if not self._pausing:
            rows = await self._connection.fetch(self._statements[form(pausing=False)], *arguments)
            if not rows[0][PAUSING]:
                return rows
        rows = await self._connection.fetch(self._statements[form(pausing=True)], *arguments)
        self._pausing = rows[0][PAUSING]
        return rows

    async def _let_come(self, rules: Mapping[str, GateRules], types: Sequence[str], limit: int) -> None:
        """Let come whom gates have room for again: before claims that know of rules, or where something is at gates."""
        if not (rules or self._marks):
            return
        self._marks = False
        come = await self._gates.promotions.run()
        came = {name for name, _ in come.firsts}
        done = await self._gates.turns.run(rules, types, limit, came, pausing=self._pausing)
        self._floors.update({lane: max(front, self._floors.get(lane, front)) for lane, front in done.fronts.items()})
        self._lower_floors(come.firsts)
        self._lower_floors(done.firsts)
        self._marks = bool(come.more or come.firsts)

    def _lower_floors(self, firsts: Mapping[Lane, Floor]) -> None:
        for lane, first in firsts.items():
            if lane in self._floors and self._floors[lane] >= first:
                del self._floors[lane]

    @property
    def refusals(self) -> tuple[Refusals, Refusals]:
        """The gates, and the types whose values take turns, that are left alone for the moment."""
        return self._gates.promotions.refusals, self._gates.turns.refusals

    @property
    def marks_floor(self) -> int:
        """Behind which mark others have to look."""
        return self._gates.promotions.floor

    def expect_marks(self) -> None:
        """Somebody has seen that marks were left at gates: the next claim begins with them."""
        self._marks = True
        self._gates.promotions.expect()

    async def _take_gated(
        self,
        owners: Owners,
        found: _Found,
        rules: Mapping[str, GateRules],
        marked: set[UUID],
        rooms: Rooms,
        *,
        more: bool,
        dry_run: bool,
    ) -> Gated:
        """Take what waits at gates, as far as they let it through. One that can't be claimed is left alone."""
        try:
            gated = await self._gates.claim(owners, found.gated, found.floors, rules, more=more, dry_run=dry_run)
        except (StoreUnavailable, StoreIncompatible):
            raise
        except StoreError as error:
            lanes = [name for name, _ in found.gated], [priority for _, priority in found.gated]
            jobs = await self._singly.claim(
                owners, lanes, sum(found.gated.values()), marked, error, rooms, rules, dry_run=dry_run
            )
            return Gated(jobs)
        rooms.fill(job.type for job in gated.jobs)
        marked.update(gated.marked)
        for lane, front in gated.fronts.items():
            self._floors[lane] = max(front, self._floors.get(lane, front))
        if gated.paused:
            gated.parked += await self._park(gated.paused, found.floors)
        return gated

    async def _park(self, lanes: set[Lane], floors: Mapping[Lane, Floor]) -> int:
        """Park what has a paused key where some was met; returns how many."""
        parked, fronts = await park(self._connection, self._statements["claim_park"], lanes, floors)
        for lane, front in fronts.items():
            self._floors[lane] = max(front, self._floors.get(lane, front))
        return parked

    def _took(self, jobs: Sequence[ClaimedJob], in_turn: set[UUID]) -> None:
        """Raise the floors, of lanes of pending jobs, and of those whose turn it was."""
        if in_turn:
            self._gates.turns.gone({job.id for job in jobs})
        ends: dict[Lane, tuple[Any, Any]] = {}
        for job in jobs:
            lane, place = (job.type, job.priority), (job.run_at, job.id)
            if job.id not in in_turn and (lane not in ends or ends[lane] < place):
                ends[lane] = place
        self._floors.update(ends)
