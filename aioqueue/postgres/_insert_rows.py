"""Storing new jobs: one statement for a batch, and a loop where unique keys are involved.

An insert that finds a key taken learns of another transaction's row by a second statement only, since its own
snapshot is older than its wait; and that row may be gone by then, so it starts again. Rows with unique keys go in
the order of their hashes, so that concurrent batches wait for each other instead of deadlocking; for that reason it
starts again from the first key, with those behind it let go by a savepoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.postgres._events_log import UNLOGGED, logged_by
from aioqueue.postgres._insert_columns import CLOCK, DUE, GIVEN, STORED, VALUES, job_columns, unnested
from aioqueue.postgres._insert_sequences import SEQUENCED, has_sequences, sequence_columns, sequence_statements
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.store_rules._unique_keys import unique_hashes
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "frees_at_start",
    "hash_of",
    "insert_arguments",
    "insert_on",
    "insert_results",
    "insert_statements",
    "is_simple",
    "job_size",
    "sequenced_arguments",
    "waiting_arguments",
]

_SAVEPOINT, _ROLL_BACK, _RELEASE = (
    f"{verb} aioqueue_keys" for verb in ("SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
)

_LOGGED = logged_by("log_live(NULL, ARRAY(SELECT id FROM created))")
_INSERT = f"""WITH @clock@,
created AS (
    INSERT INTO @schema@.job ({STORED}, keep, webhook, origin, marked, key, unique_key@columns@)
    SELECT {VALUES}, given.keep, given.webhook, given.origin, @marked@given.webhook IS NOT NULL, given.key,
           given.unique_key@values@
    FROM clock CROSS JOIN unnest({unnested(1)}, $17::text[], $18::uuid[]@arrays@) AS given({GIVEN}, key, unique_key@names@)
    {DUE}
    @missing@
    ON CONFLICT DO NOTHING RETURNING id
)@members@
SELECT id FROM created
UNION ALL
SELECT NULL FROM (SELECT pg_catalog.pg_notify('@channel@', $19::text)::text AS told
                  WHERE $19::text IS NOT NULL AND EXISTS (SELECT FROM created)
                  UNION ALL {_LOGGED}) AS note WHERE told IS NOT NULL"""
_PLAIN = {"@columns@": "", "@values@": "", "@arrays@": "", "@names@": "", "@marked@": "", "@members@": ""}
# Of batches with keys that are free at the first claim.
_UNTIL_STARTED = {
    "@columns@": ", until_started",
    "@values@": ", given.until_started",
    "@arrays@": ", $20::boolean[]",
    "@names@": ", until_started",
    "@marked@": "",
    "@members@": "",
}
# Of batches in which jobs wait, or are waited for: their rows are written once.
_WAITING = {
    "@columns@": ", until_started, open_blockers, state",
    "@values@": ", given.until_started, given.open_blockers, CASE WHEN given.open_blockers > 0 THEN 0 ELSE 1 END",
    "@arrays@": ", $20::boolean[], $21::integer[], $22::boolean[]",
    "@names@": ", until_started, open_blockers, marked",
    "@marked@": "given.marked OR ",
    "@members@": "",
}
# Of batches in which jobs say in which sequence they run.
_SEQUENCED = {mark: text + SEQUENCED.get(mark, "") for mark, text in _WAITING.items()}
# Of a statement that commits by itself. Nothing is inserted before the time is read.
_BRIEFLY = """clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_catalog.set_config('lock_timeout', '100ms', true) AS patience)"""
# A chain may have gone on from a job, and the job been purged since.
_MISSING = """WHERE NOT EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id)
      AND NOT EXISTS (SELECT FROM @schema@.job c WHERE c.chain_id = given.id)
      AND NOT EXISTS (SELECT FROM @schema@.archive c WHERE c.chain_id = given.id)"""
_LOCK = "SELECT id FROM @schema@.job WHERE id = ANY($1::uuid[]) ORDER BY id FOR KEY SHARE"
# Each is looked up by an index: of `EXISTS (…) OR EXISTS (…)` whole tables are hashed, as long as they aren't large.
_TAKE_BACK = f"""WITH gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(
        SELECT a.id FROM @schema@.archive a WHERE a.id = ANY($1::uuid[])
        UNION ALL SELECT c.chain_id FROM @schema@.job c WHERE c.chain_id = ANY($1::uuid[])
        UNION ALL SELECT given.id FROM unnest($1::uuid[]) AS given(id)
            CROSS JOIN LATERAL (SELECT FROM @schema@.archive c WHERE c.chain_id = given.id LIMIT 1) AS step)) RETURNING j.id
), {UNLOGGED.format(gone="gone")}
SELECT id FROM gone"""
# Which of these are there, themselves or what their chains have become; and which chains hold the keys.
_HOLDERS = """SELECT id, NULL::uuid, NULL::uuid FROM @schema@.job WHERE id = ANY($1::uuid[])
UNION ALL SELECT id, unique_key, coalesce(chain_id, id) FROM @schema@.job
    WHERE unique_key = ANY($2::uuid[]) AND (claims = 0 OR NOT until_started)
