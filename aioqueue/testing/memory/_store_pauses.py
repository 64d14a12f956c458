"""The methods of `SupportsPauses`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioqueue.testing.memory._pauses import list_pauses, pause, resume

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._pauses import NewPause, Pause, PauseTarget

__all__ = ["PauseVerbs"]

T = TypeVar("T")


class PauseVerbs:
    """See `aioqueue.abc.SupportsPauses`. Whoever derives from it says where the verbs are carried out."""

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        raise NotImplementedError

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """Store pauses. See `SupportsPauses.pause`."""
        await self._verb("pause", lambda database: pause(database, pauses))

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None = None) -> int:
        """Lift pauses. See `SupportsPauses.resume`."""
        return await self._verb("resume", lambda database: resume(database, target, values, by))

    async def list_pauses(self) -> Sequence[Pause]:
        """What is paused. See `SupportsPauses.list_pauses`."""
        return await self._verb("list_pauses", list_pauses)
