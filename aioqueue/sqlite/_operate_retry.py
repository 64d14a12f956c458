"""Bringing failed and cancelled jobs back, and what that means for those that waited. Runs inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.sqlite._insert_blockers import mark_living
from aioqueue.sqlite._operate_steps import LastStep, Outcome
from aioqueue.sqlite._progress_kept import forget_phases
from aioqueue.sqlite._resolve_ends import End, archived_ends, store_ends, stored_states
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_chain import HOLDS_KEY, LAST_STEPS, chain_of
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._causes import BLOCKER_FAILED
from aioqueue.store_rules._revival import blockers_first
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["retry"]

_STEP, _CHAIN = any_id("step"), any_id("chain")

_RETRY = f"""
INSERT INTO job (id, type, priority, state, run_at, created_at, max_attempts, claims, chain_id, position, key, unique_key,
                 trace, retry, timeout, tags, metadata, errors, payload, keep, webhook, origin, open_blockers, marked, gates)
SELECT id, type, priority, iif(:open, 0, 1), :now, created_at, max_attempts, claims, chain_id, position, key, unique_key,
       trace, retry, timeout, tags, metadata, errors, payload, keep, webhook, origin, :open,
       webhook IS NOT NULL OR EXISTS (SELECT 1 FROM blocker WHERE job_id = {_STEP})
       OR EXISTS (SELECT 1 FROM blocker WHERE blocker.chain_id = {_CHAIN}),
       (SELECT '[]' FROM gate_member WHERE gate_member.chain_id = {_CHAIN})
FROM archive WHERE id = {_STEP}
"""

_NOT_FAILED = f"UPDATE gate_member SET ended = 0 WHERE chain_id = {_CHAIN}"
"""Its place in a sequence is its own again."""

_HELD = f"SELECT 1 FROM job WHERE unique_key = :key AND {HOLDS_KEY}"

_REMOVE_ARCHIVED = f"DELETE FROM archive WHERE id = {_STEP}"

_EDGES = f"""
SELECT json_group_array(json_array(ordinal, chain_id, settled)) FROM (
    SELECT ordinal, chain_id, settled FROM blocker WHERE job_id = {_STEP} ORDER BY ordinal)
"""

_COUNT_ANEW = f"""
UPDATE blocker SET resolved = NOT EXISTS (SELECT 1 FROM json_each(:living) WHERE value = blocker.ordinal)
WHERE job_id = {_STEP}
"""

_NOT_ENDED = f"UPDATE chain_end SET untold = 0 WHERE chain_id = {_CHAIN}"
"""Those that were told of its end, and haven't been started, still see it; the others are told of the next one."""

_FAILED_THROUGH = f"""
SELECT json_group_array(job_id) FROM (
    SELECT DISTINCT b.job_id FROM json_each(:chains) AS revived
    CROSS JOIN blocker AS b ON b.chain_id = revived.value CROSS JOIN archive ON archive.id = b.job_id
    WHERE b.settled = 0 AND archive.state = 6
      AND json_extract(iif(json_valid(archive.errors), archive.errors, '[]'), '$[#-1].type') = '{BLOCKER_FAILED}'
    ORDER BY b.job_id)
"""

_BLOCKED = """
SELECT json_group_array(chain) FROM (
    SELECT DISTINCT coalesce(job.chain_id, job.id) AS chain FROM json_each(:chains) AS revived
    CROSS JOIN blocker AS b ON b.chain_id = revived.value CROSS JOIN job ON job.id = b.job_id
    WHERE b.settled = 0 AND b.resolved = 0 AND job.state = 0 AND typeof(coalesce(job.chain_id, job.id)) = 'text')
"""
"""Those that wait still would have been told of the end that doesn't count any more: behind them others have failed."""

_AMONG_THEM = f"""
WITH {LAST_STEPS}
SELECT json_group_array(json_array(step.place, other.place))
FROM step CROSS JOIN blocker AS b ON b.job_id = step.archived CROSS JOIN step AS other ON other.chain = b.chain_id
WHERE step.live IS NULL
"""

_RETRIABLE = frozenset({StoredState.FAILED, StoredState.CANCELLED})


def retry(connection: Statements, ids: Sequence[UUID], *, cascade: bool, from_start: bool = False) -> Outcome[Changed]:
    """Bring failed and cancelled jobs back, as `aioqueue.abc.Store.retry` promises."""
    retries = _Retries(connection)
    results = retries.several(ids)
    if from_start:
        forget_phases(connection, retries.revived)
    if cascade:
        retries.dependents()
    types = retries.types
    return Outcome(results, Notification(types=frozenset(types)) if types else None)


