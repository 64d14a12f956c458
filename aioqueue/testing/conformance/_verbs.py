"""Every verb of a store, for the cases about where and while it may be used."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._progress import phase_of, progress_of
from aioqueue.testing.conformance._tools import HOUR, job, raises
from aioqueue.testing.conformance._waiting import ends_well
from aioqueue.vocabulary._abilities import SupportsGates, SupportsPauses, SupportsPrune, SupportsRetention, SupportsSchedules
from aioqueue.vocabulary._abilities_telling import SupportsEvents, SupportsWebhooks
from aioqueue.vocabulary._gates import NewLimit
from aioqueue.vocabulary._job import Ending, SettlementKind, StoredState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._schedules import Generation
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["blocking_verbs", "each_verb_raises", "verbs"]


def verbs(store: Store, claimed: ClaimedJob) -> dict[str, Callable[[], Awaitable[object]]]:
    """Calls of all methods that need an open store, by what they do.

    Arguments:
        store: Whose methods.
        claimed: A job that is running.
    """
    lease_id, ids = claimed.lease_id, [claimed.id]
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "insert": lambda: store.insert([job()]),
        "insert of nothing": lambda: store.insert([]),
        "insert with tx=": lambda: store.insert([job()], tx=object()),
        "open_lease": lambda: store.open_lease("w", HOUR),
        "claim": lambda: store.claim(lease_id, [claimed.type], 1),
        "claim of nothing": lambda: store.claim(lease_id, [claimed.type], 0),
        "settle": lambda: store.settle([ends_well(claimed)]),
        "settle of nothing": lambda: store.settle([]),
        "settle with tx=": lambda: store.settle([ends_well(claimed)], tx=object()),
        "hold": lambda: store.hold(claimed.claim, lease_id, tx=object()),
        "end": lambda: store.end([Ending(id=claimed.id, kind=SettlementKind.COMPLETED, output=b"1")]),
        "end of nothing": lambda: store.end([]),
        "end with tx=": lambda: store.end([], tx=object()),
        "write_phases": lambda: store.write_phases([phase_of(claimed, "one")]),
        "write_phases of nothing": lambda: store.write_phases([]),
        "write_progress": lambda: store.write_progress([progress_of(claimed, 1)]),
        "write_progress of nothing": lambda: store.write_progress([]),
        "tend": lambda: store.tend(1),
        "release": lambda: store.release(lease_id, [claimed.claim]),
        "release of nothing": lambda: store.release(lease_id, []),
        "release with end": lambda: store.release(lease_id, [], end=True),
        "take_expired": lambda: store.take_expired(1),
        "next_due": lambda: store.next_due([claimed.type]),
        "fetch": lambda: store.fetch(ids),
        "fetch of nothing": lambda: store.fetch([]),
        "fetch_ends": lambda: store.fetch_ends(ids),
        "fetch_ends of nothing": lambda: store.fetch_ends([]),
        "fetch_phases": lambda: store.fetch_phases(claimed.id),
        "fetch_logs": lambda: store.fetch_logs(claimed.id),
        "list_chain": lambda: store.list_chain(claimed.id, 1),
        "list_blockers": lambda: store.list_blockers(claimed.id, 1),
        "list_dependents": lambda: store.list_dependents(claimed.id, 1),
        "list": lambda: store.list(JobFilter(), 1),
        "list_ids": lambda: store.list_ids(JobFilter(), 1),
        "find": lambda: store.find([claimed.type], "k"),
        "within": lambda: store.within(object()).fetch(ids),
        "stats": store.stats,
        "leases": store.leases,
        "standing": lambda: store.standing(claimed.id, [claimed.type]),
        "retry": lambda: store.retry(ids),
        "retry of nothing": lambda: store.retry([]),
        "run_now": lambda: store.run_now(ids),
        "reschedule": lambda: store.reschedule(ids, delay=1.0),
        "cancel": lambda: store.cancel(ids, "no"),
        "delete": lambda: store.delete(ids),
        "transaction": lambda: _enter_transaction(store),
    }
    calls.update(_of_abilities(store, ids))
    for name, call in blocking_verbs(store).items():
        calls[name] = partial(_at_once, call)
    return calls


def _of_abilities(store: Store, ids: Sequence[UUID]) -> dict[str, Callable[[], Awaitable[object]]]:
    """Calls of the methods that not every store has, and that need an open one."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {}
    if isinstance(store, SupportsPrune):
        calls["prune"] = partial(store.prune, StoredState.COMPLETED, 0.0, None, 1)
    if isinstance(store, SupportsRetention):
        calls["take_duty"] = partial(store.take_duty, "retention", "me", 1.0)
        calls["find_old"] = partial(store.find_old, {StoredState.COMPLETED: 0.0}, 1)
        calls["purge"] = partial(store.purge, ids, {StoredState.COMPLETED: 0.0})
        calls["purge of nothing"] = partial(store.purge, [], {})
    if isinstance(store, SupportsWebhooks):
        tried = DeliveryTry(id=ids[0], tries=1, state=DeliveryState.PENDING)
        calls["take_deliveries"] = partial(store.take_deliveries, 1, 1.0)
        calls["next_delivery"] = store.next_delivery
        calls["write_tries"] = partial(store.write_tries, [tried])
        calls["write_tries of nothing"] = partial(store.write_tries, [])
        calls["list_deliveries"] = partial(store.list_deliveries, limit=1)
        calls["replay_deliveries"] = partial(store.replay_deliveries, ids)
        calls["replay_deliveries of nothing"] = partial(store.replay_deliveries, [])
    if isinstance(store, SupportsEvents):
        calls["open_reader"] = partial(store.open_reader, 1.0)
        calls["keep_reader"] = partial(store.keep_reader, ids[0], 1.0)
        calls["begin_events"] = partial(store.begin_events, ids[0])
        calls["resume_events"] = partial(store.resume_events, ids[0], 1, 1)
        calls["read_events"] = partial(store.read_events, ids[0], "", 1)
    if isinstance(store, SupportsGates):
        calls["put_limits"] = partial(store.put_limits, [NewLimit(name="l", places=1)])
        calls["put_limits of nothing"] = partial(store.put_limits, [])
        calls["remove_limits"] = partial(store.remove_limits, ["l"])
        calls["remove_limits of nothing"] = partial(store.remove_limits, [])
        calls["list_limits"] = store.list_limits
        calls["gate_statuses"] = partial(store.gate_statuses, ["l"])
        calls["gate_statuses of nothing"] = partial(store.gate_statuses, [])
        calls["kept_sequences"] = store.kept_sequences
        calls["resume_sequences"] = partial(store.resume_sequences, ["s"])
        calls["resume_sequences of nothing"] = partial(store.resume_sequences, [])
    if isinstance(store, SupportsPauses):
        calls["pause"] = partial(store.pause, [NewPause(target=PauseTarget.TYPE, value="t")])
        calls["pause of nothing"] = partial(store.pause, [])
        calls["resume"] = partial(store.resume, PauseTarget.TYPE, ["t"])
        calls["resume of nothing"] = partial(store.resume, PauseTarget.TYPE, [])
        calls["list_pauses"] = store.list_pauses
    if isinstance(store, SupportsSchedules):
        calls.update(_of_schedules(store))
    return calls


