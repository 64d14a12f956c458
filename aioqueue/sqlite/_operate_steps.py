"""What operators act on: the live or last step of a chain, by any step's id; and what a transaction of theirs has done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aioqueue.sqlite._rows import dump, one, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import RowId
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._notification import Notification


__all__ = ["Change", "LastStep", "Outcome"]

Answer = TypeVar("Answer")

_END = f"""
WITH {LAST_STEPS}
SELECT live IS NULL, coalesce(job.state, archive.state), coalesce(job.type, archive.type), archive.unique_key,
    typeof(coalesce(live, archived)) = 'blob', CAST(coalesce(live, archived) AS BLOB), job.state = 0 AND job.open_blockers = 0
FROM step LEFT JOIN job ON job.id = step.live LEFT JOIN archive ON archive.id = step.archived
WHERE coalesce(live, archived) IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Answer]):
    """What one transaction has done.

    Attributes:
        results: One for each id, in order.
        notification: What listeners are told of it.
        left: The chains that are gone but for steps that they had behind them.
    """

    results: list[Answer]
    notification: Notification | None
    left: Sequence[RowId] = ()


if TYPE_CHECKING:
    Change = Callable[[Statements, Sequence[UUID]], Outcome[Answer]]


@dataclass(frozen=True, slots=True)
class LastStep:
    """The live or last step of a chain.

    Attributes:
        archived: Whether it's in the archive.
        state: As stored.
        type: Its type.
        unique_key: What it held, of an archived one.
        id: Its id.
        held: Whether it's held though it waits for nothing, such as since its key is paused.
    """

    archived: bool
    state: Any
    type: str
    unique_key: str | None
    id: RowId
    held: bool

    @classmethod
    def of(cls, connection: Statements, job_id: UUID) -> LastStep | None:
        """Find the end of a chain by any step's id; None if there is no such chain."""
        row = one(connection, _END, {"ids": dump([str(job_id)])})
        if row is None:
            return None
        archived, state, job_type, unique_key, blob, raw, held = row
        return cls(bool(archived), state, text_of(job_type), unique_key, RowId.read(blob, raw), bool(held))

    @property
    def parameters(self) -> dict[str, Any]:
        """Its id, for statements with `any_id("step")`."""
        return self.id.parameters("step")

    @property
    def not_now(self) -> Changed:
        """What is told where it isn't in the state for a change."""
        return Changed.RUNNING if self.state == StoredState.RUNNING and not self.archived else Changed.WRONG_STATE
