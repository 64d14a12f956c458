"""Asking chains to end: what isn't running ends at once, and of what is running the request is stored.

A request stands in the job's row, which is marked, so that whoever writes how its attempt ended looks at it; and in
`cancel_request`, by chain, until it has ended: there it can be written while somebody holds the row, and there it's found
if code that doesn't know of requests has made the job pending.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._notifications import leases_note, merged, notify_statements
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.postgres._settle_slowly import settle_portion, slow_statements, told_of
from aioqueue.store_rules._cancelling import asked_to_end
from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._job import Settlement, SettlementKind, StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Cancelled", "cancel", "cancel_statements"]

_MOST_LOOKS = 20
"""How often the live steps are looked for, of chains that go on at that moment."""

_MOST_ROWS = 500
"""What one statement ends."""

# In the order of the jobs' ids. The newest state counts, whatever the snapshot: it's read once the row is locked.
_LOCK = f"""WITH {ENDS}, locked AS MATERIALIZED (
    SELECT j.id, j.state FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT live FROM ends)) ORDER BY j.id FOR UPDATE @skip@
)
SELECT ends.asked, ends.id, ends.live, locked.state, ends.last IS NOT NULL
FROM ends LEFT JOIN locked ON locked.id = ends.live"""

# In the order of the chains' ids. Whoever asked first counts: a later statement reads the reason.
_REQUEST = """INSERT INTO @schema@.cancel_request (chain_id, reason)
SELECT given.chain_id, $2::text FROM unnest($1::uuid[]) AS given(chain_id) ORDER BY given.chain_id
ON CONFLICT DO NOTHING"""
_MARK = """UPDATE @schema@.job j SET marked = true,
    cancel_reason = coalesce(j.cancel_reason, (SELECT r.reason FROM @schema@.cancel_request r
                                               WHERE r.chain_id = coalesce(j.chain_id, j.id)), $2::text)
WHERE j.id = ANY($1::uuid[]) AND (j.cancel_reason IS NULL OR NOT j.marked)"""
_LEASES = """SELECT DISTINCT j.lease_id FROM @schema@.job j
WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 2 AND j.lease_id IS NOT NULL"""
_REASONS = """SELECT j.id, coalesce(j.cancel_reason, r.reason) FROM @schema@.job j
LEFT JOIN LATERAL (
    SELECT r.reason FROM @schema@.cancel_request r WHERE r.chain_id = coalesce(j.chain_id, j.id) OFFSET 0) AS r ON true
