"""What a worker's role must be allowed to do, checked before it claims anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["LEASE_THREAD", "MISSING_RIGHTS", "WORKER", "missing_grants", "refuse_missing", "rights_arguments"]

_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")

WORKER: Mapping[str, Sequence[str]] = {
    "job": _ALL,
    "archive": ("SELECT", "INSERT"),
    "lease": _ALL,
    "subscriber": _ALL,
    "blocker": _ALL,
    "chain_end": _ALL,
    "dedup": _ALL,
    "cancel_request": _ALL,
    "phase": _ALL,
    "progress": _ALL,
    "job_log": _ALL,
    "past_lease": _ALL,
    "delivery": _ALL,
    "event": ("SELECT", "INSERT", "DELETE"),
    "event_mark": ("SELECT", "DELETE"),
    "reader": ("SELECT",),
    "duty": _ALL,
    "pause": ("SELECT", "DELETE"),
    "schedule": _ALL,
    "schedule_tick": _ALL,
    "schedule_generation": _ALL,
    "gate_limit": _ALL,
    "gate_place": _ALL,
    "gate_mark": _ALL,
    "gate_rate": _ALL,
    "gate_member": _ALL,
    "gate_past_member": _ALL,
}
"""By table: claims, settlements, recovery, leases, and enqueueing in handlers."""

LEASE_THREAD: Mapping[str, Sequence[str]] = {
    "job": ("SELECT",),
    "archive": ("SELECT",),
    "lease": ("SELECT", "UPDATE"),
    "cancel_request": ("SELECT",),
}
"""By table: renewals, where they have a role of their own."""

# By the catalog and not by name: without USAGE on the schema no name in it can be looked up.
MISSING_RIGHTS = """SELECT pg_catalog.quote_ident(current_user), n.nspname::text, NULL::text, 'USAGE'
FROM pg_catalog.pg_namespace n
WHERE n.nspname = $1::text AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
UNION ALL
SELECT pg_catalog.quote_ident(current_user), n.nspname::text, given.name, given.privilege
FROM unnest($2::text[], $3::text[]) AS given(name, privilege)
JOIN pg_catalog.pg_namespace n ON n.nspname = $1::text
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = given.name
WHERE NOT pg_catalog.has_table_privilege(c.oid, given.privilege)"""


def rights_arguments(schema: Schema, rights: Mapping[str, Sequence[str]]) -> list[Any]:
    """The arguments of `MISSING_RIGHTS`."""
    pairs = [(table, privilege) for table, privileges in rights.items() for privilege in privileges]
    return [schema.name, [table for table, _ in pairs], [privilege for _, privilege in pairs]]


def refuse_missing(rows: Sequence[Row], schema: Schema, description: str, purpose: str) -> None:
    """Read what `MISSING_RIGHTS` found.

    Arguments:
        rows: The statement's.
        schema: The store's.
        description: The store, for the error.
        purpose: What the role is to do.

    Raises:
        ConfigurationError: Something is missing; each is named, with the statements that grant it.
    """
    if grants := missing_grants(rows, schema):
        raise ConfigurationError(
            f"{description}: the role {rows[0][0]} may not do what {purpose} does. Grant what is missing: {' '.join(grants)}"
        )


def missing_grants(rows: Sequence[Row], schema: Schema) -> list[str]:
    """The statements that grant what `MISSING_RIGHTS` found to be missing."""
    grants: list[str] = []
    tables: dict[str, list[str]] = {}
    for role, _, table, privilege in rows:
        if table is None:
            grants.append(f"GRANT {privilege} ON SCHEMA {schema.quoted} TO {role};")
        else:
            tables.setdefault(table, []).append(privilege)
    return grants + [f"GRANT {', '.join(each)} ON {schema.quoted}.{table} TO {rows[0][0]};" for table, each in tables.items()]