UNION ALL SELECT id, NULL, NULL FROM @schema@.archive WHERE id = ANY($1::uuid[])
UNION ALL SELECT chain_id, NULL, NULL FROM @schema@.job WHERE chain_id = ANY($1::uuid[])
UNION ALL SELECT given.id, NULL, NULL FROM unnest($1::uuid[]) AS given(id)
    WHERE EXISTS (SELECT FROM @schema@.archive a WHERE a.chain_id = given.id)"""


def _insert_statement(schema: Schema, parts: Mapping[str, str], *, repeated: bool = False, clock: str = CLOCK) -> str:
    """Give the statement for `insert_arguments` and, behind it, a note for the channel (or None), and `_WAITING`'s columns.

    It returns the ids that were created. `clock` is a part of it that reads the time.
    """
    template = _INSERT.replace("@missing@", _MISSING if repeated else "").replace("@clock@", clock)
    for mark, text in parts.items():
        template = template.replace(mark, text)
    return schema.render(template)


def insert_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "insert": _insert_statement(schema, _PLAIN),
        "insert_repeated": _insert_statement(schema, _PLAIN, repeated=True),
        "insert_briefly": _insert_statement(schema, _UNTIL_STARTED, clock=_BRIEFLY),
        "insert_until_started": _insert_statement(schema, _UNTIL_STARTED),
        "insert_until_started_repeated": _insert_statement(schema, _UNTIL_STARTED, repeated=True),
        "insert_waiting": _insert_statement(schema, _WAITING),
        "insert_waiting_repeated": _insert_statement(schema, _WAITING, repeated=True),
        "insert_sequenced": _insert_statement(schema, _SEQUENCED),
        "insert_sequenced_repeated": _insert_statement(schema, _SEQUENCED, repeated=True),
        "insert_sequenced_briefly": _insert_statement(schema, _SEQUENCED, clock=_BRIEFLY),
        **sequence_statements(schema),
        "insert_lock": schema.render(_LOCK),
        "insert_take_back": schema.render(_TAKE_BACK),
        "insert_holders": schema.render(_HOLDERS),
    }


def hash_of(job: NewJob) -> UUID | None:
    """The hash under which its unique key is stored, if it has one."""
    hashes = unique_hashes(job)
    return hashes[0] if hashes else None


def job_size(job: NewJob) -> int:
    """About how many bytes a job takes in a statement."""
    return len(job.payload) + len(job.metadata) + len(job.key or "")


def frees_at_start(job: NewJob) -> bool:
    """Whether its unique key is free once it's claimed for the first time."""
    return job.unique is not None and job.unique.until == "started"


def is_simple(job: NewJob) -> bool:
    """Whether it's stored if neither it nor its unique key is there, and otherwise nothing more is done or asked."""
    if job.chosen_id or job.implied:
        return False
    unique = job.unique
    return unique is None or (unique.on_conflict == "return" and unique.window is None)


def insert_arguments(jobs: Sequence[NewJob], hashes: Mapping[UUID, UUID] | None = None) -> list[Any]:
    """The first 18 arguments of the statement `insert`: one array for each column.

    Arguments:
        jobs: What is to be stored.
        hashes: Under which their unique keys are stored, by their ids, where that's known.

    Raises:
        RowRejected: A row can't be stored, such as one that is to be unique without a key.
    """
    if hashes is None:
        keys = [hash_of(job) if job.unique else None for job in jobs]
    else:
        keys = [hashes.get(job.id) for job in jobs]
    return [*job_columns(jobs), [job.key for job in jobs], keys]


def waiting_arguments(
    jobs: Sequence[NewJob], note: str | None, more_columns: Sequence[Any], hashes: Mapping[UUID, UUID] | None = None
) -> list[Any]:
    """The arguments of the statements `insert_until_started`, and `insert_waiting`, which has two more columns."""
    return [*insert_arguments(jobs, hashes), note, [frees_at_start(job) for job in jobs], *more_columns]


def sequenced_arguments(
    jobs: Sequence[NewJob],
    note: str | None,
    more_columns: Sequence[Any],
    batch: Sequence[NewJob],
    hashes: Mapping[UUID, UUID] | None = None,
) -> list[Any]:
    """The arguments of the statements `insert_sequenced`: those of `insert_waiting`, and what `jobs` of a batch say of
    sequences.
    """
    waits = more_columns or [[0] * len(jobs), [False] * len(jobs)]
    return [*waiting_arguments(jobs, note, waits, hashes), *sequence_columns(jobs, batch)]


