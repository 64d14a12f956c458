"""Checks of a diagnosis: can it be reached, is it a server to write to, does the schema fit, and has the role its rights."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.errors import AioqueueError, StoreIncompatible
from aioqueue.postgres import _migrations
from aioqueue.postgres._lease_rights import MISSING_RIGHTS, WORKER, missing_grants, rights_arguments
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from aioqueue.postgres._diagnosis_connection import Look
    from aioqueue.postgres._options_schema import Schema

__all__ = ["connection", "rights", "schema", "server"]

_OLDEST_TESTED_SERVER = 15

_WHO = "SELECT current_user::text, current_database()::text"
_SERVER = """SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_version_num')::int / 10000,
    pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'"""
_NEWER = "SELECT m.name::text FROM @schema@.migration m WHERE m.number > $1::int ORDER BY m.number LIMIT 100"
_TABLES = """SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])"""
# What a worker can do without: (may migrate, may call enqueue_v1, enqueue_v2 and what they call, may change finished jobs).
_MORE_RIGHTS = """SELECT
    pg_catalog.has_schema_privilege(n.oid, 'CREATE') AND coalesce((SELECT bool_and(pg_catalog.pg_has_role(c.relowner, 'USAGE'))
        FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'r'), true),
    coalesce((SELECT bool_and(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
        FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid AND p.proname LIKE 'enqueue%'), true),
    coalesce((SELECT pg_catalog.has_table_privilege(c.oid, 'UPDATE') AND pg_catalog.has_table_privilege(c.oid, 'DELETE')
        FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'archive'), false)
FROM pg_catalog.pg_namespace n WHERE n.nspname = $1::text"""


_MIGRATE = "Run `aioqueue migrate` as a role that may make the schema and its tables"


async def connection(look: Look, longest: float) -> list[Finding]:
    """Whether it can connect; as whom, and to what."""
    where = look.source.description
    try:
        async with asyncio.timeout(longest):
            user, database = await look.row(_WHO)
    except TimeoutError:
        seen = f"{where}: no answer within {longest:g} s"
    except AioqueueError as error:
        seen = str(error)
    else:
        return [Finding("connection", Verdict.OK, f"{where}: connected to the database {database} as {user}")]
    advice = "Check the URL (host, port, database, user, password), that the server runs, and what lies between."
    return [Finding("connection", Verdict.PROBLEM, seen, advice)]


async def server(look: Look) -> list[Finding]:
    """Whether the server's version is known to work, and whether it takes writes."""
    version, major, standby, read_only = await look.row(_SERVER)
    if standby:
        seen = f"PostgreSQL {version} is a standby: nothing can be written"
        advice = "Give the primary's address, or several hosts and target_session_attrs=read-write."
        return [Finding("server", Verdict.PROBLEM, seen, advice)]
    if read_only:
        seen = f"PostgreSQL {version}: transactions are read-only, nothing can be written"
        advice = "Look who has set default_transaction_read_only: the server, the database or the role."
        return [Finding("server", Verdict.PROBLEM, seen, advice)]
    if major < _OLDEST_TESTED_SERVER:
        seen = f"PostgreSQL {version} is older than what aioqueue is tested with"
        return [Finding("server", Verdict.WARNING, seen, f"Use PostgreSQL {_OLDEST_TESTED_SERVER} or newer.")]
    return [Finding("server", Verdict.OK, f"PostgreSQL {version}, which takes writes")]


async def schema(look: Look, schema: Schema) -> list[Finding]:
    """Whether the schema fits this code."""
    known = _migrations.known_migrations()
    async with look.transaction() as connection:
        try:
            await _migrations.check_version(connection, schema, known)
        except StoreIncompatible as error:
            return [Finding("schema", Verdict.PROBLEM, str(error), f"{_MIGRATE}, or use the version that fits.")]
        newer = [row[0] for row in await connection.fetch(schema.render(_NEWER), known[-1].number)]
    if newer:
        seen = f"the schema {schema.quoted} is newer, and this version may run with it; it doesn't know {', '.join(newer)}"
        return [Finding("schema", Verdict.OK, seen)]
    return [Finding("schema", Verdict.OK, f"the schema {schema.quoted} is up to date: {known[-1].name}")]


async def rights(look: Look, schema: Schema) -> list[Finding]:
    """Whether the role may do what a worker does, and what else."""
    needed = {**WORKER, "migration": ("SELECT",)}
    if (await look.row(_TABLES, schema.name, list(needed)))[0] < len(needed):
        return [Finding("rights", Verdict.UNKNOWN, "it can't be told: there aren't all tables yet", f"{_MIGRATE}.")]
    if grants := missing_grants(await look.rows(MISSING_RIGHTS, *rights_arguments(schema, needed)), schema):
        seen = f"the role lacks {len(grants)} of the rights that a worker and `enqueue` need"
        return [Finding("rights", Verdict.PROBLEM, seen, " ".join(grants))]
    may_migrate, may_call, may_change = await look.row(_MORE_RIGHTS, schema.name)
    seen = "the role may do what a worker and `enqueue` do"
    others = {"migrate": may_migrate, "retry or delete finished jobs": may_change}
    if lacking := [name for name, may in others.items() if not may]:
        seen += f"; it may not {', nor '.join(lacking)}, which workers don't need but for removing old jobs"
    findings = [Finding("rights", Verdict.OK, seen)]
    if not may_call:
        seen = (
            "the role may not call enqueue_v1, enqueue_v2 and the functions beside them, with which `tx=` and "
            "`client.statement()` enqueue, and with which workers claim jobs that have limits, rates or sequences"
        )
        advice = f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema.quoted} TO the role."
        findings.append(Finding("rights", Verdict.WARNING, seen, advice))
    return findings
