"""What no worker's claim leads to: telling goes on, ends that nobody told of are found, and jobs expire that nobody starts.

One statement looks whether there is anything to do. It looks through all edges in turn, some of them each time, as long as
that is quick. Each kind of work is a transaction of its own, so that trouble with one doesn't hold up the others; and a job
that refuses what is done to it, such as by a trigger, is passed over for a while.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from aioqueue.errors import StoreError
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import breaks_connection, cuts_short
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._gates_sweep import GateSweep, sweep_statements
from aioqueue.postgres._notifications import merged
from aioqueue.postgres._resolve import Resolved, resolve, resolve_statements
from aioqueue.postgres._resolve_ends import ends_statements, store_deleted, store_found_ends
from aioqueue.postgres._settle_archive import archive
from aioqueue.postgres._tend_look import LOOK, LOOK_BRIEFLY, MOST_CHAINS, NEVER_STARTED, Look
from aioqueue.postgres._tend_over import over_statements, remove_over
from aioqueue.postgres._tend_parked import FreeKeys, parked_free_statements, unpark
from aioqueue.postgres._tend_requests import apply_requests, requests_statements
from aioqueue.postgres._webhooks_ends import store_deliveries
from aioqueue.runtime._log import event
from aioqueue.store_rules._causes import expired
from aioqueue.vocabulary._blockers import Tended
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Tender", "tend_statements"]

logger = logging.getLogger("aioqueue.postgres")

_PASSED_OVER_SECONDS = 60.0
"""After that a job that could be neither told nor discarded is tried again."""

_SWEPT_ROWS = 5_000
"""Edges, or ends of chains, that one look goes through."""

_UNTOLD = f"""SELECT e.chain_id FROM @schema@.chain_end e WHERE e.untold ORDER BY e.ended_at, e.chain_id LIMIT {MOST_CHAINS}
FOR UPDATE SKIP LOCKED"""
_GONE = """SELECT given.id FROM unnest($1::uuid[]) AS given(id)
WHERE (SELECT true FROM @schema@.job j WHERE j.id = given.id LIMIT 1) IS NULL
  AND (SELECT true FROM @schema@.job j WHERE j.chain_id = given.id LIMIT 1) IS NULL
  AND (SELECT true FROM @schema@.chain_end e WHERE e.chain_id = given.id LIMIT 1) IS NULL"""
_KNOWN = """SELECT e.chain_id FROM @schema@.chain_end e
WHERE e.chain_id = ANY($1::uuid[])
  AND (SELECT true FROM @schema@.job j WHERE j.id = e.chain_id LIMIT 1) IS NULL
  AND (SELECT true FROM @schema@.job j WHERE j.chain_id = e.chain_id LIMIT 1) IS NULL