def _of_schedules(store: SupportsSchedules) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "put_schedules of nothing": partial(store.put_schedules, []),
        "reconcile_schedules": partial(store.reconcile_schedules, Generation(owner="o", digest="d"), [], 1.0),
        "due_schedules": partial(store.due_schedules, 1),
        "tick of nothing": partial(store.tick, []),
        "recompute_schedules": store.recompute_schedules,
        "list_schedules": partial(store.list_schedules, 1),
        "fetch_schedules": partial(store.fetch_schedules, ["s"]),
        "fetch_schedules of nothing": partial(store.fetch_schedules, []),
        "pause_schedules": partial(store.pause_schedules, ["s"], "no", "me"),
        "resume_schedules": partial(store.resume_schedules, ["s"]),
        "delete_schedules": partial(store.delete_schedules, ["s"]),
    }


def blocking_verbs(store: Store) -> dict[str, Callable[[], object]]:
    """Calls of the methods that need an open store, and aren't coroutines."""
    return {
        "lease_session": store.lease_session,
        "subscribe": lambda: store.subscribe(lambda _: None).__enter__(),
    }


async def _enter_transaction(store: Store) -> None:
    async with store.transaction():
        pass


async def _at_once(call: Callable[[], object]) -> object:
    return call()


async def each_verb_raises(error: type[Exception], store: Store, claimed: ClaimedJob, whose: str) -> None:
    """Raise AssertionError unless each verb raises the error.

    Arguments:
        error: What each has to raise.
        store: Whose methods.
        claimed: A job that is running.
        whose: What the store is, for the message.
    """
    for name, call in verbs(store, claimed).items():
        await raises(error, call(), f"{name} of {whose}")