class _Retries:
    """Retries in one transaction.

    Arguments:
        connection: Where they're written.
    """

    def __init__(self, connection: Statements) -> None:
        self._connection = connection
        self._now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
        self._done: set[RowId] = set()
        self._level: list[str] = []
        self._passed: set[str] = set()
        self.revived: list[str] = []
        """The jobs that live again, but for those with odd ids."""
        self.types: set[str] = set()
        """Those with jobs that are pending now."""

    def several(self, ids: Sequence[UUID]) -> list[Changed]:
        """Bring these chains back: what others of them wait for first, and those again that wait for one that came later."""
        results: dict[UUID, Changed] = {}
        left = self._blockers_first(ids)
        tried = 0
        while left and tried != len(left):
            tried = len(left)
            results.update((each, self.one(each)) for each in left)
            left = [each for each in left if results[each] is Changed.BLOCKER_FAILED]
        return [results[each] for each in ids]

    def one(self, job_id: UUID) -> Changed:
        """Bring the chain's last step back, whatever step's id this is."""
        chain = chain_of(self._connection, job_id)
        last = LastStep.of(self._connection, job_id)
        if chain in self._done:
            return Changed.DONE
        if last is None:
            return Changed.NOT_FOUND
        if not last.archived or last.state not in _RETRIABLE:
            return last.not_now
        if last.unique_key is not None and one(self._connection, _HELD, {"key": last.unique_key}) is not None:
            return Changed.KEY_HELD
        living = self._wait_again(last)
        if living is None:
            return Changed.BLOCKER_FAILED
        parameters = {**last.parameters, **chain.parameters("chain"), "now": self._now, "open": living}
        self._connection.execute(_RETRY, parameters)
        self._connection.execute(_NOT_FAILED, chain.parameters("chain"))
        self._connection.execute(_REMOVE_ARCHIVED, last.parameters)
        self._connection.execute(_NOT_ENDED, chain.parameters("chain"))
        if not living:
            self.types.add(last.type)
        self._done.add(chain)
        self.revived.append(last.id.text)
        if not chain.blob:
            self._level.append(chain.text)
        return Changed.DONE

    def dependents(self) -> None:
        """Bring those back that failed through the others, level by level."""
        while self._level:
            chains, self._level = self._level, []
            self._passed.update(chains)
            asked = {"chains": dump(chains)}
            blocked: list[str] = load(one(self._connection, _BLOCKED, asked)[0])
            self.several([UUID(each) for each in load(one(self._connection, _FAILED_THROUGH, asked)[0])])
            self._level += [each for each in blocked if each not in self._passed]

    def _blockers_first(self, ids: Sequence[UUID]) -> list[UUID]:
        if len(ids) < 2:
            return list(ids)
        ordered = sorted(set(ids), key=lambda each: (chain_of(self._connection, each), each))
        found = one(self._connection, _AMONG_THEM, {"ids": dump([str(each) for each in ordered])})
        waits: dict[int, set[int]] = {place: set() for place in range(len(ordered))}
        for place, other in load(found[0]):
            waits[place].add(other)
        return [ordered[place] for level in blockers_first(waits) for place in level]

    def _wait_again(self, last: LastStep) -> int | None:
        """Look anew at what a job has waited for: for how many of them it waits now; None if one has failed for good."""
        edges = load(one(self._connection, _EDGES, last.parameters)[0])
        if not edges:
            return 0
        chains = list(dict.fromkeys(chain for _, chain, _ in edges))
        alive = mark_living(self._connection, chains)
        dead = [chain for chain in chains if chain not in alive]
        kept = stored_states(self._connection, dead)
        found = archived_ends(self._connection, dead) if dead else []
        # What is in the archive counts before what those were told who have waited: it may have been retried since.
        states = {
            chain: kept.get(chain, ChainEnd.DELETED) if end is None else end.state
            for chain, end in zip(dead, found, strict=True)
        }
        if any(chain in states and states[chain] != ChainEnd.COMPLETED and not settled for _, chain, settled in edges):
            return None
        missing = [end or End.deleted(chain) for chain, end in zip(dead, found, strict=True) if chain not in kept]
        store_ends(self._connection, missing, self._now)
        living = [ordinal for ordinal, chain, _ in edges if chain in alive]
        self._connection.execute(_COUNT_ANEW, {**last.parameters, "living": dump(living)})
        return len(living)
