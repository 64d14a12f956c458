"""Telling those that wait for chains that have ended, inside the open write transaction of whoever has stored how they ended.

The ends are counted for each job, which becomes pending at the last one, fails, or is removed. One level at a time, and a
bounded number: how the chains of those that fail have ended is stored as untold, for `Store.tend`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._errors import concerns_a_row, translated
from aioqueue.sqlite._progress_kept import forget_beside
from aioqueue.sqlite._resolve_ends import End, store_ends
from aioqueue.sqlite._rows import dump, load, text_of
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import moment
from aioqueue.sqlite._settle_archive import archive_ended, archived_row, remove
from aioqueue.store_rules._causes import blocker_failed
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["MOST_TOLD", "Resolved", "first_to_tell", "resolve", "resolve_if_possible"]

MOST_TOLD = 2_000
"""Ends that one transaction counts at most."""

_PICK = f"""
SELECT json_group_array(json_array(job_id, ordinal, chain_id, bad, along)) FROM (
    SELECT b.job_id, b.ordinal, b.chain_id, e.state <> 4 AND b.settled = 0 AS bad,
        e.take_along AND b.ordinal <> {TAKEN_OVER_ORDINAL} AS along
    FROM json_each(:chains) AS ended CROSS JOIN chain_end AS e ON e.chain_id = ended.value
    CROSS JOIN blocker AS b INDEXED BY blocker_chain ON b.chain_id = e.chain_id AND b.resolved = 0
    WHERE b.job_id NOT IN (SELECT value FROM json_each(:skip))
    LIMIT :limit)
"""

_RESOLVE = """
UPDATE blocker SET resolved = 1 FROM json_each(:rows) AS r
WHERE blocker.job_id = r.value ->> 0 AND blocker.ordinal = r.value ->> 1
"""

_COUNT_DOWN = """
UPDATE job SET lease_id = NULL, open_blockers = max(0, job.open_blockers - (c.value ->> 1)),
    state = iif(job.open_blockers <= c.value ->> 1, 1, 0),
    run_at = iif(job.open_blockers <= c.value ->> 1, max(job.run_at, :now), job.run_at),
    expires_at = iif(job.open_blockers <= c.value ->> 1 AND job.run_at < :now,
                     job.expires_at + (:now - job.run_at), job.expires_at)
FROM json_each(:rows) AS c
WHERE job.id = c.value ->> 0 AND job.state = 0 AND job.open_blockers > 0
RETURNING state, CAST(type AS TEXT), run_at
"""

_HELD = """
SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT), CAST(coalesce(job.chain_id, job.id) AS TEXT)))
FROM json_each(:ids) AS f CROSS JOIN job ON job.id = f.value WHERE job.state = 0 AND job.open_blockers > 0
"""

_CAUSES = """
SELECT json_group_object(chain_id, coalesce(cause, 'a chain that is gone')) FROM chain_end
WHERE chain_id IN (SELECT value FROM json_each(:chains))
"""

_TOLD = """
UPDATE chain_end SET untold = 0 WHERE chain_id IN (SELECT value FROM json_each(:chains))
    AND (:skip = '[]' OR NOT EXISTS (SELECT 1 FROM blocker AS b WHERE b.chain_id = chain_end.chain_id AND b.resolved = 0))
"""

_TAKE_ARCHIVED = """
DELETE FROM archive WHERE id IN (
    SELECT value FROM json_each(:chains) UNION ALL
    SELECT * FROM (SELECT id FROM archive WHERE chain_id IN (SELECT value FROM json_each(:chains)) LIMIT :limit))
RETURNING id
"""
"""Of one with more steps than that, another delete removes the others."""

_FORGET = "DELETE FROM blocker WHERE job_id IN (SELECT value ->> 0 FROM json_each(:rows))"


@dataclass(slots=True)
class Resolved:
    """What was told, by one or several calls.

    Attributes:
        told: Ends that were counted.
        types: Types with jobs that became pending.
        due: When the first of them is due; None without any.
        failed: Chains that have failed with it.
        deleted: Chains that were removed with it.
        deliveries: Whether somebody is to be told by a webhook.
        more: Whether there may be more to tell.
    """

    told: int = 0
    types: set[str] = field(default_factory=set[str])
    due: int | None = None
    failed: set[UUID] = field(default_factory=set["UUID"])
    deleted: set[UUID] = field(default_factory=set["UUID"])
    deliveries: bool = False
    more: bool = False

    def wake(self, job_type: str, due: int) -> None:
        """Note a job that is pending now."""
        self.types.add(job_type)
        self.due = due if self.due is None else min(self.due, due)

    def notification(self, now: int) -> Notification | None:
        """What listeners are told of it; None if it's nothing."""
        finished = frozenset(self.failed | self.deleted)
        if not finished and not self.types:
            return None
        delay = 0.0 if self.due is None else max(0, self.due - now) / 1e6
        return Notification(types=frozenset(self.types), delay=delay, finished=finished, deliveries=self.deliveries)