async def insert_on(
    connection: Connection,
    statements: dict[str, str],
    jobs: Sequence[NewJob],
    *,
    repeated: bool,
    note: str | None,
    more_columns: Callable[[Sequence[NewJob]], list[Any]] | None = None,
) -> list[Inserted]:
    """Store jobs within the connection's open transaction.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        jobs: What is to be stored.
        repeated: Whether they may have been stored by an earlier try.
        note: What other processes are told.
        more_columns: Where jobs of the batch wait, or are waited for: gives for how many chains each waits, and whether it's
            marked.

    Returns:
        One result each, in order.
    """
    hashes = {job.id: hash_ for job in jobs if (hash_ := hash_of(job)) is not None}
    if repeated:
        # Jobs that are there are kept from being archived until the commit, so that they're either seen here as live
        # or by the next statement as archived.
        await connection.fetch(statements["insert_lock"], [job.id for job in jobs])
    stored = await _held_by_older_names(connection, statements, jobs)
    created: set[UUID] = set()
    in_order = sorted(jobs, key=lambda job: hashes[job.id].bytes if job.id in hashes else b"")
    in_order = [job for job in in_order if job.id not in stored]
    name = _statement_for(jobs, waiting=more_columns is not None)
    for chunk in in_portions(in_order, job_size):
        several = sum(job.id in hashes for job in chunk) > 1
        if several:
            await connection.execute(_SAVEPOINT)
        while True:
            more = () if more_columns is None else more_columns(chunk)
            if name == "insert":
                arguments = [*insert_arguments(chunk), note]
            elif name == "insert_sequenced":
                arguments = sequenced_arguments(chunk, note, more, jobs)
            else:
                arguments = waiting_arguments(chunk, note, more)
            rows = await connection.fetch(statements[f"{name}_repeated" if repeated else name], *arguments)
            made = {row[0] for row in rows if row[0] is not None}
            if repeated and made:
                # One that was written, run and archived while this insert waited for it.
                made -= {row[0] for row in await connection.fetch(statements["insert_take_back"], list(made))}
            again = [job for job in chunk if job.id not in made and job.id in hashes]
            if not again or not await _find_holders(connection, statements, again, hashes, stored):
                break
            if several:
                # A key that is free by now would be waited for while greater ones are held: all start again.
                await connection.execute(_ROLL_BACK)
        if several:
            await connection.execute(_RELEASE)
        created |= made
    return insert_results(jobs, stored, created)


def _statement_for(jobs: Sequence[NewJob], *, waiting: bool) -> str:
    """The name of the statement that stores these."""
    if has_sequences(jobs):
        return "insert_sequenced"
    if waiting:
        return "insert_waiting"
    return "insert_until_started" if any(frees_at_start(job) for job in jobs) else "insert"


async def _held_by_older_names(connection: Connection, statements: dict[str, str], jobs: Sequence[NewJob]) -> dict[UUID, UUID]:
    """The chains that hold keys of these under other names of a type that was renamed, as rows from before do, by job."""
    others = {job.id: hashes[1:] for job in jobs if job.aliases and (hashes := unique_hashes(job))}
    if not others:
        return {}
    rows = await connection.fetch(statements["insert_holders"], [], [hash_ for hashes in others.values() for hash_ in hashes])
    chains = {row[1]: row[2] for row in rows}
    return {job_id: chains[hash_] for job_id, hashes in others.items() for hash_ in hashes if hash_ in chains}


def insert_results(jobs: Sequence[NewJob], stored: dict[UUID, UUID], created: set[UUID]) -> list[Inserted]:
    """One result each.

    Arguments:
        jobs: What was to be stored.
        stored: Who holds the unique keys of jobs that weren't created.
        created: The jobs that were.
    """
    results: list[Inserted] = []
    for job in jobs:
        results.append(Inserted(stored.get(job.id, job.id), job.id in created))
        created.discard(job.id)  # the same id a second time in one batch
    return results


async def _find_holders(
    connection: Connection,
    statements: dict[str, str],
    jobs: Sequence[NewJob],
    hashes: dict[UUID, UUID],
    stored: dict[UUID, UUID],
) -> list[NewJob]:
    """Look who holds the keys, and note it in `stored`; give back the jobs whose keys are free again."""
    rows = await connection.fetch(statements["insert_holders"], [job.id for job in jobs], [hashes[job.id] for job in jobs])
    present = {row[0] for row in rows if row[1] is None}
    holders = {row[1]: row[2] for row in rows if row[1] is not None}
    missing: list[NewJob] = []
    for job in jobs:
        if job.id in present:
            continue
        if (holder := holders.get(hashes[job.id])) is not None:
            stored[job.id] = holder
        else:
            missing.append(job)
    return missing
