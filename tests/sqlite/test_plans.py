"""Statements on the hot path find their rows by indexes, however much else is stored."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import _reads
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._claim import Wanted, claim, open_lease
from aioqueue.sqlite._connections import connect, in_transaction
from aioqueue.sqlite._insert import insert_rows
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._options import Settings
from aioqueue.sqlite._settle import settle
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BETWEEN = f"{_reads._BEFORE} AND {_reads._FROM_FLOOR}"
STATEMENTS = {
    name: getattr(sql, name)
    for name in (
        "INSERT_LOOK",
        "CLAIM_PICK",
        "CLAIM_TAKE",
        "CLAIM_GIVE",
        "SETTLE_OWNED",
        "SETTLE_OWNED_ORPHANED",
        "ARCHIVE_OWNED",
        "DELETE_LIVE",
        "SETTLE_PENDING",
        "SETTLE_FATE",
        "RELEASE_OWNED",
        "RELEASE_ALL",
        "RELEASE",
        "LEASE_HOLDS",
        "LEASE_RENEW",
        "ORPHANS",
        "NEXT_DUE",
        "FETCH",
        "RETRY_INSERT",
        "HEAD_IDS",
        "ODD_READ",
        "ODD_ARCHIVE",
        "ODD_DELETE",
    )
}
STATEMENTS |= {
    "ARCHIVE_TYPES": _reads._ARCHIVE_TYPES,
    "ARCHIVE_LANES": _reads._ARCHIVE_LANES,
    "PENDING": _reads._PENDING,
    "FINISHED": _reads._FINISHED,
    "LISTED": f"{sql.LIVE} FROM job WHERE {BETWEEN} AND type = 'a' ORDER BY id DESC LIMIT :limit",
    "ARCHIVE_LISTED": f"{sql.ARCHIVED} FROM archive WHERE {BETWEEN} ORDER BY id DESC LIMIT :limit",
}


@pytest.fixture(params=["empty", "analyzed"])
def connection(request: pytest.FixtureRequest, path: Path) -> Iterator[sqlite3.Connection]:
    made = connect(Settings(path=path))
    migrate(made, 5.0)
    if request.param == "analyzed":
        in_transaction(made, 5.0, lambda each: insert_rows(each, [new_job("ab"[n % 2], delay=float(n)) for n in range(500)]))
        lease = in_transaction(made, 5.0, lambda each: open_lease(each, "w", 60.0))
        (job,) = in_transaction(made, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1)))
        done = Settlement(id=job.id, claims=1, lease_id=lease, kind=SettlementKind.COMPLETED)
        in_transaction(made, 5.0, lambda each: settle(each, [done], orphaned=False))
        made.execute("ANALYZE")
    yield made
    made.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_table_is_scanned(connection: sqlite3.Connection, name: str) -> None:
    statement = STATEMENTS[name]
    parameters = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    # Over the parameters' own rows and over what an index has narrowed down, but never over a table of jobs. What is
    # running is walked whole to find what has no lease: it's as much as there are slots.
    allowed = {"ORPHANS": ("SCAN job USING COVERING INDEX job_running", "SCAN job USING INDEX job_running")}.get(name, ())
    scans = [step for step in plan if re.match(r"SCAN (job|archive)\b", step) and not step.startswith(allowed or ("-",))]
    assert not scans, plan


def steps(connection: sqlite3.Connection, statement: str, parameters: dict[str, object]) -> int:
    """How many instructions of SQLite's machine a statement takes, by hundreds."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    connection.set_progress_handler(count, 100)
    try:
        connection.execute(statement, parameters).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
    return counted


def test_a_claim_costs_the_same_whatever_else_waits(path: Path) -> None:
    connection = connect(Settings(path=path))
    migrate(connection, 5.0)
    lease = in_transaction(connection, 5.0, lambda each: open_lease(each, "w", 600.0))
    picked = {"leases": f"[{lease}]", "types": '["a"]', "limit": 10, "clock": 0, "boot": None}
    due = {"types": '["a"]', "own": "[]", "clock": 0, "boot": None}
    in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job() for _ in range(20)]))
    before = steps(connection, sql.CLAIM_PICK, picked), steps(connection, sql.NEXT_DUE, due)
    others = [new_job("other") for _ in range(3000)] + [new_job("a", delay=1e6, priority=1) for _ in range(3000)]
    in_transaction(connection, 5.0, lambda each: insert_rows(each, others))
    after = steps(connection, sql.CLAIM_PICK, picked), steps(connection, sql.NEXT_DUE, due)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    connection.close()


def test_asking_for_the_next_due_costs_the_same_whatever_runs(path: Path) -> None:
    connection = connect(Settings(path=path))
    migrate(connection, 5.0)
    lease = in_transaction(connection, 5.0, lambda each: open_lease(each, "w", 600.0))
    in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job() for _ in range(2000)]))
    due = {"types": '["a"]', "own": f"[{lease}]", "clock": 0, "boot": None}
    in_transaction(connection, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1)))
    before = steps(connection, sql.NEXT_DUE, due)
    in_transaction(connection, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1000)))
    assert steps(connection, sql.NEXT_DUE, due) <= before + 2
    connection.close()
