"""Migrations: several processes at once, odd names, small privileges, and code that is older or newer than the schema."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.abc import JobFilter
from aioqueue.errors import StoreContended, StoreIncompatible, StoreUnavailable
from aioqueue.postgres import _migrations, make_store
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from aioqueue.store_rules._migrations import Migration
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.test_statements import ODD_NAMES
from tests.postgres_server import execute
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

NAMES = [migration.name for migration in known_migrations()]
NEXT = len(NAMES) + 1


async def _works(store: PostgresStore) -> None:
    """One job's way through everything."""
    await store.open()
    try:
        job = NewJob(id=new_id(), type="a", key="k", unique=Unique())
        assert (await store.insert([job]))[0].created
        lease_id = await store.open_lease("w", 60)
        (claimed,) = await store.claim(lease_id, ["a"], 10)
        done = Settlement(id=job.id, claims=claimed.claims, lease_id=lease_id, kind=SettlementKind.COMPLETED, output=b"1")
        assert (await store.settle([done]))[0].lost is None
        assert [found.id for found in (await store.list(JobFilter(), 10)).jobs] == [job.id]
        await store.release(lease_id, [], end=True)
    finally:
        await store.close()


async def test_numbers_have_no_gaps() -> None:
    assert [migration.number for migration in known_migrations()] == list(range(1, NEXT))
    assert all(migration.oldest_code <= migration.number for migration in known_migrations())


async def test_ten_at_once(empty_postgres_url: str) -> None:
    stores = [make_store(empty_postgres_url) for _ in range(10)]
    ran = await asyncio.gather(*[store.migrate() for store in stores])
    assert sorted(name for names in ran for name in names) == NAMES
    assert await stores[0].pending_migrations() == []
    await _works(stores[0])


MIGRATE = """
import asyncio, sys
from aioqueue.postgres import make_store
print(",".join(asyncio.run(make_store(sys.argv[1]).migrate())))
"""


