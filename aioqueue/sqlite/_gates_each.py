"""Letting held jobs come, of which one may refuse it: the others come all the same. Inside an open write transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aioqueue.errors import AioqueueError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved_within
from aioqueue.sqlite._rows import dump, text_of
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["let_come", "let_come_from_lanes"]

logger = logging.getLogger("aioqueue.sqlite")

_COME = """
UPDATE job SET state = 1, gates = :gates WHERE state = 0 AND open_blockers = 0 AND +gate = :gate
    AND id IN (SELECT value FROM json_each(:ids))
RETURNING type
"""
"""`gate` stays: it says where they were let come. They're found by their ids, not among all that are held there."""

_COME_FROM_LANES = f"""
UPDATE job SET state = 1 WHERE state = 0 AND open_blockers = 0 AND substr(gate, 1, {len(FAIR)}) = '{FAIR}'
    AND id IN (SELECT value FROM json_each(:ids))
RETURNING type
"""


def let_come(connection: Statements, gate: str, ids: Sequence[str], *, counts: bool) -> list[str]:
    """Make jobs that are held at a gate pending. Those that refuse it are told in the log.

    Arguments:
        connection: Where.
        gate: The gate.
        ids: As they're stored.
        counts: Whether whoever is let come and leaves again lets another one come.

    Returns:
        The types of those that came, as often.
    """
    return _come(connection, _COME, ids, {"gate": gate, "gates": dump([gate] if counts else [])})


def let_come_from_lanes(connection: Statements, ids: Sequence[str]) -> int:
    """Make jobs that are held in fair lanes pending, likewise. Returns how many came."""
    return len(_come(connection, _COME_FROM_LANES, ids, {}))


def _come(connection: Statements, statement: str, ids: Sequence[str], parameters: dict[str, object]) -> list[str]:
    def come(connection: Statements, part: Sequence[str]) -> list[Any]:
        return connection.execute(statement, {**parameters, "ids": dump(list(part))}).fetchall()

    types: list[str] = []
    for part, outcome in halved_within(connection, ids, come) if ids else ():
        if isinstance(outcome, AioqueueError):
            why = event("store.row_passed_over", job_id=part[0])
            logger.error("job %s is passed over at its gate: %s", part[0], outcome, extra=why)
        else:
            types += [text_of(row[0]) for row in outcome]
    return types