ORDER BY e.chain_id FOR UPDATE OF e SKIP LOCKED"""

_LATE = f"""SELECT j.id FROM @schema@.job j WHERE {NEVER_STARTED} AND NOT j.id = ANY($2::uuid[])
ORDER BY j.expires_at LIMIT $1::integer FOR UPDATE OF j SKIP LOCKED"""
_EXPIRE = f"""WITH gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) RETURNING j.*
), archived AS (
    {archive(state="7", lease_id="NULL", outcome="NULL", output="NULL", error="$2::text")}
    FROM gone RETURNING id, coalesce(chain_id, id) AS chain_id, type, attempt, claims, webhook
), {logged(f"SELECT '{EventKind.CANCELLED}', id, chain_id, type, attempt, claims, $2::text FROM archived", "error")}
SELECT chain_id, CASE WHEN webhook IS NOT NULL THEN id END FROM archived"""

_DROP_EDGES = """DELETE FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[])
  AND (SELECT true FROM @schema@.job j WHERE j.id = b.job_id LIMIT 1) IS NULL
  AND (SELECT true FROM @schema@.archive a WHERE a.id = b.job_id AND a.state IN (6, 7) LIMIT 1) IS NULL"""
# Locked first: whoever begins to need one writes it, and that is seen by the later statement.
_LOCK_ENDS = "SELECT e.chain_id FROM @schema@.chain_end e WHERE e.chain_id = ANY($1::uuid[]) FOR UPDATE SKIP LOCKED"
_FORGET = """DELETE FROM @schema@.chain_end e WHERE e.chain_id = ANY($1::uuid[])
  AND (SELECT true FROM @schema@.blocker b WHERE b.chain_id = e.chain_id LIMIT 1) IS NULL"""

_TELL = """SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $1::text, 'f', json_agg(id))::text)::text
FROM (SELECT given.id, (row_number() OVER () - 1) / 150 AS part FROM unnest($2::uuid[]) AS given(id)) AS parts
WHERE EXISTS (SELECT FROM @schema@.subscriber s WHERE s.expires_at > now() AND s.id::text <> $1::text)
GROUP BY part"""

_NIL = UUID(int=0)


def tend_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "tend_look": LOOK,
        "tend_look_briefly": LOOK_BRIEFLY,
        "tend_untold": _UNTOLD,
        "tend_gone": _GONE,
        "tend_known": _KNOWN,
        "tend_late": _LATE,
        "tend_expire": _EXPIRE,
        "tend_drop_edges": _DROP_EDGES,
        "tend_lock_ends": _LOCK_ENDS,
        "tend_forget": _FORGET,
        "tend_tell": _TELL,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **requests_statements(schema),
        **over_statements(schema),
        **parked_free_statements(schema),
        **sweep_statements(schema),
        **ends_statements(schema),
        **resolve_statements(schema),
    }


@dataclass(slots=True)
class _Done:
    told: Resolved = field(default_factory=Resolved)
    expired: set[UUID] = field(default_factory=set[UUID])
    resumed: int = 0
    notes: list[Notification] = field(default_factory=list[Notification])
    more: bool = False

    def add(self, other: _Done) -> None:
        self.told.add(other.told)
        self.expired |= other.expired
        self.resumed += other.resumed
        self.notes += other.notes
        self.more = self.more or other.more


_Work: TypeAlias = "Callable[[Connection, _Done], Awaitable[None]]"


class Tender:
    """Tends, over the pool that serves the workers.

    Arguments:
        pool: Serves the workers.
        schema: Where the tables are.
        origin: Who tells other processes; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = tend_statements(schema)
        self._origin = origin
        self._looks = Throttle()
        self._edge = _NIL, _NIL
        self._job: UUID = _NIL
        self._end: UUID = _NIL
        self._free_keys = FreeKeys(pool, self._statements["tend_free_keys"])
        self._gates = GateSweep(pool, schema, origin)
        self._passed_over: dict[UUID, float] = {}

    async def tend(self, limit: int) -> tuple[Tended, Notification]:
        """Do one portion, as `aioqueue.abc.Store.tend` says; returns what listeners are to be told, too."""
        look = await self._look()
        if not (look.anything or look.trouble) or limit < 1:
            return Tended(), Notification()
        done = _Done()
        works: list[_Work] = []
        if look.lost:
            works.append(lambda connection, _: self._find(connection, look.lost))
        if look.untold or look.lost:
            works.append(lambda connection, own: self._tell(connection, len(look.lost), limit, own))
        if look.late:
            works.append(lambda connection, own: self._expire(connection, limit, own))
        if look.asked:
            works.append(lambda connection, own: self._apply_requests(connection, limit, own))
        works += [partial(self._remove_over, what, limit) for what in look.over]
        if look.free:
            works.append(lambda connection, own: self._unpark(connection, look.free, limit, own))
        if look.swept.is_over:
            works.append(lambda connection, _: self._gates.drop(connection, look.swept))
        if look.swept.gates:
            works.append(lambda connection, own: self._let_come(connection, look.swept.gates, own, more=look.swept.more))
        if look.swept.lanes:
            works.append(lambda connection, own: self._let_come(connection, look.swept.lanes, own))
        if look.unneeded or look.forgotten:
            works.append(lambda connection, _: self._forget(connection, look))
        trouble = [*look.trouble]
        trouble += [error for work in works if (error := await self._in_transaction(work, done)) is not None]
        if trouble and not (
            done.told.told or done.expired or done.resumed or done.notes
        ):  # otherwise it's told when nothing else is left to do
            raise trouble[0]
        told = done.told
        tended = Tended(
            resolved=told.told,
            failed=len(told.failed) + len(told.deleted),
            expired=len(done.expired),
            resumed=done.resumed,
            more=done.more or told.more,
        )
        finished = frozenset(told.failed | told.deleted | done.expired)
        delay = told.delay if told.types else 0.0
        note = Notification(types=frozenset(told.types), delay=delay, finished=finished, deliveries=told.deliveries)
        return tended, merged([*done.notes, note])

    async def _look(self) -> Look:
        """Look what there is to do. What goes wrong with one look keeps no other work from being done."""
        look = Look()
        for each in (self._look_at_chains, self._look_at_keys, self._look_at_gates):
            try:
                await each(look)
            except StoreError as error:
                if breaks_connection(error) or cuts_short(error):
                    raise
                look.trouble.append(error)
        return look

    async def _look_at_chains(self, look: Look) -> None:
        if self._looks.pause > 0:
            (row,) = await self._pool.fetch(self._statements["tend_look_briefly"])
            look.untold, look.late, look.over, look.asked = row
            return
        began = time.monotonic()
        arguments = *self._edge, self._job, self._end, _SWEPT_ROWS
        (row,) = await self._pool.fetch(self._statements["tend_look"], *arguments)
        self._looks.done(began, time.monotonic())
        if len(row["lost"]) < MOST_CHAINS:  # otherwise there may be more of them
            swept = row["edges"] == _SWEPT_ROWS
            self._edge = (row["last_edge_chain"], row["last_edge_job"]) if swept else (_NIL, _NIL)
        self._job = row["last_job"] if row["job_edges"] == _SWEPT_ROWS else _NIL
        self._end = row["last_end"] if row["ends"] == _SWEPT_ROWS else _NIL
        look.untold, look.late, look.over, look.asked = row["untold"], row["late"], row["over"], row["asked"]
        look.lost, look.unneeded, look.forgotten = row["lost"], row["unneeded"], row["forgotten"]

    async def _look_at_keys(self, look: Look) -> None:
        look.free = await self._free_keys.look()

    async def _look_at_gates(self, look: Look) -> None:
        look.swept = await self._gates.look()
        look.trouble += look.swept.trouble

    async def _in_transaction(self, work: _Work, done: _Done) -> StoreError | None:
        """Do one kind of work, and add to what is done once it's committed; returns what has gone wrong with it alone."""
        own = _Done()
        try:
            async with self._pool.transaction() as connection:
                await connection.execute(WAIT_BRIEFLY)
                await work(connection, own)
        except StoreError as error:
            if breaks_connection(error) or cuts_short(error):
                raise
            return error
        done.add(own)
        return None

    def _skipped(self) -> list[UUID]:
        now = time.monotonic()
        self._passed_over = {job_id: until for job_id, until in self._passed_over.items() if until > now}
        return list(self._passed_over)

    def _pass_over(self, job_id: UUID, why: StoreError) -> None:
        self._passed_over[job_id] = time.monotonic() + _PASSED_OVER_SECONDS
        logger.error("job %s is passed over: %s", job_id, why, extra=event("store.row_passed_over", job_id=str(job_id)))

    async def _find(self, connection: Connection, chains: Sequence[UUID]) -> None:
        """Store how the chains that nobody told of have ended, or that they're gone, as untold."""

        async def find(lost: Sequence[UUID]) -> None:
            found = await store_found_ends(connection, self._statements, lost, needed=True)
            if left := [chain_id for chain_id in lost if chain_id not in found]:
                # Of some that were purged it's known how they have ended.
                found |= {row[0] for row in await connection.fetch(self._statements["tend_known"], left)}
                gone = [row[0] for row in await connection.fetch(self._statements["tend_gone"], left)]
                found |= await store_deleted(connection, self._statements, dict.fromkeys(gone))
            await connection.fetch(self._statements["resolve_rest"], list(found))

        # An end that somebody's open transaction stores is found later.
        await in_halves(connection, chains, find)

    async def _tell(self, connection: Connection, lost: int, limit: int, done: _Done) -> None:
        chains = {row[0] for row in await connection.fetch(self._statements["tend_untold"])}
        refused: dict[UUID, StoreError] = {}
        await resolve(
            connection,
            self._statements,
            chains,
            done.told,
            origin=self._origin,
            limit=limit,
            marked_untold=True,
            passed_over=self._skipped(),
            refused=refused,
        )
        for job_id, why in refused.items():
            self._pass_over(job_id, why)
        # Not if all that's left is held by somebody.
        done.more = done.told.told > 0 and max(len(chains), lost) >= MOST_CHAINS

    async def _expire(self, connection: Connection, limit: int, done: _Done) -> None:
        """Discard what hasn't been started in time. Those that wait for it are told next."""
        late = [row[0] for row in await connection.fetch(self._statements["tend_late"], limit, self._skipped())]
        entry = expired(datetime.now(UTC)).encode().decode()

        async def discard(ids: Sequence[UUID]) -> None:
            rows = await connection.fetch(self._statements["tend_expire"], ids, entry)
            gone = {row[0] for row in rows}
            if hooked := [row[1] for row in rows if row[1] is not None]:
                await store_deliveries(connection, self._statements, hooked, origin=self._origin)
                done.told.deliveries = True
            ended = await store_found_ends(connection, self._statements, gone, needed=True)
            await connection.fetch(self._statements["resolve_rest"], list(ended))
            done.expired |= gone
            done.more = done.more or bool(ended)

        for job_id, why in await in_halves(connection, late, discard):
            if why is not None:
                self._pass_over(job_id, why)
        if not done.expired:
            return
        done.more = done.more or len(late) == limit
        if self._origin is not None:
            await connection.fetch(self._statements["tend_tell"], self._origin, list(done.expired))

    async def _apply_requests(self, connection: Connection, limit: int, done: _Done) -> None:
        """End what was asked to end, and couldn't be ended when that was asked."""
        refused: dict[UUID, StoreError] = {}
        notes, ended = await apply_requests(
            connection, self._statements, limit, origin=self._origin, passed_over=self._skipped(), refused=refused
        )
        for chain_id, why in refused.items():
            self._pass_over(chain_id, why)
        done.notes += notes
        done.more = done.more or ended

    async def _unpark(self, connection: Connection, keys: Sequence[str], limit: int, done: _Done) -> None:
        refused: dict[UUID, StoreError] = {}
        done.resumed, done.more, note = await unpark(
            connection, self._statements, keys, limit, origin=self._origin, passed_over=self._skipped(), refused=refused
        )
        if note.types:
            done.notes.append(note)
        if done.more:
            self._free_keys.again()
        for job_id, why in refused.items():
            self._pass_over(job_id, why)

    async def _let_come(self, connection: Connection, gates: Sequence[str], done: _Done, *, more: bool = False) -> None:
        done.resumed, note = await self._gates.let_come(connection, gates)
        if note.types:
            done.notes.append(note)
        done.more = more and done.resumed > 0

    async def _forget(self, connection: Connection, look: Look) -> None:
        if look.unneeded:
            await connection.fetch(self._statements["tend_drop_edges"], list(look.unneeded))
        if look.forgotten:
            rows = await connection.fetch(self._statements["tend_lock_ends"], list(look.forgotten))
            await connection.fetch(self._statements["tend_forget"], [row[0] for row in rows])

    async def _remove_over(self, what: str, limit: int, connection: Connection, done: _Done) -> None:
        done.more = await remove_over(connection, self._statements, what, limit)