WHERE j.id = ANY($1::uuid[]) AND coalesce(j.cancel_reason, r.reason) IS NOT NULL"""


def cancel_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "cancel_lock": _LOCK.replace("@skip@", "SKIP LOCKED"),
        "cancel_wait": _LOCK.replace(" @skip@", ""),
        "cancel_request": _REQUEST,
        "cancel_mark": _MARK,
        "cancel_leases": _LEASES,
        "cancel_reasons": _REASONS,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **notify_statements(schema),
        **slow_statements(schema),
    }


class _End(NamedTuple):
    """A chain, its live step if there is one, that step's state if it's locked, and whether it has an archived one."""

    chain_id: UUID
    live: UUID | None
    state: int | None
    archived: bool


@dataclass(slots=True)
class Cancelled:
    """What a transaction has done.

    Attributes:
        results: What became of each.
        left: Those of the ids whose rows somebody holds, or whose chains have just gone on.
        refused: Chains that couldn't be ended, such as for a trigger of the user's, and why: the requests are stored.
        told: What listeners are to be told, once it's committed.
    """

    results: dict[UUID, Cancellation] = field(default_factory=dict[UUID, Cancellation])
    left: list[UUID] = field(default_factory=list[UUID])
    refused: dict[UUID, StoreError] = field(default_factory=dict[UUID, "StoreError"])
    told: Notification = field(default_factory=Notification)


async def cancel(
    connection: Connection,
    statements: dict[str, str],
    ids: Sequence[UUID],
    reason: str,
    *,
    origin: str | None,
    wait: bool = False,
    again: bool = False,
) -> Cancelled:
    """Ask chains to end, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        ids: Of any steps.
        reason: What is kept of why; of a chain that was asked before, the first one counts.
        origin: Who tells other processes; None if nobody is to be told.
        wait: Whether rows that somebody holds are waited for. Otherwise the requests are stored beside them.
        again: Whether the requests are there already, and whoever has the jobs was told.

    Raises:
        StoreContended, asyncpg.PostgresError: Such as where somebody's open transaction holds a row.
    """
    ends = await _lock(connection, statements, ids, wait=wait)
    done = Cancelled()
    idle: dict[UUID, list[UUID]] = {}
    running: dict[UUID, UUID] = {}
    held: dict[UUID, UUID] = {}
    chains: dict[UUID, UUID] = {}
    for asked, end in ends.items():
        if end.live is None:
            done.results[asked] = Cancellation.FINISHED if end.archived else Cancellation.NOT_FOUND
        elif end.state is None:
            done.left.append(asked)
            done.results[asked] = Cancellation.CANCELLING
            held[end.chain_id] = end.live
        elif end.state == StoredState.RUNNING:
            done.results[asked] = Cancellation.CANCELLING
            running[end.chain_id] = end.live
        else:
            done.results[asked] = Cancellation.CANCELLED
            idle.setdefault(end.live, []).append(asked)
            chains[end.live] = end.chain_id
    if over := [each.chain_id for each in ends.values() if each.live is None] if again else ():
        await connection.fetch(statements["settle_not_asked"], over)
    notes: list[Notification] = []
    undone = await _end(connection, statements, list(idle), reason, origin, notes)
    for job_id, why in undone:
        held[chains[job_id]] = job_id
        done.results |= dict.fromkeys(idle[job_id], Cancellation.CANCELLING)
        if why is not None:
            done.refused[chains[job_id]] = why
    if stored := {**running, **({} if again else held)}:
        notes.append(await _request(connection, statements, stored, list(running.values()), reason, origin))
    done.told = merged(notes)
    return done


async def _request(
    connection: Connection,
    statements: dict[str, str],
    chains: Mapping[UUID, UUID],
    running: Sequence[UUID],
    reason: str,
    origin: str | None,
) -> Notification:
    """Store the requests of these chains, given with their live steps, and tell the leases of those that are running.

    Of those whose rows are locked by this transaction the rows say so, too.
    """

    async def mark(jobs: Sequence[UUID]) -> None:
        await connection.fetch(statements["cancel_mark"], jobs, reason)

    await connection.fetch(statements["cancel_request"], list(chains), reason)
    await in_halves(connection, running, mark)  # what refuses to be marked is left to tending
    rows = await connection.fetch(statements["cancel_leases"], list(chains.values()))
    leases = frozenset(row[0] for row in rows)
    if origin is not None:
        for note in leases_note(leases, origin):
            await connection.fetch(statements["notify"], note)
    return Notification(leases=leases)


async def _lock(connection: Connection, statements: dict[str, str], ids: Sequence[UUID], *, wait: bool) -> Mapping[UUID, _End]:
    """Lock the chains' live steps; without waiting, those that nobody else holds."""
    for _ in range(_MOST_LOOKS):
        rows = await connection.fetch(statements["cancel_wait" if wait else "cancel_lock"], list(ids))
        ends = {row[0]: _End(*row[1:]) for row in rows}
        if not (wait and any(each.live is not None and each.state is None for each in ends.values())):
            return ends
    raise StoreContended("a chain goes on so quickly that it can't be asked to end")


async def _end(
    connection: Connection,
    statements: dict[str, str],
    jobs: Sequence[UUID],
    reason: str,
    origin: str | None,
    notes: list[Notification],
) -> list[tuple[UUID, StoreError | None]]:
    """End these as cancelled, which this transaction has locked, and of which none is running.

    Returns:
        Those that refuse to be ended, and why; None where somebody holds what that needs.
    """
    if not jobs:
        return []
    earlier = {row[0]: row[1] for row in await connection.fetch(statements["cancel_reasons"], list(jobs))}
    now = datetime.now(UTC)
    undone: list[tuple[UUID, StoreError | None]] = []

    async def end(some: Sequence[UUID]) -> None:
        batch = [
            Settlement(id=each, claims=0, lease_id=0, kind=SettlementKind.CANCELLED, error=asked_to_end(why, now))
            for each in some
            for why in (earlier.get(each, reason),)
        ]
        notes.append(told_of(await settle_portion(connection, statements, "settle_end_slowly", batch, origin)))

    for start in range(0, len(jobs), _MOST_ROWS):
        undone += await in_halves(connection, jobs[start : start + _MOST_ROWS], end)
    return undone
