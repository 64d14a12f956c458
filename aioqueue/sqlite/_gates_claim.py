"""Claims of jobs that wait at gates: what comes before them, and taking those that may run, with all the others."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import StoreError
from aioqueue.sqlite._claim_blockers import with_blockers
from aioqueue.sqlite._claim_lanes import quotas_as_json
from aioqueue.sqlite._claim_paused import PARKED_AT_ONCE, park
from aioqueue.sqlite._claim_take import pick, take
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._errors import concerns_a_row, translated
from aioqueue.sqlite._gates_fair import SORTED_AT_ONCE, FairLanes, wait_in_lanes
from aioqueue.sqlite._gates_look import GATE_WORK
from aioqueue.sqlite._gates_promote import promote_marked
from aioqueue.sqlite._gates_through import through_gates
from aioqueue.sqlite._rows_claimed import claimed_jobs
from aioqueue.store_rules._quotas import Rooms

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._claim_take import Wanted
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_news import GateNews, Refusals
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = ["BeforeGates", "Prepared", "claim_at_gates"]

T = TypeVar("T")

_ANY_WORK = f"SELECT {GATE_WORK}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done before a claim.

    Attributes:
        types: Of jobs that were let come.
        more: Whether more is to be done before it.
    """

    types: frozenset[str] = frozenset()
    more: bool = False


class BeforeGates:
    """What comes before the claims of one open store.

    Arguments:
        news: Knows what was refused lately.
    """

    def __init__(self, news: GateNews) -> None:
        self._news = news
        self._lanes = FairLanes(news.passed_over)

    def waits(self, connection: Statements, rules: Mapping[str, GateRules]) -> bool:
        """Whether there's something in fair lanes of these types that a claim would take."""
        return not self._news.turns.wait and wait_in_lanes(connection, _fair(rules), self._news.passed_over)

    def prepare(
        self, connection: sqlite3.Connection, rules: Mapping[str, GateRules], limit: int, *, some_are_stuck: bool
    ) -> Prepared:
        """Promote, and sort into fair lanes and let come from there, in the claim's own transaction, if there is anything.

        What can't be done keeps no claim from taking others.
        """
        types: set[str] | None = None
        more: bool | None = None
        if connection.execute(_ANY_WORK).fetchone()[0]:
            promote = functools.partial(promote_marked, passed_over=self._news.passed_over)
            types = _attempt(connection, self._news.promotion, promote)
        if fair := _fair(rules):
            take_turns = functools.partial(self._take_turns, fair=fair, limit=limit, some_are_stuck=some_are_stuck)
            more = _attempt(connection, self._news.turns, take_turns)
        return Prepared(frozenset(types or ()), bool(more))

    def _take_turns(self, connection: Statements, fair: Mapping[str, GateRules], limit: int, *, some_are_stuck: bool) -> bool:
        """Sort a portion of the due jobs; if those are all, let come whose turn it is. Returns whether there may be more."""
        if self._lanes.sort(connection, fair) == SORTED_AT_ONCE:
            return True
        if wait_in_lanes(connection, fair, self._news.passed_over):
            self._lanes.let_come(connection, fair, limit, some_are_stuck=some_are_stuck)
        return False


def _attempt(connection: sqlite3.Connection, refusals: Refusals, work: Callable[[Statements], T]) -> T | None:
    """Do it, unless it was refused a moment ago. If it's refused, nothing of it is left."""
    if refusals.wait:
        return None
    try:
        with translated(), in_savepoint(connection, "aioqueue_before_claim"):
            result = work(connection)
    except StoreError as error:
        if not concerns_a_row(error) or not connection.in_transaction:
            raise
        refusals.refused(error)
        return None
    refusals.done()
    return result


def _fair(rules: Mapping[str, GateRules]) -> dict[str, GateRules]:
    return {name: rule for name, rule in rules.items() if rule.fair_by is not None}


def claim_at_gates(
    connection: sqlite3.Connection, wanted: Wanted, rules: Mapping[str, GateRules], quotas: Sequence[Quota]
) -> tuple[list[ClaimedJob], int]:
    """Take due jobs that may run, and hold those that it comes to and that mustn't: their keys are paused, or gates closed.

    Arguments:
        connection: In a write transaction.
        wanted: What is asked for.
        rules: By type.
        quotas: Those that `wanted` has as JSON.

    Returns:
        The jobs, and how many are held since.

    Raises:
        LeaseLost: One of the leases isn't valid.
        Unreadable: One of the rows is odd.
        RowRejected: One of them can't be claimed, or held.
    """
    rooms = Rooms(quotas)
    jobs: list[ClaimedJob] = []
    held = 0
    while True:
        part = replace(wanted, limit=wanted.limit - len(jobs), quotas=quotas_as_json(rooms.left()))
        picked = pick(connection, part)
        if picked.paused:
            park(connection, picked.paused)
        taken = part.taken(picked.now)
        marked: list[UUID] = []
        gated: list[UUID] = []
        found = claimed_jobs(picked.rows, taken, marked, gated)
        passage = through_gates(connection, found, set(gated), rules, picked.now)
        if passage.jobs:
            take(connection, passage.jobs, taken)
            passage.write(connection)
            jobs += with_blockers(connection, passage.jobs, marked) if marked else passage.jobs
            rooms.fill(job.type for job in passage.jobs)
        now_held = passage.parked + len(picked.paused)
        held += now_held
        if len(jobs) >= wanted.limit or not now_held or held >= PARKED_AT_ONCE:
            return jobs, held
