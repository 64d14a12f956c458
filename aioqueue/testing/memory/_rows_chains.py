"""Chains: which steps there are, and which one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["Chains", "the_end"]


class Chains:
    """The chains that there are at one moment, by their ids.

    Arguments:
        database: Whose.
    """

    def __init__(self, database: Database) -> None:
        self._rows = database.rows
        self._chains: dict[UUID, list[Row]] = {}
        for row in database.rows.values():
            self._chains.setdefault(row.chain, []).append(row)

    def steps(self, chain_id: UUID) -> list[Row]:
        """The steps of a chain that are still there, from the first; none if there is no such chain."""
        return in_order(row for row in self._chains.get(chain_id, ()) if row.new.id in self._rows)

    def steps_of(self, job_id: UUID) -> list[Row]:
        """The steps of the chain of any step. A first step that was deleted still stands for its chain."""
        return self.steps(chain_of(self._rows.get(job_id), job_id))


def chain_of(row: Row | None, job_id: UUID) -> UUID:
    """The chain that an id stands for."""
    return job_id if row is None else row.chain


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The order of a chain's steps."""
    return sorted(rows, key=lambda row: row.position)


def the_end(steps: Sequence[Row]) -> Row | None:
    """The live or last step: the one that says what became of the chain."""
    return steps[-1] if steps else None
