"""What the store has beside `aioqueue.abc.Store`: retention, webhooks, the log of events, schedules, pauses, gates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._opened import Opened
    from aioqueue.vocabulary._event_log import EventPage
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence, NewLimit, StoredLimit
    from aioqueue.vocabulary._job import StoredState
    from aioqueue.vocabulary._listing import IdPage
    from aioqueue.vocabulary._pauses import NewPause, Pause, PauseTarget
    from aioqueue.vocabulary._schedules import (
        DueSchedules,
        Generation,
        NewSchedule,
        Reconciled,
        ScheduleChange,
        SchedulePage,
        StoredSchedule,
        Tick,
        Ticked,
    )
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState, DeliveryTry

__all__ = ["StoreAbilities"]


class StoreAbilities(ABC):
    """The optional abilities of `SQLiteStore`."""

    @property
    @abstractmethod
    def _opened(self) -> Opened: ...

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """See `aioqueue.abc.SupportsRetention.take_duty`."""
        return await self._opened.retention.take_duty(name, holder, duration)

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.SupportsRetention.find_old`."""
        return await self._opened.retention.find_old(ages, limit, cursor)

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> Sequence[UUID]:
        """See `aioqueue.abc.SupportsRetention.purge`."""
        return await self._opened.retention.purge(chain_ids, ages)

    async def take_deliveries(self, limit: int, duration: float, *, without: Collection[str] = ()) -> Sequence[Delivery]:
        """See `aioqueue.abc.SupportsWebhooks.take_deliveries`."""
        return await self._opened.webhooks.take(limit, duration, without)

    async def next_delivery(self) -> float | None:
        """See `aioqueue.abc.SupportsWebhooks.next_delivery`."""
        return await self._opened.webhooks.next_due()

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """See `aioqueue.abc.SupportsWebhooks.write_tries`."""
        await self._opened.webhooks.write_tries(tries)

    async def list_deliveries(
        self, *, chain_id: UUID | None = None, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> DeliveryPage:
        """See `aioqueue.abc.SupportsWebhooks.list_deliveries`."""
        return await self._opened.webhooks.list(chain_id, state, limit, cursor)

    async def replay_deliveries(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsWebhooks.replay_deliveries`."""
        return await self._opened.webhooks.replay(ids)

    async def open_reader(self, duration: float) -> UUID:
        """See `aioqueue.abc.SupportsEvents.open_reader`."""
        return await self._opened.events.open(duration)

    async def keep_reader(self, reader: UUID, duration: float) -> bool:
        """See `aioqueue.abc.SupportsEvents.keep_reader`."""
        return await self._opened.events.keep(reader, duration)

    async def begin_events(self, reader: UUID, *, timeout: float = 5.0) -> EventPage:  # noqa: ARG002 - nobody is waited for
        """See `aioqueue.abc.SupportsEvents.begin_events`."""
        return await self._opened.events.begin(reader)

    async def resume_events(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.resume_events`."""
        return await self._opened.events.resume(reader, sequence, limit)

    async def read_events(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.read_events`."""
        return await self._opened.events.read(reader, cursor, limit)

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.put_schedules`."""
        return await self._opened.schedules.put(schedules)

    async def reconcile_schedules(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """See `aioqueue.abc.SupportsSchedules.reconcile_schedules`."""
        return await self._opened.schedules.reconcile(generation, schedules, live)

    async def due_schedules(self, limit: int, *, cron: bool = True, without: Collection[str] = ()) -> DueSchedules:
        """See `aioqueue.abc.SupportsSchedules.due_schedules`."""
        return await self._opened.schedules.due(limit, cron=cron, without=without)

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """See `aioqueue.abc.SupportsSchedules.tick`."""
        return await self._opened.schedules.tick(ticks)

    async def recompute_schedules(self, names: Collection[str] | None = None) -> int:
        """See `aioqueue.abc.SupportsSchedules.recompute_schedules`."""
        return await self._opened.schedules.recompute(names)

    async def list_schedules(self, limit: int, cursor: str | None = None) -> SchedulePage:
        """See `aioqueue.abc.SupportsSchedules.list_schedules`."""
        return await self._opened.schedules.list(limit, cursor)

    async def fetch_schedules(self, names: Sequence[str]) -> Sequence[StoredSchedule | None]:
        """See `aioqueue.abc.SupportsSchedules.fetch_schedules`."""
        return await self._opened.schedules.fetch(names)

    async def pause_schedules(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.pause_schedules`."""
        return await self._opened.schedules.pause(names, reason, by)

    async def resume_schedules(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.resume_schedules`."""
        return await self._opened.schedules.resume(names)

    async def delete_schedules(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """See `aioqueue.abc.SupportsSchedules.delete_schedules`."""
        return await self._opened.schedules.delete(names)

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """See `aioqueue.abc.SupportsPauses.pause`."""
        await self._opened.pauses.pause(pauses)

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None = None) -> int:
        """See `aioqueue.abc.SupportsPauses.resume`."""
        return await self._opened.pauses.resume(target, values, by=by)

    async def list_pauses(self) -> Sequence[Pause]:
        """See `aioqueue.abc.SupportsPauses.list_pauses`."""
        return await self._opened.pauses.list()

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        """See `aioqueue.abc.SupportsGates.put_limits`."""
        await self._opened.gates.put_limits(limits, defined=defined)

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsGates.remove_limits`."""
        return await self._opened.gates.remove_limits(names)

    async def list_limits(self) -> Sequence[StoredLimit]:
        """See `aioqueue.abc.SupportsGates.list_limits`."""
        return await self._opened.gates.list_limits()

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        """See `aioqueue.abc.SupportsGates.gate_statuses`."""
        return await self._opened.gates.gate_statuses(gates)

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        """See `aioqueue.abc.SupportsGates.kept_sequences`."""
        return await self._opened.gates.kept_sequences()

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsGates.resume_sequences`."""
        return await self._opened.gates.resume_sequences(names)
