"""Statements on the hot path find their rows by indexes, however much else is stored."""

from __future__ import annotations

import re
import sqlite3
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import _operate_prune
from aioqueue.sqlite._claim_paused import _HEADS, _OPEN_TYPES, pick_around_pauses
from aioqueue.sqlite._claim_take import _PICK, Wanted, claim
from aioqueue.sqlite._connections import connect, in_transaction
from aioqueue.sqlite._insert_rows import insert_rows
from aioqueue.sqlite._lease import open_lease
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._options import Options
from aioqueue.sqlite._pauses import _put
from aioqueue.sqlite._recovery import _NEXT_AROUND_PAUSES, _NEXT_DUE
from aioqueue.sqlite._settle import settle
from aioqueue.sqlite._stats import _TURNS
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOMS = (
    *(
        "_claim_blockers",
        "_claim_odd",
        "_claim_paused",
        "_claim_take",
        "_insert_blockers",
        "_insert_holders",
        "_insert_rows",
        "_insert_unique",
        "_lease",
        "_lease_odd",
        "_lease_singleton",
    ),
    *("_lease_session", "_listing", "_listing_blockers", "_listing_chain", "_listing_find", "_listing_sources"),
    *("_notifications", "_operate", "_operate_cancel", "_operate_delete", "_operate_prune"),
    *("_operate_retry", "_operate_steps", "_recovery", "_resolve", "_resolve_ends", "_rows_chain", "_rows_odd", "_settle"),
    *("_settle_archive", "_settle_batch", "_settle_chain", "_settle_end", "_stats", "_stats_workers", "_tend", "_tend_look"),
    *("_settle_requests", "_progress", "_progress_kept", "_progress_read", "_retention", "_retention_find"),
    *("_webhooks", "_webhooks_write", "_tend_old", "_events"),
    *("_pauses", "_pauses_list", "_pauses_parked"),
    *("_gates", "_gates_claim", "_gates_each", "_gates_fair", "_gates_list", "_gates_look", "_gates_members", "_gates_news"),
    *("_gates_promote", "_gates_sweep", "_gates_through"),
    *("_schedules_change", "_schedules_look", "_schedules_put", "_schedules_rows", "_schedules_tick"),
)
WALKS = {
    # Whose chains were asked to end, and that run: next to none.
    "_lease_odd._ASKED": ("job_asked",),
    "_notifications._ASKED": ("job_asked",),
    # What is running is walked whole to find what has no lease, and to count it: it's as much as there are slots.
    "_recovery._ORPHANS": ("job_running",),
    "_recovery._ORPHAN_IDS": ("job_running",),
    "_stats._BUSY": ("job_running", "job_held", "job_parked"),
    "_tend_look._UNTOLD": ("chain_end_untold",),
    "_tend_look._ASKED": ("job_asked",),
    # From the first due or oldest one on, as far as the limit says.
    "_webhooks._DUE_ELSEWHERE": ("delivery_due_by_host",),
    "_tend_old._LOOK": ("event",),
    "_events._FORGET": ("event",),
    # Up to the first of them.
    "_recovery._NEXT_DUE": ("schedule_due", "pause", "gate_mark"),
    # Whether there is any.
    "_claim_take._PICK": ("pause", "gate_mark"),
    "_claim_take._PICK_WITHIN_QUOTAS": ("pause", "gate_mark"),
    "_gates_claim._ANY_WORK": ("gate_mark",),
    # Of each sequence that is kept the first, as far as the limit says.
    "_gates_list._KEPT": ("gate_member_failed",),
    # From the oldest on, as far as the limit says.
    "_gates_promote._MARKED": ("gate_mark",),
    "_pauses_list._PAUSES": ("pause",),
    # Once an hour.
    "_schedules_change._RECOMPUTE_ALL": ("schedule",),
}
"""The partial indexes that a statement may walk."""

TABLES = (
    "job|archive|blocker|chain_end|b|e|phase|progress|job_log|log|newer|past_lease|delivery|event"
    "|pause|schedule|schedule_tick|schedule_generation|s|t|g|kept"
    "|gate_limit|gate_place|gate_mark|gate_rate|gate_member|p|m"
)
"""Under the names that the statements give them."""


def statements(room: str) -> dict[str, str]:
    """The whole statements that stand in a room, by name."""
    return {
        f"{room}.{name}": value
        for name, value in vars(import_module(f"aioqueue.sqlite.{room}")).items()
        if isinstance(value, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b.*(FROM|INTO|SET)\b", value, re.DOTALL)
        if "{" not in value and not name.startswith("SELECT_")  # no whole statement yet
    }


STATEMENTS = {name: statement for room in ROOMS for name, statement in statements(room).items()}


def test_every_room_has_its_statements_beside_their_use() -> None:
    assert {name.partition(".")[0] for name in STATEMENTS if "." in name} == set(ROOMS)
    assert len(STATEMENTS) > 30


def _made(kind: str, path: Path) -> sqlite3.Connection:
    made = connect(Options(path=path))
    migrate(made, 5.0)
    if kind == "analyzed":
        in_transaction(made, 5.0, lambda each: insert_rows(each, [new_job("ab"[n % 2], delay=float(n)) for n in range(500)]))
        lease = in_transaction(made, 5.0, lambda each: open_lease(each, "w", 60.0))
        (job,) = in_transaction(made, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1)))
        done = Settlement(id=job.id, claims=1, lease_id=lease, kind=SettlementKind.COMPLETED)
        in_transaction(made, 5.0, lambda each: settle(each, [done], orphaned=False))
        made.execute("ANALYZE")
    return made


