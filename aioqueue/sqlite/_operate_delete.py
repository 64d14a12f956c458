"""Removing chains, and maybe all that waits for them. Runs inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_steps import LastStep, Outcome
from aioqueue.sqlite._progress_kept import forget_beside
from aioqueue.sqlite._resolve import Resolved, resolve_if_possible
from aioqueue.sqlite._resolve_ends import End, store_ends
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_chain import LAST_STEPS, OF_CHAIN, chain_of
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["delete", "remove_archived", "remove_rest"]

_PORTION = 1_000
"""Archived steps that one transaction removes beside the last ones: some 10 ms, in which nobody else writes."""

_LATER, _FIRST = OF_CHAIN

_HOLDERS = f"""
SELECT lease_id FROM job INDEXED BY job_chain WHERE {_LATER} AND state = 2
UNION SELECT lease_id FROM job WHERE {_FIRST} AND state = 2
"""

_IS_WAITED_FOR = f"""
SELECT EXISTS (SELECT 1 FROM blocker AS b CROSS JOIN job ON job.id = b.job_id
               WHERE b.chain_id = {any_id("chain")} AND b.resolved = 0)
"""

_KEPT = f"""
WITH RECURSIVE {LAST_STEPS},
awaited(chain) AS (
    SELECT chain FROM step
    WHERE EXISTS (SELECT 1 FROM blocker AS b CROSS JOIN job ON job.id = b.job_id
                  WHERE b.chain_id = step.chain AND b.resolved = 0 AND b.ordinal <> {TAKEN_OVER_ORDINAL}
                    AND b.job_id NOT IN (SELECT live FROM step WHERE live IS NOT NULL))
    UNION
    SELECT b.chain_id FROM awaited CROSS JOIN step ON step.chain = awaited.chain CROSS JOIN blocker AS b ON b.job_id = step.live
    WHERE b.resolved = 0 AND b.ordinal <> {TAKEN_OVER_ORDINAL} AND b.chain_id IN (SELECT chain FROM step))
SELECT typeof(chain) = 'blob', CAST(chain AS BLOB), 1 FROM awaited
UNION ALL SELECT typeof(chain) = 'blob', CAST(chain AS BLOB), 0 FROM step
WHERE EXISTS (SELECT 1 FROM blocker AS b WHERE b.chain_id = step.chain AND b.resolved = 0 AND b.ordinal = {TAKEN_OVER_ORDINAL})
"""
"""Of the chains of some ids those for which others wait: jobs of other chains, or of those among them that are kept. And those
whose keys others have taken over, who wait for their ends: that they're gone is one."""

_FORGET = f"DELETE FROM blocker WHERE job_id = {any_id('step')}"

_TELL_OTHERS = f"UPDATE chain_end SET untold = 1, take_along = :along WHERE chain_id = {any_id('chain')}"
"""Of a chain that has ended: some were told of that, and need its output."""

_LIVES = f"""
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE {_LATER}) OR EXISTS (SELECT 1 FROM job WHERE {_FIRST})
"""

_REMOVE_STEPS = f"DELETE FROM job WHERE {_LATER} RETURNING id"
_REMOVE_FIRST = f"DELETE FROM job WHERE {_FIRST} RETURNING id"
_REMOVE_ARCHIVED_STEPS = f"""
DELETE FROM archive WHERE id IN (
    SELECT id FROM archive INDEXED BY archive_chain WHERE {_LATER} ORDER BY position DESC, id DESC LIMIT :portion)
RETURNING id
"""
_REMOVE_ARCHIVED_FIRST = f"DELETE FROM archive WHERE {_FIRST} RETURNING id"