def migrating(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", MIGRATE, url]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


WAITING = """select 1 from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())"""


@pytest.mark.parametrize("count", [3, *[pytest.param(10, marks=pytest.mark.soak) for _ in range(20)]])
def test_processes_at_once_of_which_some_are_killed(empty_postgres_url: str, count: int) -> None:
    """One ends in the middle of the first migration, and one while it waits; the others go on, and one does it all."""
    schema = Schema()
    with contextlib.closing(psycopg.connect(empty_postgres_url)) as holder:
        # As a process does it: the lock, and half of the migration, which nobody commits.
        holder.execute(f"select pg_advisory_xact_lock({schema.lock})".encode())
        holder.execute(f"create schema {schema.quoted}; create table {schema.quoted}.job (half text)".encode())
        processes = [migrating(empty_postgres_url) for _ in range(count)]
        try:
            deadline = time.monotonic() + 240
            while len(execute(empty_postgres_url, WAITING)) < count:
                assert time.monotonic() < deadline, "all wait for the lock"
                assert all(process.poll() is None for process in processes)
                time.sleep(0.05)
            processes[0].kill()
            execute(empty_postgres_url, f"select pg_terminate_backend({holder.info.backend_pid})")
            outputs = [process.communicate(timeout=240)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    assert [process.returncode for process in processes[1:]] == [0] * (count - 1), outputs
    # Each by one of them, whoever came to it first.
    assert sorted(name for output in outputs[1:] for name in output.strip().split(",") if name) == NAMES, outputs
    asyncio.run(_works(make_store(empty_postgres_url)))


@pytest.mark.parametrize("delay", [0.3, 0.6])
def test_a_process_that_is_killed_anywhere_leaves_all_or_nothing(empty_postgres_url: str, delay: float) -> None:
    """Whatever it got done, the next one finishes."""
    process = migrating(empty_postgres_url)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=delay)
    process.kill()
    process.communicate()

    async def finish() -> None:
        store = make_store(empty_postgres_url)
        await store.migrate()
        await _works(store)

    asyncio.run(finish())


@pytest.mark.parametrize(
    ("prepared", "isolation"),
    [
        (True, "repeatable read"),
        (False, "serializable"),
        pytest.param(True, "serializable", marks=pytest.mark.soak),
        pytest.param(False, "repeatable read", marks=pytest.mark.soak),
    ],
)
async def test_ten_at_once_whatever_the_databases_isolation(empty_postgres_url: str, isolation: str, prepared: bool) -> None:
    database = empty_postgres_url.rpartition("/")[2]
    execute(empty_postgres_url, f"alter database \"{database}\" set default_transaction_isolation = '{isolation}'")
    stores = [make_store(empty_postgres_url, prepared_statements=prepared) for _ in range(10)]
    ran = await asyncio.gather(*[store.migrate() for store in stores])
    assert sorted(name for names in ran for name in names) == NAMES
    await _works(stores[0])


async def test_several_at_once_that_dont_know_of_each_other(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another tool, which takes no lock, ran the same script: whoever comes second looks again."""
    locks = itertools.count(1)
    monkeypatch.setattr(Schema, "lock", property(lambda _self: next(locks)))
    stores = [make_store(empty_postgres_url) for _ in range(4)]
    await asyncio.gather(*[store.migrate() for store in stores])
    assert await stores[0].pending_migrations() == []
    await _works(stores[0])


async def test_several_at_once_that_drop_the_same(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have seen that the migration isn't applied, and it's gone when the later ones come to drop it."""
    execute(postgres_url, "CREATE INDEX spare ON aioqueue.job (keep)")
    locks = itertools.count(1)
    monkeypatch.setattr(Schema, "lock", property(lambda _self: next(locks)))
    _with(monkeypatch, replace(ADDS_A_COLUMN, sql="LOCK TABLE aioqueue.job; DROP INDEX aioqueue.spare"))
    names = await asyncio.gather(*[make_store(postgres_url).migrate() for _ in range(3)])
    assert sorted(map(len, names)) == [0, 0, 1]


async def test_a_migration_that_takes_too_long_says_what_to_do(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, replace(ADDS_A_COLUMN, sql="SELECT pg_sleep(600)"))
    with pytest.raises(StoreUnavailable, match="larger timeout="):
        await make_store(postgres_url, timeout=0.5).migrate()


# Functions that only look like PostgreSQL's own: whatever uses one of them fails, or does something else.
DECOYS = """
CREATE SCHEMA decoy;
CREATE FUNCTION decoy.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1970-01-01' $$;
CREATE FUNCTION decoy.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1970-01-01' $$;
CREATE FUNCTION decoy.json_typeof(json) RETURNS text LANGUAGE sql AS $$ SELECT 1 / 0, 'x' $$;
CREATE FUNCTION decoy.octet_length(text) RETURNS integer LANGUAGE sql AS $$ SELECT 1 / 0 $$;
CREATE FUNCTION decoy.cardinality(anyarray) RETURNS integer LANGUAGE sql AS $$ SELECT 1 / 0 $$;
CREATE DOMAIN decoy.json AS text;
CREATE DOMAIN decoy.uuid AS text;
""".replace("1 / 0, 'x'", "(1 / 0)::text")


@pytest.mark.parametrize("way", ["migrate", "the script"])
@pytest.mark.parametrize("prepared", [True, False])
async def test_functions_that_only_look_like_postgresqls_own(empty_postgres_url: str, way: str, prepared: bool) -> None:
    """Where they come first in the search_path: neither the schema nor a worker's statements use them."""
    database = empty_postgres_url.rpartition("/")[2]
    execute(empty_postgres_url, DECOYS)
    execute(empty_postgres_url, f'alter database "{database}" set search_path = decoy, public, pg_catalog')
    store = make_store(empty_postgres_url, prepared_statements=prepared)
    if way == "migrate":
        await store.migrate()
    else:
        connection = await asyncpg.connect(empty_postgres_url)
        await connection.execute(store.migration_sql())
        await connection.close()
    await _works(store)
    depends = (
        "select count(*) from pg_depend where refobjid in (select oid from pg_proc where pronamespace = 'decoy'::regnamespace)"
    )
    assert execute(empty_postgres_url, depends) == [(0,)]
    assert execute(empty_postgres_url, "select min(created_at) > '2020-01-01' from aioqueue.archive") == [(True,)]


async def test_what_is_pending_is_told(empty_postgres_url: str) -> None:
    store = make_store(empty_postgres_url)
    assert await store.pending_migrations() == NAMES
    assert await store.migrate() == NAMES
    assert await store.migrate() == []


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_odd_schema_names_work(empty_postgres_url: str, name: str) -> None:
    store = make_store(empty_postgres_url, schema=name)
    await store.migrate()
    await _works(store)


async def test_two_installs_in_one_database(empty_postgres_url: str) -> None:
    first, second = make_store(empty_postgres_url, schema="one"), make_store(empty_postgres_url, schema="two")
    await asyncio.gather(first.migrate(), second.migrate())
    await _works(first)
    await second.open()
    assert (await second.list(JobFilter(), 10)).jobs == ()
    await second.close()


async def test_the_script_does_the_same(empty_postgres_url: str) -> None:
    store = make_store(empty_postgres_url, schema="Jobs-Prod")
    connection = await asyncpg.connect(empty_postgres_url)
    try:
        await connection.execute(store.migration_sql())
    finally:
        await connection.close()
    assert await store.pending_migrations() == []
    await _works(store)


async def test_nothing_outside_the_schema(empty_postgres_url: str) -> None:
    everything = """SELECT 'class', c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname NOT IN ('aioqueue', 'pg_toast')
        UNION ALL SELECT 'function', p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
        WHERE nspname <> 'aioqueue'
        UNION ALL SELECT 'extension', extname FROM pg_extension"""
    connection = await asyncpg.connect(empty_postgres_url)
    try:
        before = await connection.fetch(everything)
        await make_store(empty_postgres_url).migrate()
        assert await connection.fetch(everything) == before
    finally:
        await connection.close()


async def test_a_role_that_may_do_little(empty_postgres_url: str) -> None:
    """It owns a schema that somebody made for it, and may create none; its search_path leads elsewhere."""
    connection = await asyncpg.connect(empty_postgres_url)
    role = f"small_{new_id().hex}"
    try:
        await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; CREATE SCHEMA jobs AUTHORIZATION {role}")
        await connection.execute(f"CREATE SCHEMA decoy AUTHORIZATION {role}; CREATE TABLE decoy.job (x integer)")
        await connection.execute(f"ALTER ROLE {role} SET search_path = decoy")
        parts = urlsplit(empty_postgres_url)
        url = urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))
        store = make_store(url, schema="jobs")
        assert await store.migrate() == NAMES
        await _works(store)
        assert await connection.fetchval("SELECT count(*) FROM decoy.job") == 0
    finally:
        await connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
        await connection.close()


