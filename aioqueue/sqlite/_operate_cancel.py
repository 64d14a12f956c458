"""Ending chains because somebody asks for it. Runs inside an open write transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._errors import concerns_a_row, translated
from aioqueue.sqlite._operate_steps import Outcome
from aioqueue.sqlite._rows import dump, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import RowId, any_id, id_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.sqlite._settle_batch import Batch
from aioqueue.sqlite._settle_requests import REASON, reason_of, requests
from aioqueue.store_rules._cancelling import asked_to_end, kept_reason
from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._job import Ending, SettlementKind, StoredState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["cancel", "end_unstarted"]

_STEPS = f"""
WITH {LAST_STEPS}
SELECT archived IS NOT NULL, live IS NOT NULL, typeof(live) = 'blob', CAST(live AS BLOB), typeof(chain) = 'blob',
    CAST(chain AS BLOB), job.type, job.state, job.marked IS NOT 0, job.lease_id, {REASON}
FROM step LEFT JOIN job ON job.id = step.live ORDER BY place
"""

_ASK = f"""
UPDATE job SET cancel_reason = coalesce(cancel_reason, :reason), marked = 1 WHERE id = {any_id("step")}
"""


@dataclass(frozen=True, slots=True)
class _Live:
    """The live step of a chain."""

    id: RowId
    chain: RowId
    type: str
    state: Any
    marked: int
    lease_id: Any
    reason: str | None

    @property
    def may_end(self) -> bool:
        """Whether it can be ended now. One with an odd id can't be claimed either: whoever tries moves it to the archive."""
        return self.state != StoredState.RUNNING and not self.id.blob and str(self.id.shown) == self.id.text

    def end_in(self, batch: Batch, reason: str, now: int) -> None:
        """End it, for the sake of the first reason that was given."""
        error = asked_to_end(reason if self.reason is None else self.reason, moment(now))
        ending = Ending(id=self.id.shown, kind=SettlementKind.CANCELLED, error=error)
        batch.add(ending, None, self.id.text, self.type, None if self.chain == self.id else self.chain.text, self.marked)


def cancel(connection: Statements, ids: Sequence[UUID], *, reason: str) -> Outcome[Cancellation]:
    """Ask chains to end, as `aioqueue.abc.Operable.cancel` promises. Of one that refuses to, the request is stored."""
    kept = kept_reason(reason)
    if len(ids) > 1:
        return _cancel(connection, ids, kept)
    try:
        with translated(), in_savepoint(connection, "aioqueue_cancel"):
            return _cancel(connection, ids, kept)
    except StoreError as error:
        if not concerns_a_row(error):
            raise
        return _cancel(connection, ids, kept, only_ask=True)


def end_unstarted(connection: Statements, ids: Sequence[str]) -> Outcome[Cancellation]:
    """End jobs that aren't running, but whose chains were asked to end: such as code that knows nothing of it leaves behind."""
    asked = requests(connection, ids)
    return _cancel(connection, [id_of(each) for each in ids if each in asked], "")


def _cancel(connection: Statements, ids: Sequence[UUID], reason: str, *, only_ask: bool = False) -> Outcome[Cancellation]:
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Cancellation] = []
    steps: dict[RowId, _Live] = {}
    leases: set[int] = set()
    for archived, lives, *row in connection.execute(_STEPS, {"ids": dump([str(each) for each in ids])}).fetchall():
        if not lives:
            results.append(Cancellation.FINISHED if archived else Cancellation.NOT_FOUND)
            continue
        step = _live(row)
        steps[step.id] = step
        results.append(Cancellation.CANCELLED if step.may_end and not only_ask else Cancellation.CANCELLING)
    batch = Batch(now)
    ended = False
    for step in steps.values():
        if step.may_end and not only_ask:
            step.end_in(batch, reason, now)
            ended = True
        else:
            connection.execute(_ASK, {**step.id.parameters("step"), "reason": reason})
            leases |= {step.lease_id} if step.state == StoredState.RUNNING and isinstance(step.lease_id, int) else set()
    if ended:
        batch.write(connection)
    return Outcome(results, batch.notification(frozenset(leases)) if ended or leases else None)


def _live(row: Sequence[Any]) -> _Live:
    blob, raw, chain_blob, chain_raw, job_type, state, marked, lease_id, digits = row
    reason = None if digits is None else reason_of(digits)
    return _Live(RowId.read(blob, raw), RowId.read(chain_blob, chain_raw), text_of(job_type), state, marked, lease_id, reason)
