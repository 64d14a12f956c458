"""The store's verbs for pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._pauses import Pauses
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._pauses import NewPause, Pause, PauseTarget

__all__ = ["PauseVerbs"]


class PauseVerbs:
    """What `aioqueue.abc.SupportsPauses` asks for."""

    @property
    def _pauses(self) -> Pauses:
        """Those of the open store."""
        raise NotImplementedError

    def _tell(self, notification: Notification) -> None:
        """Tell this process's listeners."""
        raise NotImplementedError

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """See `aioqueue.abc.SupportsPauses.pause`."""
        await self._pauses.pause(pauses)

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None = None) -> int:
        """See `aioqueue.abc.SupportsPauses.resume`."""
        lifted, told = await self._pauses.resume(target, values, by)
        self._tell(told)
        return lifted

    async def list_pauses(self) -> Sequence[Pause]:
        """See `aioqueue.abc.SupportsPauses.list_pauses`."""
        return await self._pauses.list()
