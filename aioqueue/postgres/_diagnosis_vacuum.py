"""Checks of a diagnosis: what holds back vacuum, and how many dead rows there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._diagnosis_connection import Look
    from aioqueue.postgres._options_schema import Schema

__all__ = ["dead_rows", "judge_slots", "old_transactions", "prepared_transactions", "replication_slots"]

OLD_SECONDS = 300.0
_OLD_TRANSACTIONS = 1_000_000
_MANY_DEAD_ROWS = 100_000
_MOST_NAMED = 5

# Vacuum's own snapshots don't count. Those of other databases hold nothing back in this one.
_TRANSACTIONS = """SELECT a.pid, a.usename::text, a.application_name, a.state,
    extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_catalog.pg_backend_pid()
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
    AND a.xact_start < pg_catalog.clock_timestamp() - $1::float8 * interval '1 second'
    AND a.backend_type <> 'autovacuum worker' AND a.query !~* '^\\s*vacuum'
ORDER BY a.xact_start LIMIT $2::int"""
_HIDDEN = """SELECT count(*) FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.query = '<insufficient privilege>'"""
_PREPARED = """SELECT p.gid, p.owner::text, extract(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::float8
FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
    AND p.prepared < pg_catalog.clock_timestamp() - $1::float8 * interval '1 second'
ORDER BY p.prepared LIMIT $2::int"""
_SLOTS = """SELECT s.slot_name::text, s.active, pg_catalog.age(s.xmin) FROM pg_catalog.pg_replication_slots s
WHERE s.xmin IS NOT NULL ORDER BY 3 DESC LIMIT $1::int"""
_DEAD = """SELECT t.relname::text, t.n_live_tup, t.n_dead_tup, greatest(t.last_vacuum, t.last_autovacuum)
FROM pg_catalog.pg_stat_user_tables t WHERE t.schemaname = $1::text ORDER BY t.n_dead_tup DESC LIMIT 20"""


async def old_transactions(look: Look, *, old: float = OLD_SECONDS) -> list[Finding]:
    """Which open transactions are so old that dead rows can't be removed."""
    findings = [
        Finding(
            "old_transactions",
            Verdict.WARNING,
            f"a transaction has been open for {duration_text(age)}, and vacuum can't remove what died since: pid {pid}, "
            f"role {user}, application {application!r}, {state}",
            f"End it where it was begun, or: SELECT pg_terminate_backend({pid}). See that none stays open for so long "
            "(idle_in_transaction_session_timeout).",
        )
        for pid, user, application, state, age in await look.rows(_TRANSACTIONS, old, _MOST_NAMED)
    ]
    (hidden,) = await look.row(_HIDDEN)
    if findings:
        return findings
    if hidden:
        seen = f"it can't be told: this role may not see what {hidden} sessions of other roles do; of the others none is old"
        return [Finding("old_transactions", Verdict.UNKNOWN, seen, "GRANT pg_read_all_stats TO the role, or use another.")]
    return [Finding("old_transactions", Verdict.OK, f"no transaction has been open for over {duration_text(old)}")]


async def prepared_transactions(look: Look, *, old: float = OLD_SECONDS) -> list[Finding]:
    """Which transactions were prepared for a two-phase commit, and then forgotten."""
    return [
        Finding(
            "prepared_transactions",
            Verdict.WARNING,
            f"the prepared transaction {gid!r} of {owner} waits for its commit since {duration_text(age)}; it holds its locks, "
            "and holds back vacuum, restarts of the server included",
            "Ask the transaction manager that prepared it; or COMMIT PREPARED, or ROLLBACK PREPARED, with that name.",
        )
        for gid, owner, age in await look.rows(_PREPARED, old, _MOST_NAMED)
    ] or [Finding("prepared_transactions", Verdict.OK, f"no prepared transaction has been left for over {duration_text(old)}")]


async def replication_slots(look: Look) -> list[Finding]:
    """Which replicas hold back vacuum, though they're gone or far behind."""
    return judge_slots(await look.rows(_SLOTS, _MOST_NAMED))


def judge_slots(rows: Sequence[Row]) -> list[Finding]:
    """Make findings of slots that hold a snapshot.

    Arguments:
        rows: Name, whether somebody is connected to it, and how many transactions ago its snapshot is.
    """
    return [
        Finding(
            "replication_slots",
            Verdict.WARNING,
            f"the replication slot {name} holds back vacuum by {age:,} transactions"
            f"{'' if active else ', and nobody is connected to it'}",
            f"See to the replica's long queries (hot_standby_feedback), or, if it's gone for good: "
            f"SELECT pg_drop_replication_slot('{name}').",
        )
        for name, active, age in rows
        if age > _OLD_TRANSACTIONS or not active
    ] or [Finding("replication_slots", Verdict.OK, "no replication slot holds back vacuum")]


async def dead_rows(look: Look, schema: Schema) -> list[Finding]:
    """Whether dead rows pile up, by the server's own statistics."""
    rows = await look.rows(_DEAD, schema.name)
    findings = [
        Finding(
            "dead_rows",
            Verdict.WARNING,
            f"the table {table} has {dead:,} dead rows beside {live:,} live ones, last vacuumed: {last or 'never'}",
            f"See what holds vacuum back, then: VACUUM {schema.quoted}.{table}.",
        )
        for table, live, dead, last in rows
        if dead > max(_MANY_DEAD_ROWS, live)
    ]
    return findings or [Finding("dead_rows", Verdict.OK, f"{sum(row[2] for row in rows):,} dead rows in all tables")]
