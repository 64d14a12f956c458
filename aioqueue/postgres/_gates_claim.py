"""Claims of jobs that wait at gates: pick candidates, lock their gates, look at those, and take or park.

One transaction, whose locks are of two kinds in one order: jobs' rows, none of which is waited for, then gates. Promotion is
another one (see `_gates_promote`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_fair import FairTurns, fair_statements
from aioqueue.postgres._gates_lock import MOST_GATES, lock_gates
from aioqueue.postgres._gates_look import GateLooks
from aioqueue.postgres._gates_pick import pick, pick_one, pick_statements
from aioqueue.postgres._gates_promote import Promotions, promote_statements
from aioqueue.postgres._gates_take import Passing, begin_members, park, spend, take, take_statements
from aioqueue.store_rules._gates import Admission, Candidate, GateState, admit, gates_of, gates_of_all
from aioqueue.vocabulary._gate_values import sequence_of
from aioqueue.vocabulary._gates import GateKind, SequenceMember, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._claim_owners import Owners
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._gates_pick import Picked
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._turns import Turns
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["GateClaims", "Gated", "gates_claim_statements"]

_MORE_JOBS = 200
"""Candidates beside those that are wanted, once some had to be parked: a backlog of such is soon out of the way."""
_FEWEST_MORE = 10
"""Of them in each lane."""


def gates_claim_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {**pick_statements(schema), **take_statements(schema), **promote_statements(schema), **fair_statements(schema)}


@dataclass(slots=True)
class Gated:
    """What a claim at gates has come to.

    Attributes:
        jobs: Those that it has taken.
        marked: The ids of those of them that have waited for chains.
        parked: How many it has parked.
        closed: The types of which nobody else can go now: a gate is full that all of each have to pass.
        paused: The lanes in which it met jobs with a paused key, which it has left.
        fronts: How far it has taken or parked all that it saw in each lane.
    """

    jobs: list[ClaimedJob] = field(default_factory=list["ClaimedJob"])
    marked: set[UUID] = field(default_factory=set["UUID"])
    parked: int = 0
    closed: set[str] = field(default_factory=set[str])
    paused: set[Lane] = field(default_factory=set["Lane"])
    fronts: dict[Lane, Floor] = field(default_factory=dict["Lane", "Floor"])


class GateClaims:
    """Claims at gates, over the connection of the claims.

    Arguments:
        connection: The connection.
        schema: Where the tables are.
        origin: Who tells other processes; None if nobody is to be told.
        turns: Of the types.

    Attributes:
        promotions: Lets come whom gates have room for again.
        turns: Lets come whose turn it is.
    """

    def __init__(self, connection: ReservedConnection, schema: Schema, origin: str | None, turns: Turns) -> None:
        self._connection = connection
        self._statements = gates_claim_statements(schema)
        self._served = turns
        self._looks = GateLooks()
        self.promotions = Promotions(connection, self._statements, self._looks, origin)
        self.turns = FairTurns(connection, self._statements)

    async def claim(
        self,
        owners: Owners,
        wanted: Mapping[Lane, int],
        floors: Mapping[Lane, Floor],
        rules: Mapping[str, GateRules],
        *,
        more: bool,
        dry_run: bool,
    ) -> Gated:
        """Take jobs that wait at gates, as far as those let them through, and park others.

        Arguments:
            owners: The leases.
            wanted: How many of each lane.
            floors: Where it begins in each, unless at its beginning.
            rules: Of the types that have any.
            more: Whether to look at more than those that are wanted, to park what can't run.
            dry_run: Whether they're dry runs from now on.

        Raises:
            StoreError: Such as the refusal of one of the jobs.
            LeaseLost: One of the leases isn't valid; nothing was taken.
        """
        extra = max(_MORE_JOBS // len(wanted), _FEWEST_MORE) if more else 0
        lanes = {lane: jobs + extra for lane, jobs in wanted.items()}

        async def candidates(connection: Connection) -> list[Picked]:
            return await pick(connection, self._statements, lanes, floors, frozenset(rules))

        for waits in (True, False):  # where somebody keeps the lock of a gate, only those that need it are left
            with suppress(StoreContended):
                async with self._connection.transaction(HOLD_BRIEFLY) as connection:
                    picked = await candidates(connection)
                    return await self._go(connection, owners, picked, wanted, rules, waits=waits, dry_run=dry_run)
        return Gated()

    async def claim_one(self, owners: Owners, job_id: UUID, rules: Mapping[str, GateRules], *, dry_run: bool) -> Gated:
        """Take one job, or park it: see `claim`."""
        try:
            async with self._connection.transaction(HOLD_BRIEFLY) as connection:
                picked = await pick_one(connection, self._statements, job_id)
                wanted = {each.lane: 1 for each in picked}
                return await self._go(connection, owners, picked, wanted, rules, waits=True, dry_run=dry_run)
        except StoreContended:
            return Gated()

    async def _go(
        self,
        connection: Connection,
        owners: Owners,
        picked: Sequence[Picked],
        wanted: Mapping[Lane, int],
        rules: Mapping[str, GateRules],
        *,
        waits: bool,
        dry_run: bool,
    ) -> Gated:
        """All of it but the pick, within the transaction."""
        done = Gated(paused={each.lane for each in picked if each.paused})
        gates = self._gates(picked, rules)
        lock: Collection[str] = {gate for way in gates.values() for gate in way}
        if lock and not waits:
            free = set(await lock_gates(connection, self._statements, lock, waits=False))
            gates, lock = {job_id: way for job_id, way in gates.items() if free.issuperset(way)}, ()
        candidates = [each for each in picked if each.id in gates]
        if not candidates:
            return done
        ways = dict.fromkeys(gate for each in candidates for gate in gates[each.id])
        states: dict[str, GateState] = {}
        begun = self._begun(candidates, rules)
        if ways:
            begin = partial(begin_members, connection, self._statements, begun) if begun else None
            states = await self._looks.look(connection, self._statements, ways, lock=lock, prepare=begin)
        members = {each.id for each in candidates if each.sequence is not None} | {job_id for job_id, _, _ in begun}
        admission = self._admit(candidates, gates, states, wanted)
        if admission.goes:
            passing = _passing(candidates, gates, set(admission.goes))
            done.jobs, done.marked = await take(connection, self._statements, owners, passing, dry_run=dry_run)
        if admission.parked:
            await park(connection, self._statements, admission.parked, members)
            done.parked = len(admission.parked)
            done.closed = _closed(candidates, admission.parked, rules)
        await self._spend(connection, ways, admission)
        done.fronts = _fronts(picked, {*admission.goes, *admission.parked})
        return done

    def _gates(self, picked: Sequence[Picked], rules: Mapping[str, GateRules]) -> dict[UUID, tuple[str, ...]]:
        """The gates of candidates, the first of each lane before others; without those for which there are too many gates."""
        gates: dict[UUID, tuple[str, ...]] = {}
        known: set[str] = set()
        places: Counter[Lane] = Counter()
        order: list[tuple[int, Picked]] = []
        for each in picked:
            places[each.lane] += 1
            order.append((places[each.lane], each))
        for _, each in sorted(order, key=itemgetter(0)):
            if not each.paused:
                own = gates_of(rules.get(each.type), each.sequence, each.payload, each.metadata)
                if len(known) + sum(gate not in known for gate in own) <= MOST_GATES:
                    known.update(own)
                    gates[each.id] = own
        return gates

    def _begun(self, candidates: Sequence[Picked], rules: Mapping[str, GateRules]) -> list[tuple[UUID, UUID, SequenceMember]]:
        """Those that are put in a sequence by their type, and aren't stored as such yet."""
        begun: list[tuple[UUID, UUID, SequenceMember]] = []
        for each in candidates:
            of_type = rules.get(each.type)
            if of_type is not None and each.sequence is None:
                name = sequence_of(of_type, each.payload, each.metadata)
                if name is not None:
                    begun.append(
                        (each.id, each.chain_id, SequenceMember(name=name, strict=of_type.strict, block=of_type.block))
                    )
        return begun

    def _admit(
        self,
        picked: Sequence[Picked],
        gates: Mapping[UUID, tuple[str, ...]],
        states: dict[str, GateState],
        wanted: Mapping[Lane, int],
    ) -> Admission:
        """Decide. Those beyond what's wanted of their lane are only looked at to see whether they're parked."""
        places: dict[Lane, int] = {}
        order: list[tuple[tuple[int, int, int], Picked]] = []
        for each in picked:
            place = places[each.lane] = places.get(each.lane, 0) + 1
            order.append(((each.priority, place, self._served.of(each.type)), each))
        order.sort(key=lambda item: (*item[0], item[1].run_at, item[1].id))
        first = [Candidate(each.id, gates[each.id]) for (_, place, _), each in order if place <= wanted[each.lane]]
        rest = [Candidate(each.id, gates[each.id]) for (_, place, _), each in order if place > wanted[each.lane]]
        admission = admit(first, states, len(first))
        if rest:
            for gate, used in admission.used.items():
                state = states[gate]
                states[gate] = GateState(
                    free=None if state.free is None else state.free - used, head=None, sequence=state.sequence
                )
            admission.parked.update(admit(rest, states, 0).parked)
        return admission

    async def _spend(self, connection: Connection, gates: Mapping[str, None], admission: Admission) -> None:
        rates = {gate: admission.used.get(gate, 0) for gate in gates if kind_of(gate) is GateKind.RATE}
        waiting = {gate for gate in admission.parked.values() if gate in rates}
        if used := {gate: starts for gate, starts in rates.items() if starts or gate in waiting}:
            await spend(connection, self._statements, used, waiting)


