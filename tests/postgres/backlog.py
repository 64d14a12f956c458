"""A big backlog, and what the planner makes of the store's statements over it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.postgres._connections_source import PLANNER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import asyncpg

_ID = "(lpad(to_hex(1700000000000 + {n}), 12, '0') || '7000800000' || lpad(to_hex({n}), 10, '0'))::uuid"

# Autovacuum is kept away, so that "before ANALYZE" means it.
FILL = f"""
ALTER TABLE aioqueue.job SET (autovacuum_enabled = off);
ALTER TABLE aioqueue.archive SET (autovacuum_enabled = off);
INSERT INTO aioqueue.job (id, type, priority, run_at, tags)
SELECT {_ID.format(n="n")}, CASE WHEN n % 4 = 0 THEN 'other' || n % 40 ELSE 'busy' END, 2,
       CASE WHEN n % 2 = 0 THEN now() + interval '7 days' ELSE now() - interval '1 day' END + n * interval '1 microsecond',
       CASE WHEN n % 1000 = 0 THEN ARRAY['rare'] ELSE '{{}}' END
FROM generate_series(1, @rows@) AS n;
INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, position, created_at,
                              finished_at, tags, metadata, payload, errors, key)
SELECT {_ID.format(n="(n + 100000000)")}, CASE WHEN n % 4 = 0 THEN 'other' || n % 40 ELSE 'busy' END, 2, now(),
       CASE WHEN n % 5000 = 0 THEN 6 ELSE 4 END, 1, 1, 0, 0, now(), now() - n * interval '1 second',
       CASE WHEN n % 1000 = 0 THEN ARRAY['rare'] ELSE '{{}}' END, '{{}}', '{{}}', '{{}}',
       CASE WHEN n % 1000 = 0 THEN 'key' || n % 10000 END
FROM generate_series(1, @rows@) AS n;
"""

FILL_CHAIN = f"""
INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, chain_id, position, created_at,
                              finished_at, tags, metadata, payload, errors)
SELECT {_ID.format(n="(n + 200000000)")}, 'step', 2, now(), CASE WHEN n = 100000 THEN 6 ELSE 5 END, 1, 1, 0,
       CASE WHEN n > 0 THEN {_ID.format(n="200000000")} END, n, now(), now(), '{{}}', '{{}}', '{{}}', '{{}}'
FROM generate_series(0, 100000) AS n;
"""
"""One chain of 100,001 steps that has ended."""


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple)):
        return "'{" + ",".join("NULL" if each is None else f'"{each}"' for each in value) + "}'"
    if isinstance(value, (int, float)):
        return f"'{value}'"
    assert isinstance(value, (str, UUID, datetime))
    return "'" + str(value).replace("'", "''") + "'"


@dataclass(frozen=True)
class Plan:
    """How one statement was executed.

    Attributes:
        buffers: Pages that it looked at.
        scans: What it did with which tables: (node type, table, rows that came out or were filtered away).
        sorted: Rows that went into the biggest sort.
        text: The whole plan, for a failure's message.
    """

    buffers: int
    scans: tuple[tuple[str, str, int], ...]
    sorted: int
    text: str


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


async def explain(connection: asyncpg.Connection[Any], sql: str, arguments: Sequence[Any]) -> Plan:
    """Execute a statement as the store does, with the plan that it would get, and take it back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        for setting in PLANNER_SETTINGS:
            await connection.execute(f"SET LOCAL {setting}")
        await connection.execute(f"PREPARE examined AS {sql}")
        values = f"({', '.join(_literal(each) for each in arguments)})" if arguments else ""
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE examined{values}")
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE ALL")
    top = json.loads(text)[0]["Plan"]
    nodes = list(_nodes(top))
    sorts = [round(node["Actual Rows"] * node["Actual Loops"]) for node in nodes if node["Node Type"] == "Sort"]
    return Plan(
        buffers=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        scans=tuple(
            (
                node["Node Type"],
                node["Relation Name"],
                round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]),
            )
            for node in nodes
            if "Relation Name" in node and "Scan" in node["Node Type"]
        ),
        sorted=max(sorts, default=0),
        text=text,
    )
