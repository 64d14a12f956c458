"""Limits as people and code store them. See `SupportsGates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._gates import held_at, runs_at
from aioqueue.testing.memory._rows_gates import Limit, gate_held_at
from aioqueue.vocabulary._gates import StoredLimit, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._gates import NewLimit

__all__ = ["list_limits", "put_limits", "remove_limits"]

COUNTED = 10_000
"""How far it's counted who runs or waits."""


def put_limits(database: Database, limits: Sequence[NewLimit], *, defined: bool) -> None:
    """Store limits. See `SupportsGates.put_limits`."""
    for each in limits:
        stored = database.gates.limits.get(each.name)
        if not defined:
            by_code = None if stored is None else stored.defined
            database.gates.limits[each.name] = Limit(each, by_code, changed=by_code is not None)
        elif is_news(stored, each):
            database.gates.limits[each.name] = Limit(each, each)
        let_waiting_come(database, each.name)


def is_news(stored: Limit | None, limit: NewLimit) -> bool:
    """Whether code says something else than the last time."""
    return stored is None or stored.defined != limit


def remove_limits(database: Database, names: Sequence[str]) -> list[bool]:
    """Remove limits. See `SupportsGates.remove_limits`."""
    removed = [database.gates.limits.pop(name, None) is not None for name in names]
    for name in names:
        let_waiting_come(database, name)
    return removed


def let_waiting_come(database: Database, name: str) -> None:
    """Leave marks at the gates of a limit that was changed: as many may come as it has room for."""
    for gate in dict.fromkeys(gate_held_at(row) for row in database.rows.values()):
        if gate is not None and name_of(gate) == name:
            database.gates.mark(gate, len(held_at(database, gate)))


def list_limits(database: Database) -> list[StoredLimit]:
    """All limits. See `SupportsGates.list_limits`."""
    return [_told(database, database.gates.limits[name]) for name in sorted(database.gates.limits)]


def _told(database: Database, stored: Limit) -> StoredLimit:
    limit, rows = stored.limit, database.rows.values()
    at_it = {gate for row in rows for gate in (*(row.gates or ()), row.held_by or "") if name_of(gate) == limit.name}
    return StoredLimit(
        name=limit.name,
        kind=limit.kind,
        places=limit.places,
        per=limit.per,
        burst=limit.burst,
        defined=stored.defined is not None,
        changed=stored.changed,
        running=0 if limit.per is not None else min(COUNTED, sum(runs_at(row, gate) for row in rows for gate in at_it)),
        waiting=min(COUNTED, sum(gate_held_at(row) == gate for row in rows for gate in at_it)),
    )
