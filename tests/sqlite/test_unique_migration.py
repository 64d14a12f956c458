"""Migration 0008: keys that are held stay held, and code from before, which may still run, finds and refuses what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import make_store
from aioqueue.sqlite._migrations import known_migrations
from aioqueue.store_rules._unique_keys import unique_hash
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import claim_one
from tests.sqlite.conftest import new_job, outsider, query

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

OLD_INSERT = """INSERT INTO job (id, type, priority, state, run_at, created_at, key, unique_key, payload)
VALUES (?, 'a', 2, 1, 0, 0, ?, ?, '{}')"""
OLD_LOOK = "SELECT id FROM job WHERE unique_key IS NOT NULL AND unique_key IN (SELECT value FROM json_each(:keys))"


async def test_a_file_of_the_schema_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("aioqueue.sqlite._migrations.known_migrations", lambda: known_migrations()[:7])
        await make_store(f"sqlite:///{path}").migrate()
    held = {key: new_id() for key in "abc"}
    with outsider(path) as connection:
        connection.executemany(OLD_INSERT, [(str(each), key, str(unique_hash("a", key))) for key, each in held.items()])
    store = make_store(f"sqlite:///{path}")
    await store.open()
    policies = {"a": Unique(), "b": Unique(on_conflict="replace"), "c": Unique(until="started")}
    for key, unique in policies.items():
        (again,) = await store.insert([new_job(key=key, unique=unique)])
        assert (again.id, again.created) == (held[key], False)
    await store.close()


async def test_code_from_before_finds_what_holds_a_key_by_the_index(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    await store.insert([started := new_job(key="k", unique=Unique(until="started"))])
    await claim_one(store, await store.open_lease("w", 600))
    (second,) = await store.insert([new_job(key="k", unique=Unique())])
    with outsider(path) as connection:
        keys = {"keys": f'["{unique_hash("a", "k")}"]'}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {OLD_LOOK}", keys)]
        assert "job_unique (unique_key=?)" in plan[0], plan
        found = connection.execute(OLD_LOOK, keys).fetchall()
    assert {row[0] for row in found} == {str(started.id), str(second.id)}
    assert second.created
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    await store.close()
