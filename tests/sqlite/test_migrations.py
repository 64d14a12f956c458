"""Migrations: at once by several processes, refused versions, files that hold something else."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import StoreIncompatible
from aioqueue.sqlite import make_store
from aioqueue.sqlite._connections import connect
from aioqueue.sqlite._migrations import known_migrations
from aioqueue.sqlite._options import Options
from tests.processes import until
from tests.sqlite.conftest import execute, query

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

_MIGRATE = """
import asyncio, sys
from aioqueue.sqlite import make_store
print(len(asyncio.run(make_store("sqlite:///" + sys.argv[1]).migrate())))
"""


def test_numbers_have_no_gaps() -> None:
    assert [each.number for each in known_migrations()] == list(range(1, len(known_migrations()) + 1))


async def test_migrate_says_what_it_did(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    assert await store.migrate() == [each.name for each in known_migrations()]
    assert await store.migrate() == []
    await store.open()
    assert await store.migrate() == []
    await store.close()


def test_several_processes_migrate_at_once(path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", _MIGRATE, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    outputs = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0] * 6, outputs
    assert sum(int(output) for output, _ in outputs) == len(known_migrations())
    assert query(path, "SELECT count(*) FROM migration") == [(len(known_migrations()),)]


async def test_whoever_gets_the_lock_second_finds_nothing_left_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen an empty file; the other one gets the lock first."""
    from aioqueue.sqlite import _migrations

    in_transaction, theirs = _migrations.in_transaction, list[str]()

    def after_the_other(*arguments: Any) -> bool:
        monkeypatch.setattr(_migrations, "in_transaction", in_transaction)
        with closing(connect(Options(path=path))) as connection:
            theirs.extend(_migrations.migrate(connection, 60))
        return in_transaction(*arguments)

    monkeypatch.setattr(_migrations, "in_transaction", after_the_other)
    store = make_store(f"sqlite:///{path}")
    assert await store.migrate() == []
    assert theirs == [each.name for each in known_migrations()]
    await store.open()
    await store.close()


async def test_a_migration_that_was_interrupted_begins_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aioqueue.sqlite import _migrations

    first = known_migrations()[0]
    broken = replace(first, sql=f"{first.sql}\nSELECT no_such_function();")
    monkeypatch.setattr(_migrations, "known_migrations", lambda: (broken,))
    with pytest.raises(Exception, match="no_such_function"):
        await make_store(f"sqlite:///{path}").migrate()
    monkeypatch.undo()
    assert await make_store(f"sqlite:///{path}").migrate() == [each.name for each in known_migrations()]


async def test_a_schema_of_newer_code_is_refused_with_a_reason(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.migrate()
    execute(path, "INSERT INTO migration VALUES (98, '0098_still_fine', 1, 0)")
    await store.open()
    await store.close()
    execute(path, "INSERT INTO migration VALUES (99, '0099_too_new', 97, 0)")
    with pytest.raises(StoreIncompatible, match=r"newer aioqueue .* 97"):
        await store.open()


async def test_a_schema_of_the_next_release_is_refused_if_that_says_so(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.migrate()
    next_number = len(known_migrations()) + 1
    execute(path, f"INSERT INTO migration VALUES ({next_number}, 'next', {next_number}, 0)")
    with pytest.raises(StoreIncompatible, match=f"newer aioqueue .* {next_number} at least"):
        await store.open()


@pytest.mark.parametrize("table", ["CREATE TABLE job (x)", "CREATE TABLE migration (x)"])
async def test_a_file_that_holds_something_else(path: Path, table: str) -> None:
    execute(path, table)
    before = path.read_bytes()
    for create in (True, False):
        store = make_store(f"sqlite:///{path}", create=create)
        for use in (store.open, store.migrate):
            with pytest.raises(StoreIncompatible, match="use another file if"):
                await use()
    await until(lambda: [each.name for each in path.parent.iterdir()] == [path.name], "the end of the connections")
    assert path.read_bytes() == before


async def test_what_makes_no_tables_leaves_a_file_without_them_as_it_is(path: Path) -> None:
    execute(path, "CREATE TABLE users (x)")
    before = path.read_bytes()
    with pytest.raises(StoreIncompatible, match="has no tables of aioqueue's"):
        await make_store(f"sqlite:///{path}", create=False).open()
    await until(lambda: [each.name for each in path.parent.iterdir()] == [path.name], "the end of the connection")
    assert path.read_bytes() == before
    await make_store(f"sqlite:///{path}").migrate()  # an application's own file may have them, too
    store = make_store(f"sqlite:///{path}", create=False)
    await store.open()
    await store.close()