def _passing(candidates: Sequence[Picked], gates: Mapping[UUID, tuple[str, ...]], goes: set[UUID]) -> list[Passing]:
    """Those that go through; while they run they have places at all gates but rates."""
    has_places = {gate: kind_of(gate) is not GateKind.RATE for gate in {gate for own in gates.values() for gate in own}}
    passing: list[Passing] = []
    for each in candidates:
        if each.id in goes:
            own = gates[each.id]
            come = each.gates or () if each.gate is not None else ()
            passing.append(Passing(each.id, own, tuple(gate for gate in own if has_places[gate]), come))
    return passing


def _closed(candidates: Sequence[Picked], parked: Mapping[UUID, str], rules: Mapping[str, GateRules]) -> set[str]:
    """The types of which some are parked at a gate that all have to pass."""
    where = {(each.type, parked[each.id]) for each in candidates if each.id in parked and each.type in rules}
    return {name for name, gate in where if gate in gates_of_all(rules[name])}


def _fronts(picked: Sequence[Picked], gone: set[UUID]) -> dict[Lane, Floor]:
    """How far each lane has nothing left, of what was seen."""
    fronts: dict[Lane, Floor] = {}
    ended: set[Lane] = set()
    for each in picked:
        if each.id not in gone:
            ended.add(each.lane)
        elif each.lane not in ended:
            fronts[each.lane] = (each.run_at, each.id)
    return fronts