async def test_a_missing_schema_is_told(empty_postgres_url: str) -> None:
    with pytest.raises(StoreIncompatible, match="aioqueue migrate"):
        await make_store(empty_postgres_url).open()


def _with(monkeypatch: pytest.MonkeyPatch, *more: Migration) -> None:
    known = (*known_migrations(), *more)
    monkeypatch.setattr(_migrations, "known_migrations", lambda: known)


ADDS_A_COLUMN = Migration(NEXT, f"{NEXT:04}_adds", 1, "ALTER TABLE @schema@.job ADD COLUMN extra integer")


async def test_a_schema_that_is_too_old(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, ADDS_A_COLUMN)
    with pytest.raises(StoreIncompatible, match="too old"):
        await make_store(postgres_url).open()


async def test_old_code_goes_on_with_a_newer_schema(postgres_url: str) -> None:
    with pytest.MonkeyPatch.context() as newer:
        _with(newer, ADDS_A_COLUMN)
        assert await make_store(postgres_url).migrate() == [ADDS_A_COLUMN.name]
    await _works(make_store(postgres_url))


async def test_a_running_store_goes_on_while_the_schema_is_migrated(postgres_url: str) -> None:
    """With statements that it prepared before, and jobs that it claimed before."""
    registry = Registry()
    gate = asyncio.Event()

    @registry.job(name="held")
    async def held(number: int) -> int:
        await gate.wait()
        return number

    async with Client(postgres_url) as client, Worker(client, registry, concurrency=5):
        handles = await client.enqueue_many([held(number) for number in range(10)])
        while not execute(postgres_url, "select 1 from aioqueue.job where state = 2 offset 4"):
            await asyncio.sleep(0.02)
        with pytest.MonkeyPatch.context() as newer:
            more = "ALTER TABLE @schema@.archive ADD COLUMN extra integer; CREATE TABLE @schema@.extra (x integer)"
            _with(newer, replace(ADDS_A_COLUMN, sql=f"{ADDS_A_COLUMN.sql}; {more}"))
            assert await make_store(postgres_url).migrate() == [ADDS_A_COLUMN.name]
        gate.set()
        handles.append(await client.enqueue(held(10)))
        assert await asyncio.gather(*[handle.result(timeout=120) for handle in handles]) == list(range(11))
        assert {job.attempt for job in (await client.list_jobs()).jobs} == {1}
        assert (await client.stats()).types


