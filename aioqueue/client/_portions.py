"""Changes of many jobs, a bounded number in each commit: by their ids, by a filter, and pruning."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aioqueue.client._filters import read_filters
from aioqueue.client._handle import ids_of
from aioqueue.errors import ConfigurationError, NotSupported, RowRejected, StoreContended, StoreError, TransactionError
from aioqueue.vocabulary._abilities import SupportsPrune
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._handle import JobHandle
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._store_operating import Operable

    Change = Callable[[Sequence[UUID]], Awaitable["P"]]
    OnPortion = Callable[["Changes", Counter[Changed]], object]
    Cancellations = dict[UUID, Cancellation]
    OnCancelled = Callable[[Cancellations, Counter[Cancellation]], object]

__all__ = [
    "CANCELLED",
    "DELETED",
    "RESCHEDULED",
    "RETRIED",
    "RUN",
    "Cancellations",
    "Change",
    "Changes",
    "Meant",
    "OnCancelled",
    "OnPortion",
    "change_all",
    "change_given",
    "changes_of",
    "prune_in_portions",
]

A = TypeVar("A", "Changed", "Cancellation")
P = TypeVar("P", bound="dict[UUID, Any]")
"""What became of one portion's jobs, by id: `Changes`, or `Cancellations`."""

PORTION_JOBS = 1_000
"""Jobs that one statement of `retry`, `run_now`, `cancel` and the others changes, with a commit of its own."""


class Meant(NamedTuple):
    """The states of the jobs that a change by filter is about.

    Attributes:
        usual: Unless the filter says otherwise.
        named: Those, too, if the filter names them.
    """

    usual: frozenset[JobState]
    named: frozenset[JobState] = frozenset()


RETRIED = Meant(frozenset({JobState.FAILED, JobState.CANCELLED}))
RUN = Meant(frozenset({JobState.SCHEDULED}))
RESCHEDULED = Meant(frozenset({JobState.SCHEDULED}), frozenset({JobState.READY, JobState.HELD}))
CANCELLED = Meant(frozenset(state for state in JobState if not state.finished))
DELETED = Meant(frozenset(JobState) - {JobState.RUNNING, JobState.CONTINUED}, frozenset({JobState.RUNNING}))


class Changes(dict["UUID", Changed]):
    """What became of each of several jobs that were to be changed, by the id that was given.

    Attributes:
        holders: Of jobs that are `KEY_HELD`, by the same ids: the chain that holds the unique key, as far as it's still there.
    """

    def __init__(self, changed: Iterable[tuple[UUID, Changed]] = ()) -> None:
        super().__init__(changed)
        self.holders: dict[UUID, UUID] = {}


async def change_given(change: Change[P], jobs: Iterable[UUID | str | JobHandle[Any]], became: P) -> P:
    """Change jobs whose ids are given, a bounded number in each commit.

    Arguments:
        change: Changes a portion.
        jobs: Which.
        became: Empty: what becomes of them is put there.

    Raises:
        ValueError: An id isn't one; nothing was changed.
        StoreError: The database refused; its `changed` says what became of the portions before.
    """
    ids = ids_of(jobs)
    for start in range(0, len(ids), PORTION_JOBS):
        try:
            portion = await change(ids[start : start + PORTION_JOBS])
        except StoreError as error:
            error.changed = became
            raise
        became.update(portion)
        if isinstance(became, Changes) and isinstance(portion, Changes):
            became.holders.update(portion.holders)
    return became


async def change_all(
    store: Operable,
    change: Change[P],
    where: JobFilter,
    meant: Meant,
    on_portion: Callable[[P, Counter[A]], object] | None,
    *,
    within: bool,
) -> Counter[A]:
    """Change all jobs that fit, from the newest, a bounded number in each commit.

    A portion that can't be changed, since somebody holds the whole table or one row is at fault, stops no other: its error is
    raised at the end.

    Arguments:
        store: What lists them.
        change: Changes a portion.
        where: Which ones.
        meant: In which states.
        on_portion: As of `Client.retry`.
        within: Whether it's done in an open transaction: then as one portion.

    Returns:
        How many became what.

    Raises:
        ConfigurationError: The filter is empty, or has states that can't be changed so.
        TransactionError: More fit than one portion has, and it's done in an open transaction. Nothing was changed.
        StoreError: The database refused; its `changed` says how many became what before, and in other portions.
        Exception: What `on_portion` raised; its portion has been changed.
    """
    where = _narrowed(where, meant)
    total: Counter[A] = Counter()
    try:
        if within:
            await _refuse_several_portions(store, where)
        refused = await _change_portions(store, change, where, on_portion, total, within=within)
        if refused is not None:
            raise refused
    except StoreError as error:
        error.changed = total
        raise
    return total


async def _change_portions(
    store: Operable,
    change: Change[P],
    where: JobFilter,
    on_portion: Callable[[P, Counter[A]], object] | None,
    total: Counter[A],
    *,
    within: bool,
) -> StoreError | None:
    """Change them portion by portion, and count what they became; returns the first error that concerned one portion."""
    refused: StoreError | None = None
    cursor: str | None = None
    while True:
        page = await store.list_ids(where, PORTION_JOBS, cursor)
        try:
            portion = await change(page.ids) if page.ids else None
        except (StoreContended, RowRejected) as error:
            if within:
                raise
            refused = refused or error
            refused.add_note(f"{len(page.ids):,} jobs, from {page.ids[0]} to {page.ids[-1]}, weren't changed: {error}")
        else:
            if portion is not None:
                total.update(portion.values())
                await _tell(on_portion, portion, total)
        if (cursor := page.cursor) is None:
            return refused


