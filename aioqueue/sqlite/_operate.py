"""What operators change. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import AioqueueError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved, halved_within
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_delete import remove_rest
from aioqueue.sqlite._operate_prune import prune
from aioqueue.sqlite._operate_steps import LastStep, Outcome
from aioqueue.sqlite._pauses_conditions import BEFORE_GATES, BEHIND_GATES
from aioqueue.sqlite._rows_ids import any_id
from aioqueue.sqlite._rows_times import NOW, due_after, due_at
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._operate_steps import Change
    from aioqueue.sqlite._rows_ids import RowId
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Operator", "change_within", "reschedule", "run_now"]

logger = logging.getLogger("aioqueue.sqlite")

Answer = TypeVar("Answer")

_PAUSE_SECONDS = 0.01
"""Between two portions, for those who wait for the write lock: SQLite has no queue for it."""

_MAKE_DUE = f"UPDATE job SET run_at = :now, lease_id = NULL WHERE id = {any_id('step')} AND run_at > :now"
_PUT_OFF = f"UPDATE job SET run_at = :due, lease_id = NULL WHERE id = {any_id('step')}"

_AT_GATE = f"""id = {any_id("step")} AND state = 0 AND open_blockers = 0 AND gate IS NOT NULL
    AND NOT (gate > '{BEFORE_GATES}' AND gate < '{BEHIND_GATES}')"""
"""Held at a gate, and not since its key is paused."""

_MAKE_FIRST = f"""
UPDATE job SET lease_id = NULL, run_at = min(run_at, :now, coalesce((
    SELECT min(other.run_at) - 1 FROM job AS other INDEXED BY job_at_gate
    WHERE other.state = 0 AND other.open_blockers = 0 AND other.gate = job.gate AND other.type = job.type
        AND other.priority = job.priority AND other.id <> job.id), :now))
WHERE {_AT_GATE}
"""
"""Of those of its priority there."""

_LEAVE_GATE = f"UPDATE job SET state = 1, gate = NULL WHERE {_AT_GATE} AND run_at > :now"
"""It's let through or held when it's due."""


class Operator:
    """Changes by operators in one open store, each job on its own.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def change(self, change: Change[Answer], ids: Sequence[UUID], refused: Answer | None) -> Sequence[Answer]:
        """Change jobs.

        A row that refuses it is told in the log, and doesn't keep the others from being changed. What a delete leaves of long
        chains, all of it continued, is removed in portions. If that's interrupted, another delete removes the rest.

        Arguments:
            change: What is done.
            ids: To which.
            refused: What is answered for a row that refuses it; None if it's raised, once the others are changed.
        """

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[Outcome[Answer], Notification | None]:
            outcome = _together(ids, halved(connection, self._writer.timeout, ids, change, abandoned), refused)
            return outcome, outcome.notification

        outcome = await self._writer.hop(run)
        for chain in outcome.left:
            await self._remove_rest(chain)
        return outcome.results

    async def _remove_rest(self, chain: RowId) -> None:
        more = True
        while more:
            await asyncio.sleep(_PAUSE_SECONDS)
            more = await self._writer.write(functools.partial(remove_rest, chain))

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> Pruned:
        """Remove one portion of what finished long ago."""
        return await self._writer.write(lambda connection: prune(connection, state, older_than, types, limit, cursor))


def change_within(
    connection: Statements, change: Change[Answer], ids: Sequence[UUID], refused: Answer | None
) -> tuple[list[Answer], Notification | None]:
    """Change jobs as `Operator.change` does, in a transaction that is open; also gives what listeners are told of it."""
    outcome = _together(ids, halved_within(connection, ids, change), refused)
    for chain in outcome.left:
        while remove_rest(chain, connection)[0]:
            pass
    return outcome.results, outcome.notification


def _together(
    ids: Sequence[UUID],
    parts: Sequence[tuple[Sequence[UUID], Outcome[Answer] | AioqueueError]],
    refused: Answer | None,
) -> Outcome[Answer]:
    """Put together what became of the parts of a change.

    Raises:
        AioqueueError: Of a single job, or of the first that refuses it where that has no answer.
    """
    results: list[Answer] = []
    notifications: list[Notification] = []
    left: list[RowId] = []
    for part, outcome in parts:
        if not isinstance(outcome, AioqueueError):
            results += outcome.results
            left += outcome.left
            notifications += [] if outcome.notification is None else [outcome.notification]
        elif len(ids) == 1 or refused is None:
            raise outcome
        else:
            results.append(refused)
            logger.error(
                "job %s can't be changed: %s",
                part[0],
                outcome,
                extra=event("store.job_not_changed", job_id=str(part[0])),
            )
    return Outcome(results, merged(notifications), left)


def run_now(connection: Statements, ids: Sequence[UUID]) -> Outcome[Changed]:
    """Make pending jobs due, and such as are held though they wait for nothing."""
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    return _change_times(connection, ids, (_MAKE_DUE, _MAKE_FIRST), {"now": now}, 0.0)


def reschedule(
    connection: Statements, ids: Sequence[UUID], *, delay: float | None, run_at: datetime | None
) -> Outcome[Changed]:
    """Change when pending jobs are due, as `aioqueue.abc.Operable.reschedule` promises.

    Raises:
        RowRejected: They can't be due then.
    """
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    due = due_after(now, delay or 0.0, "the delay") if run_at is None else due_at(now, run_at, "the due time")
    return _change_times(connection, ids, (_PUT_OFF, _LEAVE_GATE), {"due": due, "now": now}, (due - now) / 1e6)


def _change_times(
    connection: Statements, ids: Sequence[UUID], statements: tuple[str, str], parameters: dict[str, object], delay: float
) -> Outcome[Changed]:
    """Change when jobs are due: by the first statement, and those that are held by the second one too."""
    of_all, of_held = statements
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in ids:
        end = LastStep.of(connection, job_id)
        if end is None:
            results.append(Changed.NOT_FOUND)
        elif end.archived or not (end.state == StoredState.PENDING or end.held):
            results.append(end.not_now)
        else:
            connection.execute(of_all, {**end.parameters, **parameters})
            if end.held:
                connection.execute(of_held, {**end.parameters, **parameters})
            types.add(end.type)
            results.append(Changed.DONE)
    return Outcome(results, Notification(types=frozenset(types), delay=delay) if types else None)
