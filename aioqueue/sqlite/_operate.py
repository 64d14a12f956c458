"""What operators change. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import CallError, StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_prune import prune
from aioqueue.sqlite._rows import dump, one, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS, OF_CHAIN, chain_of
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Operator"]

logger = logging.getLogger("aioqueue.sqlite")

_PORTION = 1_000
"""Archived steps that one transaction removes beside the last ones: some 10 ms, in which nobody else writes."""

_PAUSE_SECONDS = 0.01
"""Between two portions, for those who wait for the write lock: SQLite has no queue for it."""

_RETRY = f"""
INSERT INTO job (id, type, priority, state, run_at, created_at, max_attempts, claims, chain_id, position, key, unique_key,
                 trace, retry, timeout, tags, metadata, errors, payload)
SELECT id, type, priority, 1, :now, created_at, max_attempts, claims, chain_id, position, key, unique_key,
       trace, retry, timeout, tags, metadata, errors, payload
FROM archive WHERE id = {any_id("step")}
"""

_REMOVE_ARCHIVED = f"DELETE FROM archive WHERE id = {any_id('step')}"

_MAKE_DUE = f"UPDATE job SET run_at = :now WHERE id = {any_id('step')} AND run_at > :now"

_END = f"""
WITH {LAST_STEPS}
SELECT live IS NULL, coalesce(job.state, archive.state), coalesce(job.type, archive.type), archive.unique_key,
    typeof(coalesce(live, archived)) = 'blob', CAST(coalesce(live, archived) AS BLOB)
FROM step LEFT JOIN job ON job.id = step.live LEFT JOIN archive ON archive.id = step.archived
WHERE coalesce(live, archived) IS NOT NULL
"""

_LATER, _FIRST = OF_CHAIN

_RUNS = f"""
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE {_LATER} AND state = 2)
    OR EXISTS (SELECT 1 FROM job WHERE {_FIRST} AND state = 2)
"""

_LIVES = f"""
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE {_LATER}) OR EXISTS (SELECT 1 FROM job WHERE {_FIRST})
"""

_REMOVE_STEPS = f"DELETE FROM job WHERE {_LATER}"
_REMOVE_FIRST = f"DELETE FROM job WHERE {_FIRST}"
_REMOVE_ARCHIVED_STEPS = f"""
DELETE FROM archive WHERE id IN (
    SELECT id FROM archive INDEXED BY archive_chain WHERE {_LATER} ORDER BY position DESC, id DESC LIMIT :portion)