@pytest.fixture(params=["empty", "analyzed"])
def connection(request: pytest.FixtureRequest, path: Path) -> Iterator[sqlite3.Connection]:
    made = _made(request.param, path)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["empty", "analyzed"])
def explaining(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """One for all statements: they are planned, and not executed."""
    made = _made(request.param, tmp_path_factory.mktemp("plans") / "jobs.db")
    yield made
    made.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_table_is_scanned(explaining: sqlite3.Connection, name: str) -> None:
    statement = STATEMENTS[name]
    parameters = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    plan = [row[3] for row in explaining.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    # Over the parameters' own rows and over what an index has narrowed down, but never over a table of jobs.
    scans = [
        step
        for step in plan
        if re.match(rf"SCAN ({TABLES})\b", step) and "VIRTUAL TABLE" not in step and step.split()[-1] not in WALKS.get(name, ())
    ]
    assert not scans, plan


def test_pruning_goes_along_its_index(connection: sqlite3.Connection) -> None:
    parameters = dict.fromkeys(re.findall(r":(\w+)", _operate_prune._LOOK), 1)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {_operate_prune._LOOK}", parameters)]
    (search,) = [step for step in plan if "archive" in step]
    assert re.fullmatch(r"SEARCH archive USING INDEX archive_finished \(state=\? AND .*>.* AND finished_at<\?\)", search)
    assert not any("TEMP B-TREE" in step for step in plan), plan


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
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    lease = in_transaction(connection, 5.0, lambda each: open_lease(each, "w", 600.0))
    picked = {"leases": f"[{lease}]", "types": '["a"]', "turns": "{}", "limit": 10, "clock": 0, "boot": None}
    due = {"types": '["a"]', "own": "[]", "clock": 0, "boot": None}
    in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job() for _ in range(20)]))
    before = steps(connection, _PICK, picked), steps(connection, _NEXT_DUE, due)
    others = [new_job("other") for _ in range(3000)] + [new_job("a", delay=1e6, priority=1) for _ in range(3000)]
    in_transaction(connection, 5.0, lambda each: insert_rows(each, others))
    after = steps(connection, _PICK, picked), steps(connection, _NEXT_DUE, due)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    connection.close()


def test_the_oldest_that_waits_for_its_turn_costs_the_same_however_many_wait(path: Path) -> None:
    """Also behind many that are held elsewhere, and nothing where no lane is."""
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    costs: list[int] = []
    for gate in ("job:a", "fair:a=1", "fair:a=1", "fair:a=2"):
        costs.append(steps(connection, _TURNS, {}))
        in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job("a") for _ in range(3000)]))
        connection.execute("UPDATE job SET state = 0, gate = ? WHERE state = 1", (gate,))
    costs.append(steps(connection, _TURNS, {}))
    none, elsewhere, *lanes = costs
    assert none == elsewhere < 5
    assert max(lanes) <= min(lanes) + 2 < 200
    connection.close()


def test_a_claim_beside_a_paused_backlog_costs_the_same_however_long_that_is(path: Path) -> None:
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    lease = in_transaction(connection, 5.0, lambda each: open_lease(each, "w", 600.0))
    pauses = [NewPause(target=PauseTarget.TYPE, value="paused"), NewPause(target=PauseTarget.KEY, value="k")]
    in_transaction(connection, 5.0, lambda each: _put(each, pauses))

    def cost() -> tuple[int, int]:
        types = '["a","paused"]'
        asked = {"types": types, "own": "[]", "clock": 0, "boot": None}
        rows, parked = pick_around_pauses(connection, {"types": types, "turns": "{}", "limit": 10})
        assert (rows.count(lease_type), parked) == (10, [])
        heads = {"types": '["a"]', "turns": "{}", "limit": 510}
        picked = steps(connection, _OPEN_TYPES, asked) + steps(connection, _HEADS, heads)
        return picked, steps(connection, _NEXT_AROUND_PAUSES, asked)

    lease_type = '"a"'
    in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job() for _ in range(20)]))
    before = cost()
    backlog = [new_job("paused") for _ in range(3000)] + [new_job("a", key="k", delay=1e6) for _ in range(3000)]
    in_transaction(connection, 5.0, lambda each: insert_rows(each, backlog))
    connection.execute("UPDATE job SET run_at = 1 WHERE key = 'k'")
    for _ in range(6):
        in_transaction(connection, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 0)))
    assert connection.execute("SELECT count(*) FROM job WHERE state = 0").fetchall() == [(3000,)]
    after = cost()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    connection.close()


def test_asking_for_the_next_due_costs_the_same_whatever_runs(path: Path) -> None:
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    lease = in_transaction(connection, 5.0, lambda each: open_lease(each, "w", 600.0))
    in_transaction(connection, 5.0, lambda each: insert_rows(each, [new_job() for _ in range(2000)]))
    due = {"types": '["a"]', "own": f"[{lease}]", "clock": 0, "boot": None}
    in_transaction(connection, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1)))
    before = steps(connection, _NEXT_DUE, due)
    in_transaction(connection, 5.0, lambda each: claim(each, Wanted(lease, {}, '["a"]', 1000)))
    assert steps(connection, _NEXT_DUE, due) <= before + 2
    connection.close()
