"""Storing jobs of which more is asked: keys with windows, or that replace or refuse; chosen ids, and implied jobs.

What has a key, or may be there already, is decided first, in the order of the keys' hashes, as everywhere: concurrent batches
wait for each other instead of deadlocking. Within a key the order is the batch's. A portion of which a key is free after all
begins anew from its first one, with all behind it let go by a savepoint. Rows of holders are locked once all keys of a portion
are known to be ours or theirs.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreContended
from aioqueue.postgres._events_log import UNLOGGED
from aioqueue.postgres._insert_decisions import Stored
from aioqueue.postgres._insert_replace import Holder, let_go, lock_holders, replace_jobs, replace_statements
from aioqueue.postgres._insert_rows import (
    frees_at_start,
    insert_on,
    insert_statements,
    job_size,
    sequenced_arguments,
    waiting_arguments,
)
from aioqueue.postgres._insert_sequences import has_sequences
from aioqueue.postgres._insert_waits import brief_waits
from aioqueue.postgres._insert_windows import Window, completed_within, keep_keys, window_statements
from aioqueue.postgres._notifications import inserted_note
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.store_rules._batches import implied_in_vain
from aioqueue.store_rules._unique_keys import unique_hashes, wrong_type_of_chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Storing", "unique_statements"]

_PORTION, _BATCH = (
    tuple(f"{verb} aioqueue_{name}" for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"))
    for name in ("keys", "implied")
)
_TYPES = """SELECT id, type FROM @schema@.job WHERE id = ANY($1::uuid[])
UNION ALL SELECT id, type FROM @schema@.archive WHERE id = ANY($1::uuid[])"""
_REMOVE = f"""WITH gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) RETURNING j.id
), {UNLOGGED.format(gone="gone")}
SELECT count(*) FROM gone"""


def unique_statements(schema: Schema) -> dict[str, str]:
    """All statements that `Storing` needs, by name."""
    return {
        "unique_types": schema.render(_TYPES),
        "unique_remove": schema.render(_REMOVE),
        **insert_statements(schema),
        **replace_statements(schema),
        **window_statements(schema),
    }


class Storing:
    """Stores the jobs of one insert within the connection's open transaction, but for what they wait for.

    Arguments:
        connection: In a transaction.
        statements: Those of `unique_statements`, and maybe others.
        repeated: Whether they may have been stored by an earlier try.
        origin: Who tells other processes; None if nobody is to be told.
        columns: Gives for how many chains each of some jobs waits, and whether it's marked.
        callers: Whether the transaction is somebody else's, who decides how long the unique keys are waited for.
    """

    def __init__(
        self,
        connection: Connection,
        statements: dict[str, str],
        *,
        repeated: bool,
        origin: str | None,
        columns: Callable[[Sequence[NewJob]], list[Any]],
        callers: bool,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._repeated = repeated
        self._origin = origin
        self._columns = columns
        self._callers = callers
        self._names: dict[UUID, tuple[UUID, ...]] = {}
        self._hashes: dict[UUID, UUID] = {}
        self._batch: Sequence[NewJob] = ()

    async def store(self, jobs: Sequence[NewJob], awaited: Collection[UUID]) -> Stored:
        """Store jobs.

        Arguments:
            jobs: A job comes after those that it waits for.
            awaited: Those of them for which jobs wait that are stored with them, but aren't of these.
        """
        self._batch = jobs
        implied = any(job.implied for job in jobs)
        ids = {job.id for job in jobs if job.unique or job.chosen_id or (implied and self._repeated)}
        first = [job for job in jobs if job.id in ids]
        rest = [job for job in jobs if job.id not in ids]
        if not implied:
            stored = await self._decide(first)
        else:
            stored, vain = await self._decide_with_implied(jobs, first, {job.id for job in rest}, awaited)
            rest = [job for job in rest if job.id not in vain]
        if rest:
            note = inserted_note([job for job in rest if not job.blockers], self._origin)
            results = await insert_on(
                self._connection, self._statements, rest, repeated=self._repeated, note=note, more_columns=self._columns
            )
            stored.add(Stored.of(rest, results))
        return stored

    async def _decide_with_implied(
        self, jobs: Sequence[NewJob], first: Sequence[NewJob], rest: Collection[UUID], awaited: Collection[UUID]
    ) -> tuple[Stored, set[UUID]]:
        """Decide about those that come first; returns those that are implied in vain, too, none of which was stored.

        Arguments:
            jobs: All of them.
            first: Those that are decided.
            rest: The ids of the others, which are stored in any case, unless they are implied in vain.
            awaited: See `store`.
        """
        in_vain: set[UUID] = set()
        last: set[UUID] = set()
        savepoint, roll_back, release = _BATCH
        await self._connection.execute(savepoint)
        while True:
            stored = await self._decide([job for job in first if job.id not in in_vain or job.id in last], last)
            stand = stored.created | stored.replacing
            useless = implied_in_vain(jobs, {*stand, *rest}, awaited)
            if vain := useless & stand:
                # Those behind them may get the keys that they had.
                in_vain |= vain
                last -= vain
            elif needed := in_vain - useless - last:
                # By one of those: it mustn't take its key from it.
                last |= needed
            else:
                break
            await self._connection.execute(roll_back)
        await self._connection.execute(release)
        for job_id in useless:
            stored.chains.pop(job_id, None)
            stored.refused.pop(job_id, None)
        return stored, useless

    async def _decide(self, jobs: Sequence[NewJob], last: Collection[UUID] = ()) -> Stored:
        self._names = {job.id: unique_hashes(job) for job in jobs}
        self._hashes = hashes = {job_id: names[0] for job_id, names in self._names.items() if names}
        stored = Stored()
        in_order = sorted(jobs, key=lambda job: (hashes[job.id].int if job.id in hashes else -1, job.id in last))
        for portion in in_portions(in_order, job_size):
            stored.add(await self._decide_portion(portion))
        return stored

    async def _decide_portion(self, portion: Sequence[NewJob]) -> Stored:
        savepoint, roll_back, release = _PORTION
        kept: dict[UUID, UUID] = {}
        several = len(portion) > 1  # a single one has written nothing when it begins anew
        if several:
            await self._connection.execute(savepoint)
        while (stored := await self._try(portion, kept)) is None:
            if several:
                await self._connection.execute(roll_back)
        if several:
            await self._connection.execute(release)
        return stored

    async def _try(self, portion: Sequence[NewJob], kept: dict[UUID, UUID]) -> Stored | None:
        """Decide and store; None if a key is free by now, or another's.

        Arguments:
            portion: In the order of the hashes.
            kept: The chains that have completed and keep the keys of some of these, by job. Found ones are added.
        """
        names = self._names
        asked = [job for job in portion if job.id not in kept]
        others = {hash_ for job in asked for hash_ in names[job.id][1:]}
        elsewhere = (await self._look([], others))[1] if others else {}
        new = [job for job in asked if not any(hash_ in elsewhere for hash_ in names[job.id][1:])]
        made = await self._insert(new) if new else set["UUID"]()
        if made and (lost := await self._keep([job for job in new if job.id in made], names)):
            await self._connection.execute(self._statements["unique_remove"], list(lost))
            made -= lost.keys()
            kept |= lost
            freed = {names[job_id][0] for job_id in lost}
            if any(job.id not in kept and names[job.id] and names[job.id][0] in freed for job in asked):
                return None
        left = [job for job in asked if job.id not in made and job.id not in kept]
        present, holders = await self._holders(left, names) if left else (set["UUID"](), dict["UUID", Holder]())
        if holders is None:
            return None
        there = [job for job in left if job.chosen_id and job.id in present]
        wrong = await self._of_other_types([*there, *_second_ones(new, made)])
        stored = Stored()
        freed_before: list[NewJob] = []
        for job in portion:
            hashes = names[job.id]
            if job.id in kept:
                stored.keep(job, kept[job.id])
            elif job.id in made and job.id not in stored.created:
                stored.created.add(job.id)
                if hashes:
                    holders[hashes[0]] = Holder(job.id, job.id, waits=True)
            elif job.id in wrong:
                stored.refused[job.id] = wrong_type_of_chosen(job)
            elif job.id in made:
                continue
            elif job.id not in present and not _decide_held(stored, job, hashes, holders):
                freed_before.append(job)
        await self._write(portion, stored, names)
        if freed_before:
            stored.add(await self._decide_portion(freed_before))
        return stored

    async def _insert(self, jobs: Sequence[NewJob], taken_over: Collection[UUID] = ()) -> set[UUID]:
        """Insert those whose ids and keys are free; returns which."""
        ids = [job.id for job in jobs]
        again = self._repeated or any(job.chosen_id for job in jobs)
        if again:
            await self._connection.fetch(self._statements["insert_lock"], ids)
        note = inserted_note([job for job in jobs if not job.blockers and job.id not in taken_over], self._origin)
        open_, marked = self._columns(jobs)
        if taken_over:
            open_, marked = [number + 1 for number in open_], [True] * len(jobs)
        if has_sequences(jobs):
            name, arguments = "insert_sequenced", sequenced_arguments(jobs, note, [open_, marked], self._batch, self._hashes)
        else:
            name, arguments = "insert_waiting", waiting_arguments(jobs, note, [open_, marked], self._hashes)
        if again:
            name += "_repeated"
        rows = await self._connection.fetch(self._statements[name], *arguments)
        made = {row[0] for row in rows if row[0] is not None}
        if again and made:
            made -= {row[0] for row in await self._connection.fetch(self._statements["insert_take_back"], list(made))}
        return made

    async def _look(self, ids: Collection[UUID], hashes: Collection[UUID]) -> tuple[set[UUID], dict[UUID, Holder]]:
        """Which of the ids are there, and who has the keys."""
        rows = await self._connection.fetch(self._statements["insert_holders"], list(ids), list(hashes))
        holders = {row[1]: Holder(row[0], row[2], waits=False) for row in rows if row[1] is not None}
        return {row[0] for row in rows if row[1] is None}, holders

    async def _holders(
        self, jobs: Sequence[NewJob], names: Mapping[UUID, Sequence[UUID]]
    ) -> tuple[set[UUID], dict[UUID, Holder] | None]:
        """Which of these jobs are there, and who has the keys of the others: locked, where another is to replace them.

        Returns:
            No holders, if a key is free.
        """
        present, holders = await self._look([job.id for job in jobs], {hash_ for job in jobs for hash_ in names[job.id]})
        left = [job for job in jobs if job.id not in present]
        replacing = [job for job in left if job.unique is not None and job.unique.on_conflict == "replace"]
        if replacing:
            async with brief_waits(self._connection) if self._callers else nullcontext():
                hashes = {hash_ for job in replacing for hash_ in names[job.id]}
                locked = await lock_holders(self._connection, self._statements, hashes)
            holders = {hash_: each for hash_, each in holders.items() if hash_ not in hashes} | locked
        if all(any(hash_ in holders for hash_ in names[job.id]) for job in left):
            return present, holders
        return present, None

    async def _of_other_types(self, jobs: Sequence[NewJob]) -> set[UUID]:
        """Those of these jobs that are there with other types than their own names."""
        if not jobs:
            return set()
        rows = await self._connection.fetch(self._statements["unique_types"], [job.id for job in jobs])
        types = {row[0]: row[1] for row in rows}
        return {job.id for job in jobs if job.id in types and types[job.id] not in job.unique_names}

    async def _keep(self, made: Sequence[NewJob], names: Mapping[UUID, Sequence[UUID]]) -> dict[UUID, UUID]:
        """Write the windows of new jobs; returns the chains that have completed and keep the keys of some, by job."""
        windows = [(job, seconds) for job in made if (seconds := _window(job)) is not None]
        if not windows:
            return {}
        lost: dict[UUID, UUID] = {}
        if others := {hash_ for job, _ in windows for hash_ in names[job.id][1:]}:
            within = await completed_within(self._connection, self._statements, others)
            lost = {job.id: within[hash_] for job, _ in windows for hash_ in names[job.id][1:] if hash_ in within}
        asked = [Window(names[job.id][0], job.id, seconds, always=False) for job, seconds in windows if job.id not in lost]
        kept = await keep_keys(self._connection, self._statements, asked) if asked else {}
        return lost | {each.chain_id: kept[each.key] for each in asked if each.key in kept}

    async def _write(self, portion: Sequence[NewJob], stored: Stored, names: Mapping[UUID, Sequence[UUID]]) -> None:
        """Write what was decided about held keys."""
        taking = [job for job in portion if job.id in stored.taken_over]
        if taking:
            await let_go(self._connection, self._statements, stored.let_go)
            if len(await self._insert(taking, stored.taken_over)) < len({job.id for job in taking}):
                # Nobody else can have the keys. What it has become by now isn't known, and its key mustn't be lost.
                raise StoreContended("a job was stored by somebody else at the moment when it was to take a key over")
        if stored.become:
            jobs = stored.become
            stored.joined |= await replace_jobs(
                self._connection, self._statements, jobs, stored.taken_over, self._origin, stored.told
            )
        windows: dict[UUID, Window] = {}
        for job in portion:
            if (job.id in stored.taken_over or job.id in stored.replacing) and (seconds := _window(job)) is not None:
                key, holder = names[job.id][0], stored.chains.get(job.id, job.id)
                windows[key] = Window(key, holder, seconds, always=True)
        if windows:
            await keep_keys(self._connection, self._statements, list(windows.values()))


def _decide_held(stored: Stored, job: NewJob, hashes: Sequence[UUID], holders: dict[UUID, Holder]) -> bool:
    """Decide about a job whose key is held, by whoever stands under its first name by now; False if an earlier job frees it."""
    assert job.unique is not None
    holder = next((holders[hash_] for hash_ in hashes if hash_ in holders), None)
    if holder is None:
        return False
    if job.unique.on_conflict != "replace":
        stored.keep(job, holder.chain_id)
    elif holder.waits:
        stored.replace(job, holder)
        if holder.claimed and frees_at_start(job):
            for hash_ in hashes:
                holders.pop(hash_, None)
    else:
        stored.take_over(job, holder)
        holders[hashes[0]] = Holder(job.id, job.id, waits=True)
    return True


def _second_ones(jobs: Sequence[NewJob], made: Collection[UUID]) -> Iterator[NewJob]:
    """Those with chosen ids that were made of another one of these."""
    seen: set[UUID] = set()
    for job in jobs:
        if job.id in seen and job.id in made and job.chosen_id:
            yield job
        seen.add(job.id)


def _window(job: NewJob) -> float | None:
    return None if job.unique is None else job.unique.window_seconds
