"""Claiming: due jobs become a lease's, as many as a worker has room for."""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError
from aioqueue.sqlite._claim_lanes import quotas_as_json
from aioqueue.sqlite._claim_odd import claim_one_by_one
from aioqueue.sqlite._claim_take import AtGates, Wanted, claim, pick
from aioqueue.sqlite._connections import Connection, in_snapshot, in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._gates_claim import BeforeGates, Prepared, claim_at_gates
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import Unreadable, dump
from aioqueue.store_rules._quotas import narrowed
from aioqueue.store_rules._turns import Turns, urgency_of
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._gates_news import GateNews
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = ["Claims"]

_PARKING_SECONDS = 0.5
"""For which a claim looks further behind those that it has parked, where it comes to nothing else. Each time is a transaction,
between which others write.
"""


_SORTING_SECONDS = 0.2
"""For which a claim sorts jobs into fair lanes before it takes jobs of other types. The next one goes on with it."""
_SORTING_FIRST_SECONDS = 5.0
"""For which no job of types with turns is taken before all are sorted. Then each claim takes one of each: slots aren't empty
for longer, and few of them are gone when it's seen who else waits.
"""

_AT_GATES_SECONDS = 60.0
"""For which claims look at gates at once, though their types have none: they have come to jobs that wait at some."""


class Claims:
    """Claims of one open store.

    Arguments:
        writer: Where they run.
        odd_rows: What is done with rows that can't be claimed.
        news: Is told that gates are used.
    """

    def __init__(self, writer: Writer, odd_rows: OddRows, news: GateNews) -> None:
        self._writer = writer
        self._odd_rows = odd_rows
        self._news = news
        self._before = BeforeGates(news)
        self._turns = Turns()
        self._idle = True
        self._at_gates_until = 0.0
        self._sorting_since: float | None = None
        self._noted: tuple[Sequence[str], Mapping[str, GateRules] | None] = ((), None)

    async def claim(
        self,
        lease_id: int,
        types: Sequence[str],
        limit: int,
        leases: Mapping[str, int] | None,
        *,
        dry_run: bool,
        quotas: Sequence[Quota] = (),
        gates: Mapping[str, GateRules] | None = None,
    ) -> Sequence[ClaimedJob]:
        """Take due jobs, as `aioqueue.abc.Store.claim` promises."""
        names = sorted(set(types))
        turns = dump({name: self._turns.of(name) for name in names}) if len(names) > 1 else ""
        wanted = Wanted(lease_id, leases or {}, dump(names), limit, dry_run, turns, quotas_as_json(quotas))
        asked = _Asked(wanted, quotas, {name: gates[name] for name in names if name in gates} if gates else {})
        if (names, gates) != self._noted:
            self._news.claims(names, asked.rules)
            self._noted = (names, gates)
        jobs: Sequence[ClaimedJob] = []
        goes_on, began = limit > 0, time.monotonic()
        while goes_on and not jobs:
            asked = replace(asked, sorts_first=time.monotonic() - began < _SORTING_SECONDS)
            jobs, patience = await self._writer.hop(functools.partial(self._claim, asked))
            goes_on = time.monotonic() - began < patience
        self._turns.serve({job.type for job in jobs})
        return sorted(jobs, key=urgency_of)

    def _claim(
        self, asked: _Asked, connection: Connection, abandoned: Callable[[], bool]
    ) -> tuple[tuple[Sequence[ClaimedJob], float], Notification | None]:
        """One try, in the writer's thread. Also gives for how many seconds others may come to more."""
        told: Notification | None = None
        try:
            # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
            if self._idle and in_snapshot(connection, lambda each: self._finds_nothing(each, asked)):
                return ([], 0.0), None
            stuck = self._odd_rows.any_stuck()
            at_gates = bool(asked.rules) or time.monotonic() < self._at_gates_until
            if at_gates or not stuck:
                take = functools.partial(self._at_gates, some_are_stuck=stuck) if at_gates else _plainly
                taken = in_transaction(connection, self._writer.timeout, functools.partial(take, asked=asked), abandoned)
                told = Notification(types=taken.before.types) if taken.before.types else None
                if taken.before.more and asked.sorts_first:
                    return ([], math.inf), told
                if not stuck:
                    self._idle = not (taken.jobs or taken.held)
                    if self._sorts_first():
                        return (taken.jobs, math.inf), told
                    return (taken.jobs, _PARKING_SECONDS if taken.held else 0.0), told
        except AtGates:
            self._at_gates_until = time.monotonic() + _AT_GATES_SECONDS
            return ([], _PARKING_SECONDS), None
        except (Unreadable, StoreError) as error:
            if isinstance(error, StoreError) and not concerns_a_row(error):
                raise
        jobs, notification = claim_one_by_one(connection, asked.wanted, self._odd_rows, asked.quotas, asked.rules)
        return (jobs, 0.0), merged([each for each in (told, notification) if each is not None])

    def _at_gates(self, connection: sqlite3.Connection, asked: _Asked, *, some_are_stuck: bool) -> _Taken:
        """Let come whose time it is, and take jobs, unless some can't be taken at all: then one after the other is."""
        self._news.used = True
        before = self._before.prepare(connection, asked.rules, asked.wanted.limit, some_are_stuck=some_are_stuck)
        self._sorting_since = (self._sorting_since or time.monotonic()) if before.more else None
        if some_are_stuck or (before.more and asked.sorts_first):
            return _Taken(before=before)
        quotas = asked.quotas
        if before.more:
            most = 0 if self._sorts_first() else 1
            quotas = narrowed(quotas, {name: most for name, rules in asked.rules.items() if rules.fair_by is not None})
        wanted = replace(asked.wanted, quotas=quotas_as_json(quotas))
        return _Taken(*claim_at_gates(connection, wanted, asked.rules, quotas), before)

    def _sorts_first(self) -> bool:
        """Whether jobs are being sorted into lanes, and for so short a time that none of these types are taken meanwhile."""
        return self._sorting_since is not None and time.monotonic() - self._sorting_since < _SORTING_FIRST_SECONDS

    def _finds_nothing(self, connection: sqlite3.Connection, asked: _Asked) -> bool:
        """Whether a claim would neither take nor park anything, nor has anything to do at gates."""
        picked = pick(connection, asked.wanted)
        nothing = picked.rows == "[]" and not picked.paused and not (picked.gate_work and not self._news.promotion.wait)
        return nothing and not self._before.waits(connection, asked.rules)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a claim asks for, with its quotas, and the rules of those of its types that have gates.

    Attributes:
        sorts_first: Whether nothing at all is taken before all due jobs of types with turns are sorted.
    """

    wanted: Wanted
    quotas: Sequence[Quota]
    rules: Mapping[str, GateRules]
    sorts_first: bool = True


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a claim took in one transaction, how many are held since, and what was done before it."""

    jobs: Sequence[ClaimedJob] = ()
    held: int = 0
    before: Prepared = field(default_factory=Prepared)


def _plainly(connection: sqlite3.Connection, asked: _Asked) -> _Taken:
    """Take jobs that have nothing to do with gates."""
    parked: list[str] = []
    return _Taken(claim(connection, asked.wanted, parked), len(parked))
