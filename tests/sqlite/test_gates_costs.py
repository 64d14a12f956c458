"""What is done at gates costs the same however many jobs are held there."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite._connections import connect, in_transaction
from aioqueue.sqlite._gates_fair import FairLanes, wait_in_lanes
from aioqueue.sqlite._gates_look import look_at_gates
from aioqueue.sqlite._gates_news import PassedOver
from aioqueue.sqlite._gates_promote import leave_marks, promote_marked
from aioqueue.sqlite._insert_rows import insert_rows
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._options import Options
from aioqueue.vocabulary._gates import By, GateRules, SequenceMember
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

FAIR = {"f": GateRules(type="f", fair_by=By("tenant"))}
GATES = ("stripe", "rate:a", "sequence=s", "sequence=other")


def _let_come(connection: sqlite3.Connection) -> None:
    leave_marks(connection, dict.fromkeys(GATES, 1))
    promote_marked(connection, PassedOver())


def _look(connection: sqlite3.Connection) -> None:
    look_at_gates(connection, GATES, 1)


def _turns(connection: sqlite3.Connection) -> None:
    assert wait_in_lanes(connection, FAIR, PassedOver())
    lanes = FairLanes(PassedOver())
    lanes.sort(connection, FAIR)
    lanes.let_come(connection, FAIR, 4, some_are_stuck=True)


def _hold(connection: sqlite3.Connection, count: int) -> None:
    """Hold so many more jobs at each gate, and put so many into one lane."""
    member = SequenceMember(name="s")
    jobs = [*(new_job("a") for _ in range(2 * count)), *(new_job("f") for _ in range(count))]
    members = [new_job("m", sequence=member) for _ in range(count)]
    insert_rows(connection, [*jobs, *members])
    for number, gate in enumerate(GATES[:2]):
        ids = ",".join(f"'{job.id}'" for job in jobs[number * count : (number + 1) * count])
        connection.execute(f"UPDATE job SET state = 0, gate = '{gate}' WHERE id IN ({ids})")
    connection.execute("UPDATE job SET state = 0, gate = 'fair:f=\"one\"' WHERE type = 'f'")
    connection.execute("UPDATE job SET state = 0, gate = 'sequence=s' WHERE type = 'm'")


@pytest.mark.parametrize("done", [_let_come, _look, _turns])
def test_it_costs_the_same_however_many_are_held(path: Path, done: Callable[[sqlite3.Connection], None]) -> None:
    with closing(connect(Options(path=path))) as connection:
        migrate(connection, 5.0)

        def steps() -> int:
            counted = 0

            def count() -> None:
                nonlocal counted
                counted += 1

            connection.execute("BEGIN IMMEDIATE")
            connection.set_progress_handler(count, 100)
            done(connection)
            connection.set_progress_handler(None, 0)
            connection.execute("ROLLBACK")
            return counted

        in_transaction(connection, 5.0, lambda each: _hold(each, 20))
        before = steps()
        in_transaction(connection, 5.0, lambda each: _hold(each, 600))
        assert steps() <= before + 6
