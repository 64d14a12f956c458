"""Changes that aren't made yet: of an open transaction, and of what may turn out to be impossible half-way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_blockers import Edge
from aioqueue.testing.memory._rows_jobs import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import Settlement
    from aioqueue.vocabulary._notification import Notification

__all__ = ["Change", "Draft", "make_changes"]

_CHANGES = (
    "add",
    "remove",
    "hold",
    "replace",
    "let_go",
    "keep_window",
    "request",
    "request_beside",
    "write",
    "end",
    "reopen",
    "bring_forward",
    "reschedule",
    "forget_progress",
    "mark",
    "add_edges",
    "drop_edges",
    "resolve",
    "count_down",
    "remember",
    "forget",
)
"""The methods of a database with which producers and workers change it."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row that is stored when a change is made."""

    job_id: UUID


@dataclass(frozen=True, slots=True)
class Change:
    """One call of a database's method.

    Attributes:
        name: The method.
        arguments, named: What it was given; rows that were stored before are in it by their ids, others as they were.
    """

    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def job_id(self) -> UUID | None:
        """The row that it changes, if that was stored before."""
        first = self.arguments[0]
        return first.job_id if isinstance(first, _Stored) else None

    @property
    def added(self) -> Row | None:
        """The row that it adds."""
        first = self.arguments[0]
        return first if isinstance(first, Row) else None

    def make(self, database: Database) -> None:
        """Make it, to a database in which its row is stored."""
        arguments = [_thawed(each, database) for each in self.arguments]
        getattr(database, self.name)(*arguments, **self.named)


class Draft(Database):
    """A copy of a database, to which changes are made; they're kept, to be made to the database itself.

    Arguments:
        base: The database.
        changes: What was changed before.
        holding: Rows that whoever makes the changes has locked.
    """

    def __init__(self, base: Database, changes: Sequence[Change] = (), holding: Iterable[UUID] = ()) -> None:
        super().__init__()
        self.base = base
        self.holding = frozenset(holding)
        self.rows = {job_id: replace(row, held=row.held and job_id not in self.holding) for job_id, row in base.rows.items()}
        self.blockers = base.blockers.copy()
        self.come = base.come.copy()
        self.windows = dict(base.windows)
        self.requests = dict(base.requests)
        self.leases = base.leases
        self.workers = base.workers
        self.uncommitted = {} if holding or changes else base.uncommitted
        self.told: list[Notification] = []
        self.changes: list[Change] = list(changes)
        make_changes(self, changes)
        for name in _CHANGES:
            setattr(self, name, self._noting(name, getattr(self, name)))

    def _noting(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def method(*arguments: Any, **named: Any) -> None:
            frozen = tuple(_frozen(each, new=name == "add") for each in arguments)
            self.changes.append(Change(name, frozen, named))
            real(*arguments, **named)

        return method

    def now(self) -> datetime:
        """The database's clock."""
        return self.base.now()

    def tell(self, notification: Notification) -> None:
        """Keep it until the changes are made."""
        self.told.append(notification)

    def refusal(self, row: Row, each: Settlement) -> str:
        """What the database says."""
        return self.base.refusal(row, each)


def make_changes(database: Database, changes: Iterable[Change]) -> None:
    """Make changes that were made to a draft before."""
    for change in changes:
        change.make(database)


def _frozen(value: Any, *, new: bool) -> Any:
    if isinstance(value, Row):
        return replace(value) if new else _Stored(value.new.id)
    if isinstance(value, list | tuple):
        return tuple(_frozen(each, new=new) for each in cast("Iterable[object]", value))
    return replace(value) if isinstance(value, Edge) else value


def _thawed(value: Any, database: Database) -> Any:
    if isinstance(value, _Stored):
        return database.rows[value.job_id]
    if isinstance(value, Row | Edge):
        return replace(value)
    if isinstance(value, tuple):
        return [_thawed(each, database) for each in cast("tuple[object, ...]", value)]
    return value