def resolve(connection: Statements, chains: Sequence[str], now: int, into: Resolved, *, limit: int, skip: str = "[]") -> None:
    """Tell those that wait for these chains, whose ends are stored.

    Arguments:
        connection: In a write transaction.
        chains: Their ids.
        now: The database's time.
        into: Where what is done is added.
        limit: Ends at most that are counted.
        skip: Jobs that are passed over, as JSON.
    """
    if not chains:
        return
    asked = {"chains": dump(chains), "skip": skip}
    edges = load(connection.execute(_PICK, {**asked, "limit": limit}).fetchone()[0])
    if edges:
        connection.execute(_RESOLVE, {"rows": dump(edges)})
        _tell(connection, edges, now, into)
    into.told += len(edges)
    if len(edges) >= limit:
        into.more = True
    else:
        connection.execute(_TOLD, asked)


def resolve_if_possible(connection: Statements, chains: Sequence[str], now: int, into: Resolved) -> None:
    """Do the same as a part of something else, which must not fail for the sake of a job that waits.

    What can't be told now, since a row refuses it, stays untold for `Store.tend`, which tells the others.
    """
    if not chains:
        return
    part = Resolved()
    try:
        with translated(), in_savepoint(connection, "aioqueue_resolve"):
            resolve(connection, chains, now, part, limit=MOST_TOLD)
    except StoreError as error:
        if not concerns_a_row(error):
            raise
        into.more = True
        return
    into.told += part.told
    into.types |= part.types
    into.failed |= part.failed
    into.deleted |= part.deleted
    into.deliveries = into.deliveries or part.deliveries
    into.more = into.more or part.more
    if part.due is not None:
        into.due = part.due if into.due is None else min(into.due, part.due)


def first_to_tell(connection: Statements, chains: Sequence[str], skip: str) -> str | None:
    """The id of the job that would be told first."""
    edges = load(connection.execute(_PICK, {"chains": dump(chains), "skip": skip, "limit": 1}).fetchone()[0])
    return edges[0][0] if edges else None


def _tell(connection: Statements, edges: list[list[Any]], now: int, into: Resolved) -> None:
    counts: dict[str, int] = {}
    guilty: dict[str, str] = {}
    along: set[str] = set()
    for job_id, _, chain_id, bad, take_along in sorted(edges, key=lambda edge: edge[:2]):
        counts[job_id] = counts.get(job_id, 0) + 1
        if take_along:
            along.add(job_id)
        elif bad:
            guilty.setdefault(job_id, chain_id)
    counted = [[job_id, ends] for job_id, ends in counts.items() if job_id not in along and job_id not in guilty]
    if counted:
        for state, job_type, due in connection.execute(_COUNT_DOWN, {"rows": dump(counted), "now": now}).fetchall():
            if state == StoredState.PENDING:
                into.wake(text_of(job_type), due if isinstance(due, int) else now)
    if guilty.keys() - along:
        _fail(connection, {job_id: chain for job_id, chain in guilty.items() if job_id not in along}, now, into)
    if along:
        _take(connection, along, now, into)


def _held(connection: Statements, ids: Collection[str]) -> list[list[str]]:
    held: list[list[str]] = load(connection.execute(_HELD, {"ids": dump(list(ids))}).fetchone()[0])
    return held


def _fail(connection: Statements, guilty: dict[str, str], now: int, into: Resolved) -> None:
    """Fail jobs that wait, for the sake of these chains; and their own chains with them."""
    held = _held(connection, guilty)
    if not held:
        return
    causes: dict[str, str] = load(connection.execute(_CAUSES, {"chains": dump(sorted(set(guilty.values())))}).fetchone()[0])
    entries = {chain: blocker_failed(cause, moment(now)).encode().decode() for chain, cause in causes.items()}
    rows = [archived_row(job_id, StoredState.FAILED, error=entries[guilty[job_id]]) for job_id, _, _ in held]
    into.deliveries = archive_ended(connection, rows, now) or into.deliveries
    ends = [End(chain, ChainEnd.FAILED, job_type, None, causes[guilty[job_id]]) for job_id, job_type, chain in held]
    into.more = bool(store_ends(connection, ends, now)) or into.more
    into.failed |= {id_of(chain) for _, _, chain in held}


def _take(connection: Statements, ids: Collection[str], now: int, into: Resolved) -> None:
    """Remove jobs that wait, and their chains, with all that they have behind them; those that wait for them come next."""
    held = _held(connection, ids)
    if not held:
        return
    rows = dump(held)
    remove(connection, rows)
    connection.execute(_FORGET, {"rows": rows})
    chains = [chain for _, _, chain in held]
    archived = connection.execute(_TAKE_ARCHIVED, {"chains": dump(chains), "limit": MOST_TOLD}).fetchall()
    forget_beside(connection, [*(each[0] for each in held), *(each[0] for each in archived if isinstance(each[0], str))])
    ends = [End.deleted(chain, job_type, take_along=True) for _, job_type, chain in held]
    into.more = bool(store_ends(connection, ends, now)) or into.more
    into.deleted |= {id_of(chain) for chain in chains}