async def test_a_schema_that_is_too_new(postgres_url: str) -> None:
    with pytest.MonkeyPatch.context() as newer:
        _with(newer, replace(ADDS_A_COLUMN, oldest_code=NEXT))
        await make_store(postgres_url).migrate()
    with pytest.raises(StoreIncompatible, match="too new"):
        await make_store(postgres_url).open()


async def test_a_migration_that_fails_leaves_nothing(postgres_url: str) -> None:
    with pytest.MonkeyPatch.context() as newer:
        broken = replace(ADDS_A_COLUMN, sql=f"{ADDS_A_COLUMN.sql}; SELECT 1 / 0")
        _with(newer, ADDS_A_COLUMN, replace(broken, number=NEXT + 1, sql="SELECT 1 / 0"))
        with pytest.raises(Exception, match="division by zero"):
            await make_store(postgres_url).migrate()
        assert await make_store(postgres_url).pending_migrations() == [broken.name]
    await _works(make_store(postgres_url))


async def test_a_migration_gives_way_to_a_long_transaction_and_is_tried_again(postgres_url: str) -> None:
    """Others aren't held up behind it meanwhile: a worker's statements go through between its tries."""
    with pytest.MonkeyPatch.context() as newer:
        _with(newer, ADDS_A_COLUMN)
        holder = await asyncpg.connect(postgres_url)
        other = await asyncpg.connect(postgres_url)
        waiting = "select 1 from pg_locks where mode = 'AccessExclusiveLock' and not granted"
        try:
            await holder.execute("begin; select 1 from aioqueue.job")
            migrating = asyncio.create_task(make_store(postgres_url).migrate())
            for _ in range(2):
                await until(lambda: execute(postgres_url, waiting), "a try that waits")
                await asyncio.wait_for(other.fetch("select 1 from aioqueue.job"), 60)
                assert not migrating.done()
            await holder.execute("rollback")
            assert await migrating == [ADDS_A_COLUMN.name]
        finally:
            await holder.close()
            await other.close()


async def test_a_migration_that_is_always_in_somebodys_way_says_so(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, ADDS_A_COLUMN)
    monkeypatch.setattr(_migrations, "_LONGEST_TRYING_SECONDS", 1.0)
    holder = await asyncpg.connect(postgres_url)
    try:
        await holder.execute("begin; select 1 from aioqueue.job")
        with pytest.raises(StoreContended, match=rf"{ADDS_A_COLUMN.name}.*run it again when they have ended"):
            await make_store(postgres_url).migrate()
        await holder.execute("rollback")
    finally:
        await holder.close()
    assert await make_store(postgres_url).migrate() == [ADDS_A_COLUMN.name]