def delete(connection: Statements, ids: Sequence[UUID], *, cascade: bool) -> Outcome[Changed]:
    """Remove chains, as `aioqueue.abc.Store.delete` promises, and one portion of all the steps behind their ends."""
    results: list[Changed] = []
    gone: set[RowId] = set()
    left: list[RowId] = []
    leases: set[int] = set()
    told: list[str] = []
    portion = _PORTION
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    kept, followed = (set[RowId](), set[RowId]()) if cascade else _kept(connection, ids)
    # Looked up before anything is removed: afterwards a step's id says nothing of its chain.
    for job_id, chain in [(job_id, chain_of(connection, job_id)) for job_id in ids]:
        parameters = chain.parameters("chain")
        last = None if chain in gone else LastStep.of(connection, job_id)
        if chain in gone:
            results.append(Changed.DONE)
        elif last is None:
            results.append(Changed.NOT_FOUND)
        elif chain in kept:
            results.append(Changed.BLOCKS)
        else:
            waited_for = connection.execute(_IS_WAITED_FOR, parameters).fetchone()[0] if cascade else chain in followed
            leases |= {row[0] for row in connection.execute(_HOLDERS, parameters).fetchall() if isinstance(row[0], int)}
            live = sum(_remove(connection, each, parameters) for each in (_REMOVE_STEPS, _REMOVE_FIRST))
            archived, more = remove_archived(connection, chain, max(1, portion))
            portion -= archived
            results.append(Changed.DONE if live or archived else Changed.WRONG_STATE)
            if live or archived:
                gone.add(chain)
                connection.execute(_FORGET, last.parameters)
                if waited_for:
                    told += _store_end(connection, chain, last, now, take_along=cascade)
            if more:
                left.append(chain)
    resolved = Resolved()
    resolve_if_possible(connection, told, now, resolved)
    own = Notification(finished=frozenset(chain.shown for chain in gone), leases=frozenset(leases)) if gone else None
    others = resolved.notification(now)
    return Outcome(results, merged([each for each in (own, others) if each is not None]), left)


def _kept(connection: Statements, ids: Sequence[UUID]) -> tuple[set[RowId], set[RowId]]:
    """Those of the chains for which others wait that aren't deleted with them; and those whose keys others have taken over."""
    rows = connection.execute(_KEPT, {"ids": dump([str(each) for each in ids])}).fetchall()
    kept, followed = ({RowId.read(*row[:2]) for row in rows if bool(row[2]) is which} for which in (True, False))
    return kept, followed


def _store_end(connection: Statements, chain: RowId, last: LastStep, now: int, *, take_along: bool) -> list[str]:
    """Store that a chain is gone, and whether those that wait for it go with it; gives its id."""
    told = {**chain.parameters("chain"), "along": int(take_along)}
    if last.archived and connection.execute(_TELL_OTHERS, told).rowcount:
        return [chain.text]
    return store_ends(connection, [End.deleted(chain.text, last.type, take_along=take_along)], now)


def remove_archived(connection: Statements, chain: RowId, portion: int) -> tuple[int, bool]:
    """Remove the last of a chain's archived steps, with what is kept beside them; gives how many, and whether there is more."""
    parameters = chain.parameters("chain")
    removed = _remove(connection, _REMOVE_ARCHIVED_STEPS, {**parameters, "portion": portion})
    if removed == portion:
        return removed, True
    return removed + _remove(connection, _REMOVE_ARCHIVED_FIRST, parameters), False


def _remove(connection: Statements, statement: str, parameters: dict[str, Any]) -> int:
    """Remove rows, and all that is kept beside them. Returns how many."""
    removed = connection.execute(statement, parameters).fetchall()
    # With an odd id nothing is kept.
    forget_beside(connection, [row[0] for row in removed if isinstance(row[0], str)])
    return len(removed)


def remove_rest(chain: RowId, connection: Statements) -> tuple[bool, None]:
    """Remove one portion of a chain whose end is gone; gives whether there may be more. One that begins anew is left alone."""
    if connection.execute(_LIVES, chain.parameters("chain")).fetchone()[0]:
        return False, None
    return remove_archived(connection, chain, _PORTION)[1], None
