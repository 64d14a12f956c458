"""Checks of a diagnosis: settings of the server, the database or the role that hurt, and the two clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.postgres._diagnosis_connection import Look
    from aioqueue.postgres._options_schema import Schema

__all__ = ["autovacuum", "clock", "connections", "durability", "timeouts"]

MOST_CONNECTIONS_OF_A_WORKER = 13
CLOCK_SECONDS = 5.0

_DURABILITY = "SELECT pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('fsync') = 'on'"
# Of sessions of other roles only the number can be seen, which is enough. A role's limit is that of who has logged in.
_CONNECTIONS = """SELECT pg_catalog.current_setting('max_connections')::int
        - pg_catalog.current_setting('superuser_reserved_connections')::int
        - coalesce(pg_catalog.current_setting('reserved_connections', true)::int, 0),
    (SELECT sum(d.numbackends)::int FROM pg_catalog.pg_stat_database d),
    (SELECT r.rolconnlimit FROM pg_catalog.pg_roles r WHERE r.rolname = session_user),
    (SELECT count(*)::int FROM pg_catalog.pg_stat_activity a
        WHERE a.usename = session_user AND a.backend_type = 'client backend'),
    (SELECT d.datconnlimit FROM pg_catalog.pg_database d WHERE d.datname = current_database()),
    (SELECT d.numbackends FROM pg_catalog.pg_stat_database d WHERE d.datname = current_database())"""
_TIMEOUTS = "SELECT s.name, s.setting FROM pg_catalog.pg_settings s WHERE s.name = ANY ($1::text[]) ORDER BY s.name"
_AUTOVACUUM = """SELECT pg_catalog.current_setting('autovacuum') = 'on', pg_catalog.current_setting('track_counts') = 'on',
    ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN pg_catalog.pg_options_to_table(c.reloptions) AS o
        WHERE n.nspname = $1::text AND o.option_name = 'autovacuum_enabled' AND NOT o.option_value::bool ORDER BY 1)"""
_CLOCK = "SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8"

_SHORTEST: dict[str, tuple[float, str]] = {
    "statement_timeout": (10.0, "claims and outcomes that take longer, such as on a busy disk, are cut short and tried again"),
    "transaction_timeout": (60.0, "a `client.transaction()` block that takes longer is rolled back"),
    "idle_in_transaction_session_timeout": (10.0, "a `client.transaction()` block that waits for something else is cut off"),
    "idle_session_timeout": (60.0, "connections that wait for their next use, or listen, are cut and opened again"),
}
"""By setting: the seconds from which it cuts nothing of ours in ordinary times, and what a shorter one does."""


async def durability(look: Look) -> list[Finding]:
    """Whether a commit that was answered is kept."""
    synchronous, fsync = await look.row(_DURABILITY)
    findings: list[Finding] = []
    if not fsync:
        seen = "fsync is off: a crash of the machine may destroy the database"
        findings.append(Finding("durability", Verdict.WARNING, seen, "Set fsync = on."))
    if synchronous == "off":
        seen = (
            "synchronous_commit is off: after a crash of the server, jobs that were enqueued or completed just before are lost"
        )
        advice = "ALTER ROLE … SET synchronous_commit = on, for the roles that enqueue and work."
        findings.append(Finding("durability", Verdict.WARNING, seen, advice))
    return findings or [Finding("durability", Verdict.OK, f"commits are durable: synchronous_commit is {synchronous}")]


async def connections(look: Look) -> list[Finding]:
    """Whether another worker would get its connections."""
    usable, used, role_limit, role_used, database_limit, database_used = await look.row(_CONNECTIONS)
    seen = f"{used} of {usable} connections are in use"
    left = usable - used
    for who, limit, taken in (("role", role_limit, role_used), ("database", database_limit, database_used)):
        if limit >= 0:  # it has one
            seen += f", and the {who} has {taken} of the {limit} that it may have"
            left = min(left, limit - taken)
    if left < MOST_CONNECTIONS_OF_A_WORKER:
        seen += f"; a worker takes 6, and up to {MOST_CONNECTIONS_OF_A_WORKER}"
        return [Finding("connections", Verdict.WARNING, seen, "Raise max_connections or the limit, or use a PgBouncer.")]
    return [Finding("connections", Verdict.OK, seen)]


async def timeouts(look: Look) -> list[Finding]:
    """Whether the server cuts what a worker does."""
    in_milliseconds: dict[str, str] = dict(await look.rows(_TIMEOUTS, list(_SHORTEST)))
    found = {name: float(text) / 1000 for name, text in in_milliseconds.items() if float(text) > 0}
    findings = [
        Finding(
            "timeouts",
            Verdict.WARNING,
            f"{name} is {found[name]:g} s: {what}",
            f"Give the roles that work at least {shortest:g} s, or 0: ALTER ROLE … SET {name} = …",
        )
        for name, (shortest, what) in _SHORTEST.items()
        if found.get(name, shortest) < shortest
    ]
    there = ", ".join(f"{name} is {seconds:g} s" for name, seconds in found.items()) or "none are set"
    return findings or [Finding("timeouts", Verdict.OK, f"no timeout cuts what a worker does: {there}")]


async def autovacuum(look: Look, schema: Schema) -> list[Finding]:
    """Whether dead rows are removed by themselves."""
    on, counts, tables = await look.row(_AUTOVACUUM, schema.name)
    advice = "A claim updates a row, and its end deletes it: without vacuum the tables grow, and claims become slow."
    if not on or not counts:
        seen = f"{'autovacuum' if not on else 'track_counts'} is off, so nothing is vacuumed by itself"
        return [Finding("autovacuum", Verdict.WARNING, seen, f"{advice} Turn it on.")]
    if tables:
        seen = f"autovacuum is off for {', '.join(tables)}"
        return [Finding("autovacuum", Verdict.WARNING, seen, f"{advice} ALTER TABLE … RESET (autovacuum_enabled).")]
    return [Finding("autovacuum", Verdict.OK, "autovacuum is on")]


async def clock(look: Look, now: Callable[[], float]) -> list[Finding]:
    """Whether this machine and the server agree on what time it is."""
    before = now()
    (theirs,) = await look.row(_CLOCK)
    after = now()
    ahead = (before + after) / 2 - theirs
    if abs(ahead) - (after - before) / 2 <= CLOCK_SECONDS:
        return [Finding("clock", Verdict.OK, f"this machine's clock and the database's differ by {abs(ahead):.1f} s")]
    seen = (
        f"this machine's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the database's. Leases, delays, "
        "retries and due times go by the database's; a time that a program computes for `at=`, and logs, by the machine's"
    )
    return [Finding("clock", Verdict.WARNING, seen, "Let both machines take their time from NTP.")]