async def changes_of(
    store: Operable, verb: Callable[[Sequence[UUID]], Awaitable[Sequence[Changed]]], ids: Sequence[UUID]
) -> Changes:
    """Change one portion with a verb of the store's, and look who holds the keys of those that weren't changed for that."""
    changes = Changes(zip(ids, await verb(ids), strict=True))
    if held := [job_id for job_id, became in changes.items() if became is Changed.KEY_HELD]:
        changes.holders = await _holders(store, held)
    return changes


async def _holders(store: Operable, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The chains that hold the unique keys of these jobs, by their ids, as far as they can be found."""
    holders: dict[UUID, UUID] = {}
    try:
        keyed = [(each, end) for each, end in zip(ids, await store.fetch_ends(ids), strict=True) if end is not None]
        # A key counts for the type of the chain's first job.
        firsts = await store.fetch([end.chain_id for _, end in keyed])
        known: dict[tuple[str, str], Job | None] = {}
        for (job_id, end), first in zip(keyed, firsts, strict=True):
            if end.key is None:
                continue
            named = (end.type if first is None else first.type, end.key)
            if named not in known:
                known[named] = await store.find([named[0]], named[1])
            found = known[named]
            if found is not None and not found.state.finished and found.chain_id != end.chain_id:
                holders[job_id] = found.chain_id
    except StoreError:
        return holders  # what has been changed is told all the same
    return holders


def _narrowed(where: JobFilter, meant: Meant) -> JobFilter:
    """The jobs that are meant: of each chain its live or last step, and by default only those that can be changed so.

    Raises:
        ConfigurationError: As of `change_all`.
    """
    if not isinstance(where, JobFilter):
        raise ConfigurationError(f'where= takes a filter, such as JobFilter(states=["failed"]), not {where!r:.100}')
    if dataclasses.replace(where, ends=False) == JobFilter():
        raise ConfigurationError(
            "an empty filter means all jobs, which is rarely meant by whoever has changes made: say which, such as "
            'JobFilter(states=["failed"]). All that are there now are JobFilter(created_before=datetime.now(UTC))'
        )
    allowed = meant.usual | meant.named
    if wrong := [state.value for state in JobState if state in where.states - allowed]:
        those = ", ".join(state.value for state in JobState if state in allowed)
        raise ConfigurationError(f"jobs that are {' or '.join(wrong)} aren't changed so, only those that are {those}")
    return dataclasses.replace(where, states=where.states or meant.usual, ends=True)


async def _refuse_several_portions(store: Operable, where: JobFilter) -> None:
    seen, cursor = 0, None
    while True:
        page = await store.list_ids(where, PORTION_JOBS + 1 - seen, cursor)
        seen += len(page.ids)
        if seen > PORTION_JOBS:
            raise TransactionError(
                f"more than {PORTION_JOBS:,} jobs fit, too many for one transaction, whose locks others would wait for: change "
                "them without tx=, in portions that commit one by one"
            )
        if (cursor := page.cursor) is None:
            return


async def _tell(on_portion: Callable[[P, Counter[A]], object] | None, portion: P, total: Counter[A]) -> None:
    if on_portion is None:
        return
    try:
        answer = on_portion(portion, total.copy())
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        became = ", ".join(f"{number:,} {each.value}" for each, number in total.items())
        error.add_note(f"raised by on_portion=, after {total.total():,} jobs: {became}")
        raise


async def prune_in_portions(
    store: Store,
    older_than: float | timedelta,
    states: Iterable[JobState | str],
    types: Iterable[JobType[..., Any, Any] | str],
    on_portion: Callable[[Sequence[UUID]], object] | None,
) -> int:
    """Remove what finished long ago, as `Client.prune` promises.

    Raises:
        ConfigurationError: The duration can't be one, a state isn't that of finished jobs, or one text was given where several
            are taken.
        NotSupported: The store can't.
    """
    age = seconds(older_than, "older_than")
    where = read_filters(None, ends=False, states=states, types=types)
    if unfinished := sorted(state for state in where.states if not state.finished):
        raise ConfigurationError(f"only finished jobs are pruned, not those that are {', '.join(unfinished)}")
    if not isinstance(store, SupportsPrune):
        raise NotSupported(f"{store.description} can't prune: list jobs, and delete them", ability="prune")
    begun, removed = time.monotonic(), 0
    for state in (each for each in JobState if each.finished and (not where.states or each in where.states)):
        cursor: str | None = None
        while True:
            # What finishes meanwhile doesn't become old enough meanwhile: otherwise it might never end.
            limit_age = age + time.monotonic() - begun
            pruned = await store.prune(StoredState[state.name], limit_age, where.types or None, PORTION_JOBS, cursor)
            removed += len(pruned.ids)
            if on_portion is not None and pruned.ids:
                on_portion(pruned.ids)
            if (cursor := pruned.cursor) is None:
                break
    return removed
