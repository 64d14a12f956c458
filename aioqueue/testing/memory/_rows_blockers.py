"""Who waits for which chain, and how chains ended for which somebody waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._blockers import ChainEnd, EndedBlocker

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

__all__ = ["Blockers", "Edge", "End"]


@dataclass(slots=True)
class Edge:
    """One chain that one job waits for, or has waited for.

    Attributes:
        resolved: Whether the chain's end has been counted.
    """

    job_id: UUID
    ordinal: int
    chain_id: UUID
    settled: bool
    places: bytes
    resolved: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """How a chain has ended.

    Attributes:
        cause: What became of the first one that didn't complete.
        untold: Whether there are jobs that haven't been told yet.
        take_along: Whether those that wait are deleted with it.
    """

    chain_id: UUID
    end: ChainEnd
    output: bytes | None = None
    cause: str = ""
    untold: bool = True
    take_along: bool = False


class Blockers:
    """Both tables.

    Attributes:
        edges: By the job that waits, in the order of their ordinals.
        ends: By the chain.
    """

    def __init__(self) -> None:
        self.edges: dict[UUID, list[Edge]] = {}
        self.ends: dict[UUID, End] = {}

    def copy(self) -> Blockers:
        """The same, on its own."""
        made = Blockers()
        made.edges = {job_id: [replace(edge) for edge in edges] for job_id, edges in self.edges.items()}
        made.ends = dict(self.ends)
        return made

    def of(self, job_id: UUID) -> list[Edge]:
        """What a job waits for, or has waited for."""
        return self.edges.get(job_id, [])

    def on(self, chains: Collection[UUID]) -> list[Edge]:
        """Who waits for one of the chains, or has waited for it."""
        return [edge for edges in self.edges.values() for edge in edges if edge.chain_id in chains]

    def unresolved(self) -> list[Edge]:
        """Whatever hasn't been counted yet."""
        return [edge for edges in self.edges.values() for edge in edges if not edge.resolved]

    def ended(self, job_id: UUID) -> tuple[EndedBlocker, ...]:
        """What a job that is started has waited for."""
        return tuple(self._ended(edge) for edge in self.of(job_id))

    def _ended(self, edge: Edge) -> EndedBlocker:
        end = self.ends.get(edge.chain_id) or End(edge.chain_id, ChainEnd.DELETED, cause="it's gone")
        return EndedBlocker(edge.chain_id, end.end, end.output, end.cause, edge.places)
