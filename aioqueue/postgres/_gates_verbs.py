"""The store's verbs for gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._gates import GateStatuses
    from aioqueue.postgres._gates_limits import Limits
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence, NewLimit, StoredLimit

__all__ = ["GateVerbs"]


class GateVerbs:
    """What `aioqueue.abc.SupportsGates` asks for."""

    @property
    def _limits(self) -> Limits:
        """Those of the open store."""
        raise NotImplementedError

    @property
    def _gate_statuses(self) -> GateStatuses:
        """Those of the open store."""
        raise NotImplementedError

    def _tell(self, notification: Notification) -> None:
        """Tell this process's listeners."""
        raise NotImplementedError

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        """See `aioqueue.abc.SupportsGates.put_limits`."""
        if await self._limits.put(limits, defined=defined):
            self._tell(Notification(gates=True))

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsGates.remove_limits`."""
        removed = await self._limits.remove(names)
        if any(removed):
            self._tell(Notification(gates=True))
        return removed

    async def list_limits(self) -> Sequence[StoredLimit]:
        """See `aioqueue.abc.SupportsGates.list_limits`."""
        return await self._limits.list()

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        """See `aioqueue.abc.SupportsGates.gate_statuses`."""
        return await self._gate_statuses.look(gates)

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        """See `aioqueue.abc.SupportsGates.kept_sequences`."""
        return await self._gate_statuses.kept()

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsGates.resume_sequences`."""
        resumed = await self._gate_statuses.resume(names)
        if any(resumed):
            self._tell(Notification(gates=True))
        return resumed
