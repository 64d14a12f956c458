"""The methods of `SupportsGates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioqueue.testing.memory._gates_limits import list_limits, put_limits, remove_limits
from aioqueue.testing.memory._gates_statuses import gate_statuses, kept_sequences, resume_sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence, NewLimit, StoredLimit

__all__ = ["GateVerbs"]

T = TypeVar("T")


class GateVerbs:
    """See `aioqueue.abc.SupportsGates`. Whoever derives from it says where the verbs are carried out."""

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        raise NotImplementedError

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        """Store limits. See `SupportsGates.put_limits`."""
        await self._verb("put_limits", lambda database: put_limits(database, limits, defined=defined))

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """Remove limits. See `SupportsGates.remove_limits`."""
        return await self._verb("remove_limits", lambda database: remove_limits(database, names))

    async def list_limits(self) -> Sequence[StoredLimit]:
        """All limits. See `SupportsGates.list_limits`."""
        return await self._verb("list_limits", list_limits)

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        """How gates are. See `SupportsGates.gate_statuses`."""
        return await self._verb("gate_statuses", lambda database: gate_statuses(database, gates))

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        """Those that a failed member keeps. See `SupportsGates.kept_sequences`."""
        return await self._verb("kept_sequences", kept_sequences)

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """Let sequences go on. See `SupportsGates.resume_sequences`."""
        return await self._verb("resume_sequences", lambda database: resume_sequences(database, names))
