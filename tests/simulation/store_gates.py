"""The part of the store of a history that tells the checker of limits and sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.store_plans import PlansStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._gates import NewLimit

__all__ = ["GatesStore"]


class GatesStore(PlansStore):
    """See the module. Of one whose answer gets lost, the checker hears all the same."""

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        """As it says."""
        await self._seeing(
            lambda _: self.checker.gates.put(limits, defined=defined), super().put_limits(limits, defined=defined)
        )

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """As it says."""
        return await self._seeing(lambda _: self.checker.gates.removed(names), super().remove_limits(names))

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """As it says."""
        return await self._seeing(lambda _: self.checker.gates.resumed(names), super().resume_sequences(names))