"""
_REMOVE_ARCHIVED_FIRST = f"DELETE FROM archive WHERE {_FIRST}"


class Operator:
    """Changes by operators in one open store, each job on its own.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def change(self, verb: str, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Change jobs, as `aioqueue.abc.Store` promises of `retry`, `run_now` and `delete`.

        A row that refuses it is told in the log, and doesn't keep the others from being changed. What a delete leaves of long
        chains, all of it continued, is removed in portions. If that's interrupted, another delete removes the rest.
        """

        def run(
            connection: Connection, abandoned: Callable[[], bool]
        ) -> tuple[tuple[list[Changed], list[RowId]], Notification | None]:
            results: list[Changed] = []
            notifications: list[Notification] = []
            left: list[RowId] = []
            for part, outcome in halved(connection, self._writer.timeout, ids, _VERBS[verb], abandoned):
                if not isinstance(outcome, (StoreError, CallError)):
                    results += outcome.results
                    left += outcome.left
                    notifications += [] if outcome.notification is None else [outcome.notification]
                elif len(ids) == 1:
                    raise outcome
                else:
                    results.append(Changed.WRONG_STATE)
                    logger.error(
                        "job %s can't be changed: %s",
                        part[0],
                        outcome,
                        extra=event("store.job_not_changed", job_id=str(part[0])),
                    )
            return (results, left), merged(notifications)

        results, left = await self._writer.hop(run)
        for chain in left:
            await self._remove_rest(chain)
        return results

    async def _remove_rest(self, chain: RowId) -> None:
        more = True
        while more:
            await asyncio.sleep(_PAUSE_SECONDS)
            more = await self._writer.write(functools.partial(_remove_rest, chain))

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> Pruned:
        """Remove one portion of what finished long ago."""
        return await self._writer.write(lambda connection: prune(connection, state, older_than, types, limit, cursor))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one transaction has done.

    Attributes:
        results: One for each id, in order.
        notification: What listeners are told of it.
        left: The chains that are gone but for steps that they had behind them.
    """

    results: list[Changed]
    notification: Notification | None
    left: Sequence[RowId] = ()


@dataclass(frozen=True, slots=True)
class _End:
    """The live or last step of a chain.

    Attributes:
        archived: Whether it's in the archive.
        state: As stored.
        type: Its type.
        unique_key: What it held, of an archived one.
        parameters: Its id, for statements with `any_id("step")`.
    """

    archived: bool
    state: Any
    type: str
    unique_key: str | None
    parameters: dict[str, Any]

    @classmethod
    def of(cls, connection: sqlite3.Connection, job_id: UUID) -> _End | None:
        """Find the end of a chain by any step's id; None if there is no such chain."""
        row = one(connection, _END, {"ids": dump([str(job_id)])})
        if row is None:
            return None
        archived, state, job_type, unique_key, blob, raw = row
        return cls(bool(archived), state, text_of(job_type), unique_key, RowId.read(blob, raw).parameters("step"))

    @property
    def not_now(self) -> Changed:
        """What is told where it isn't in the state for a change."""
        return Changed.RUNNING if self.state == StoredState.RUNNING and not self.archived else Changed.WRONG_STATE


def _retry(connection: sqlite3.Connection, ids: Sequence[UUID]) -> _Outcome:
    """Bring failed and cancelled jobs back."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    done: set[RowId] = set()
    for job_id in ids:
        chain = chain_of(connection, job_id)
        end = _End.of(connection, job_id)
        if chain in done:
            results.append(Changed.DONE)
        elif end is None:
            results.append(Changed.NOT_FOUND)
        elif not end.archived or end.state not in _RETRIABLE or _held(connection, end.unique_key):
            results.append(end.not_now)
        else:
            connection.execute(_RETRY, {**end.parameters, "now": now})
            connection.execute(_REMOVE_ARCHIVED, end.parameters)
            types.add(end.type)
            done.add(chain)
            results.append(Changed.DONE)
    return _Outcome(results, Notification(types=frozenset(types)) if types else None)


_RETRIABLE = frozenset({StoredState.FAILED, StoredState.CANCELLED})


def _held(connection: sqlite3.Connection, key: str | None) -> bool:
    return key is not None and one(connection, "SELECT 1 FROM job WHERE unique_key = :key", {"key": key}) is not None


def _run_now(connection: sqlite3.Connection, ids: Sequence[UUID]) -> _Outcome:
    """Make pending jobs due."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in ids:
        end = _End.of(connection, job_id)
        if end is None:
            results.append(Changed.NOT_FOUND)
        elif end.state != StoredState.PENDING or end.archived:
            results.append(end.not_now)
        else:
            connection.execute(_MAKE_DUE, {**end.parameters, "now": now})
            types.add(end.type)
            results.append(Changed.DONE)
    return _Outcome(results, Notification(types=frozenset(types)) if types else None)


def _delete(connection: sqlite3.Connection, ids: Sequence[UUID]) -> _Outcome:
    """Remove chains that don't run: the live or last step of each, and one portion of all the steps behind those."""
    results: list[Changed] = []
    gone: set[RowId] = set()
    left: list[RowId] = []
    portion = _PORTION
    # Looked up before anything is removed: afterwards a step's id says nothing of its chain.
    for job_id, chain in [(job_id, chain_of(connection, job_id)) for job_id in ids]:
        parameters = chain.parameters("chain")
        if chain in gone:
            results.append(Changed.DONE)
        elif _End.of(connection, job_id) is None:
            results.append(Changed.NOT_FOUND)
        elif connection.execute(_RUNS, parameters).fetchone()[0]:
            results.append(Changed.RUNNING)
        else:
            live = sum(connection.execute(each, parameters).rowcount for each in (_REMOVE_STEPS, _REMOVE_FIRST))
            archived, more = _remove_archived(connection, chain, max(1, portion))
            portion -= archived
            results.append(Changed.DONE if live or archived else Changed.WRONG_STATE)
            if live or archived:
                gone.add(chain)
            if more:
                left.append(chain)
    notification = Notification(finished=frozenset(chain.shown for chain in gone)) if gone else None
    return _Outcome(results, notification, left)


def _remove_archived(connection: sqlite3.Connection, chain: RowId, portion: int) -> tuple[int, bool]:
    """Remove the last of the archived steps; gives how many, and whether there may be more."""
    parameters = chain.parameters("chain")
    removed = connection.execute(_REMOVE_ARCHIVED_STEPS, {**parameters, "portion": portion}).rowcount
    if removed == portion:
        return removed, True
    return removed + connection.execute(_REMOVE_ARCHIVED_FIRST, parameters).rowcount, False


def _remove_rest(chain: RowId, connection: sqlite3.Connection) -> tuple[bool, None]:
    """Remove one portion of a chain whose end is gone; gives whether there may be more. One that begins anew is left alone."""
    if connection.execute(_LIVES, chain.parameters("chain")).fetchone()[0]:
        return False, None
    return _remove_archived(connection, chain, _PORTION)[1], None


_VERBS = {"retry": _retry, "run_now": _run_now, "delete": _delete}
