"""Letting held jobs come, of which one may refuse it: the others come all the same. Inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.errors import AioqueueError
from aioqueue.sqlite._connections_halving import halved_within
from aioqueue.sqlite._rows import dump, text_of
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_news import PassedOver

__all__ = ["let_come", "let_come_from_lanes"]

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


def let_come(
    connection: Statements, gate: str, ids: Sequence[str], passed_over: PassedOver, *, counts: bool
) -> tuple[list[str], int]:
    """Make jobs that are held at a gate pending. Those that refuse it are told in the log.

    Arguments:
        connection: Where.
        gate: The gate.
        ids: As they're stored.
        passed_over: Where those are put that refuse it.
        counts: Whether whoever is let come and leaves again lets another one come.

    Returns:
        The types of those that came, as often; and how many are passed over since.
    """
    return _come(connection, _COME, ids, passed_over, {"gate": gate, "gates": dump([gate] if counts else [])})


def let_come_from_lanes(connection: Statements, ids: Sequence[str], passed_over: PassedOver) -> int:
    """Make jobs that are held in fair lanes pending, likewise. Returns how many came."""
    return len(_come(connection, _COME_FROM_LANES, ids, passed_over, {})[0])


def _come(
    connection: Statements, statement: str, ids: Sequence[str], passed_over: PassedOver, parameters: dict[str, object]
) -> tuple[list[str], int]:
    def come(connection: Statements, part: Sequence[str]) -> list[Any]:
        return connection.execute(statement, {**parameters, "ids": dump(list(part))}).fetchall()

    types: list[str] = []
    refused = 0
    for part, outcome in halved_within(connection, ids, come) if ids else ():
        if isinstance(outcome, AioqueueError):
            refused += passed_over.add(part[0], outcome)
        else:
            types += [text_of(row[0]) for row in outcome]
    return types, refused
