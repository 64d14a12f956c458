"""Enqueueing in transactions of other libraries: the real ones, on a real server."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

from aioqueue.errors import NotInTransaction
from aioqueue.postgres import _foreign, make_store
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.vocabulary._unique import Unique
from tests.postgres.libraries import LIBRARIES, sqlalchemy_url
from tests.postgres_server import execute
from tests.processes import ROOT, until

pytestmark = pytest.mark.anyio

SCHEMA = Schema().name

COLUMNS = (
    "type, priority, state, attempt, max_attempts, timeout, key, unique_key is not null, tags, retry::text, metadata::text, "
    "payload::text, run_at > created_at + interval '50 s', expires_at is not null"
)


def a_job(**changes: Any) -> NewJob:
    values: dict[str, Any] = {"id": new_id(), "type": "mail", "payload": b'{"to":"a%b:c \\u0000 \xc3\xa9"}', **changes}
    return NewJob(**values)


def full_job() -> NewJob:
    """A job with every option."""
    return a_job(
        priority=1, delay=60.0, expires=90.0, max_attempts=None, retry=b'{"max_attempts":3}', timeout=1.5, key="k'\"",
        unique=Unique(), tags=("one", 'two "2"'), metadata=b'{"tenant":"t"}',
    )  # fmt: skip


def stored(url: str) -> list[UUID]:
    return [UUID(str(row[0])) for row in execute(url, f"select id from {SCHEMA}.job order by id")]


# -- commit and rollback ----------------------------------------------------------------------------------------------


async def test_a_job_exists_from_the_commit_on(postgres_url: str, library: Any) -> None:
    job = a_job()
    async with library(postgres_url) as opened:
        (inserted,) = await _foreign.insert(opened.tx, SCHEMA, [job])
        assert (inserted.id, inserted.created) == (job.id, True)
        assert stored(postgres_url) == []
        await opened.commit()
        assert stored(postgres_url) == [job.id]


async def test_a_rolled_back_job_never_existed(postgres_url: str, library: Any) -> None:
    async with library(postgres_url) as opened:
        await opened.execute("create table business (a int)")
        await _foreign.insert(opened.tx, SCHEMA, [a_job()])
        await opened.rollback()
    assert stored(postgres_url) == []
    assert execute(postgres_url, "select to_regclass('business')") == [(None,)]


async def test_the_job_and_the_business_commit_together(postgres_url: str, library: Any) -> None:
    execute(postgres_url, "create table business (a int)")
    async with library(postgres_url) as opened:
        await opened.execute("insert into business values (1)")
        await _foreign.insert(opened.tx, SCHEMA, [a_job()])
        assert execute(postgres_url, "select a from business") == []
        await opened.commit()
    assert execute(postgres_url, "select a from business") == [(1,)]
    assert len(stored(postgres_url)) == 1


async def test_a_savepoint_takes_its_jobs_with_it(postgres_url: str, library: Any) -> None:
    outer, inner, after = a_job(), a_job(), a_job()
    async with library(postgres_url) as opened:
        await _foreign.insert(opened.tx, SCHEMA, [outer])
        with pytest.raises(ZeroDivisionError):
            async with opened.savepoint():
                await _foreign.insert(opened.tx, SCHEMA, [inner])
                raise ZeroDivisionError
        await _foreign.insert(opened.tx, SCHEMA, [after])
        await opened.commit()
    assert stored(postgres_url) == [outer.id, after.id]


@pytest.mark.parametrize("committed", [True, False])
async def test_it_notifies_at_the_commit_alone(postgres_url: str, library: Any, committed: bool) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def next_heard() -> str:
        with anyio.fail_after(60):
            return await heard.get()

    listening = await asyncpg.connect(postgres_url)
    try:
        for channel in (Schema().channel, "fence"):
            await listening.add_listener(channel, lambda _c, _p, channel, _payload: heard.put_nowait(channel))
        async with library(postgres_url) as opened:
            await _foreign.insert(opened.tx, SCHEMA, [a_job()])
            execute(postgres_url, "notify fence")
            assert await next_heard() == "fence"
            await (opened.commit() if committed else opened.rollback())
        if committed:
            assert await next_heard() == Schema().channel
        execute(postgres_url, "notify fence")
        assert await next_heard() == "fence"
    finally:
        await listening.close()


async def test_many_at_once_in_order_and_with_a_taken_key(postgres_url: str, library: Any) -> None:
    jobs = [a_job(key=f"key {number % 7}", unique=Unique() if number % 2 == 0 else None) for number in range(40)]
    async with library(postgres_url) as opened:
        results = await _foreign.insert(opened.tx, SCHEMA, jobs)
        assert await _foreign.insert(opened.tx, SCHEMA, []) == []
        await opened.commit()
    first = {job.key: job.id for job in reversed(jobs) if job.unique}
    for job, result in zip(jobs, results, strict=True):
        kept = not job.unique or first[job.key] == job.id
        assert (result.id, result.created) == (job.id if kept else first[job.key], kept)


async def test_a_repeated_one_that_has_finished_is_left_alone(postgres_url: str, library: Any) -> None:
    finished, waiting, missing = a_job(), a_job(), a_job()
    async with library(postgres_url) as opened:
        await _foreign.insert(opened.tx, SCHEMA, [finished, waiting])
        await opened.commit()
    shared = (
        "id, type, priority, run_at, attempt, claims, lease_id, max_attempts, reschedules, timeout, chain_id, position, key, "
        "unique_key, created_at, started_at, expires_at, trace, tags, retry, metadata, payload, errors"
    )
    execute(
        postgres_url,
        f"with gone as (delete from {SCHEMA}.job where id = '{finished.id}' returning *) "
        f"insert into {SCHEMA}.archive ({shared}, state, finished_at) select {shared}, 4, now() from gone",
    )
    async with library(postgres_url) as opened:
        results = await _foreign.insert(opened.tx, SCHEMA, [waiting, finished, missing], repeated=True)
        await opened.commit()
    assert [(result.id, result.created) for result in results] == [
        (waiting.id, False),
        (finished.id, False),
        (missing.id, True),
    ]
    assert stored(postgres_url) == [waiting.id, missing.id]


# -- it's the same job ------------------------------------------------------------------------------------------------


async def test_every_option_arrives_the_same_through_every_library(postgres_url: str) -> None:
    rows = set()
    for number, (name, library) in enumerate(LIBRARIES.items()):
        async with library(postgres_url) as opened:
            await _foreign.insert(opened.tx, SCHEMA, [full_job()])
            await opened.commit()
        (row,) = execute(postgres_url, f"select {COLUMNS} from {SCHEMA}.job")
        rows.add(repr(row))
        assert len(rows) == 1, f"{name} (number {number}) makes another row: {rows}"
        execute(postgres_url, f"delete from {SCHEMA}.job")


def test_synchronous_code_takes_the_statement(postgres_url: str) -> None:
    job = full_job()
    sql, parameters = _foreign.statement(SCHEMA, [job])
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(sql.encode(), parameters).fetchall() == [(str(job.id), True)]
        assert stored(postgres_url) == []
    engine = sqlalchemy.create_engine(sqlalchemy_url(postgres_url, "psycopg"))
    with engine.begin() as connection:
        assert tuple(connection.exec_driver_sql(sql, parameters).one()) == (str(job.id), False)
    engine.dispose()
    assert stored(postgres_url) == [job.id]


async def test_a_statement_with_numbered_parameters(postgres_url: str) -> None:
    job = a_job()
    sql, parameters = _foreign.statement(SCHEMA, [job], placeholder="$1")
    connection = await asyncpg.connect(postgres_url)
    try:
        assert [tuple(row) for row in await connection.fetch(sql, *parameters)] == [(str(job.id), True)]
    finally:
        await connection.close()


def psql() -> list[str]:
    for folder in map(Path, ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")):
        if (folder / "psql").exists():
            return [str(folder / "psql")]
    pytest.skip("psql isn't installed")


def test_psql_makes_the_same_job(postgres_url: str) -> None:
    job = a_job(payload=b'{"to":"me"}', key="k", tags=("t",))
    (text,) = _foreign.statement(SCHEMA, [job])[1]
    call = f"select created from {SCHEMA}.enqueue_v1($json${text}$json$)"
    done = subprocess.run([*psql(), "-XAtq", postgres_url, "-c", call], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "t"
    by_hand = {"type": "mail", "payload": {"to": "me"}, "key": "k", "tags": ["t"]}
    call = f"select created from {SCHEMA}.enqueue_v1($json${json.dumps(by_hand)}$json$)"
    subprocess.run([*psql(), "-XAtq", postgres_url, "-c", call], capture_output=True, text=True, check=True)
    first, second = execute(
        postgres_url, f"select {COLUMNS.replace('payload::text', 'payload::jsonb::text')} from {SCHEMA}.job"
    )
    assert first == second
    assert len(set(stored(postgres_url))) == 2


def test_a_trigger_makes_jobs(postgres_url: str) -> None:
    execute(postgres_url, "create table orders (id int)")
    execute(
        postgres_url,
        f"""
        create function order_job() returns trigger language plpgsql as $$
        begin
            perform {SCHEMA}.enqueue_v1(json_build_object('type', 'charge', 'payload', json_build_object('order', new.id)));
            return null;
        end $$;
        create trigger order_job after insert on orders for each row execute function order_job();
        """,
    )
    execute(postgres_url, "insert into orders values (7), (8)")
    rows = execute(postgres_url, f"select type, payload->>'order' from {SCHEMA}.job order by 2")
    assert rows == [("charge", "7"), ("charge", "8")]


# -- settings of the caller's -----------------------------------------------------------------------------------------


async def test_factories_and_codecs_of_the_connection_dont_matter(postgres_url: str) -> None:
    jobs = [a_job(), a_job()]
    async with await psycopg.AsyncConnection.connect(
        postgres_url, row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor
    ) as connection:
        (result,) = await _foreign.insert(connection, SCHEMA, jobs[:1])
        assert result.id == jobs[0].id
    connection = await asyncpg.connect(postgres_url, statement_cache_size=0)
    try:
        await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        async with connection.transaction():
            (result,) = await _foreign.insert(connection, SCHEMA, jobs[1:])
        assert result.id == jobs[1].id
    finally:
        await connection.close()
    assert stored(postgres_url) == [job.id for job in jobs]


async def test_an_odd_schema_name(empty_postgres_url: str, library: Any) -> None:
    schema = """Jobs-"%s" :x {y} $1 'é' %"""
    await make_store(empty_postgres_url, schema=schema).migrate()
    async with library(empty_postgres_url) as opened:
        await _foreign.insert(opened.tx, schema, [a_job()], repeated=True)
        await opened.commit()
    sql, parameters = _foreign.statement(schema, [a_job()])
    with psycopg.connect(empty_postgres_url) as connection:
        connection.execute(sql.encode(), parameters)
    quoted = Schema(schema).quoted
    assert execute(empty_postgres_url, f"select count(*) from {quoted}.job") == [(2,)]


async def test_subclasses_and_scoped_sessions(postgres_url: str) -> None:
    class Session(AsyncSession):
        pass

    engine = create_async_engine(sqlalchemy_url(postgres_url, "asyncpg"))
    try:
        scoped = async_scoped_session(async_sessionmaker(engine, class_=Session), scopefunc=asyncio.current_task)
        await _foreign.insert(scoped, SCHEMA, [a_job()])
        await scoped.commit()
        await scoped.remove()
        async with Session(engine) as session, session.begin():
            await _foreign.insert(session, SCHEMA, [a_job()])
    finally:
        await engine.dispose()
    assert len(stored(postgres_url)) == 2


# -- guards -----------------------------------------------------------------------------------------------------------


async def test_autocommit_is_refused(postgres_url: str) -> None:
    async def refused(tx: object) -> None:
        with pytest.raises(NotInTransaction, match="tx="):
            await _foreign.insert(tx, SCHEMA, [a_job()])

    connection = await asyncpg.connect(postgres_url)
    await refused(connection)
    await connection.close()
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool, pool.acquire() as pooled:
        await refused(pooled)
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await refused(connection)
        async with connection.transaction():
            await _foreign.insert(connection, SCHEMA, [a_job()])
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(sqlalchemy_url(postgres_url, driver), isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            await refused(session)
        async with engine.connect() as connection:
            await refused(connection)
        await engine.dispose()
    assert len(stored(postgres_url)) == 1


async def test_what_is_unknown_is_refused_with_what_is_known(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as synchronous:
        for tx, hint in (
            (object(), "psycopg AsyncConnection"),
            (synchronous, "client.statement"),
            (postgres_url, "AsyncSession"),
        ):
            with pytest.raises(TypeError, match=hint):
                await _foreign.insert(tx, SCHEMA, [a_job()])
    with closing(sqlite3.connect(":memory:")) as other, pytest.raises(TypeError, match="asyncpg Connection"):
        await _foreign.insert(other, SCHEMA, [a_job()])


# -- killed before the commit -----------------------------------------------------------------------------------------

SCRIPT = textwrap.dedent("""
    import asyncio, sys
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._identifiers import new_id
    from aioqueue.postgres import _foreign, make_store
    from tests.postgres.libraries import LIBRARIES

    async def main(name, url, schema):
        async with LIBRARIES[name](url) as opened:
            await opened.execute("create table business (a int)")
            await _foreign.insert(opened.tx, schema, [NewJob(id=new_id(), type="mail")])
            print("open", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main(*sys.argv[1:]))
""")


@pytest.mark.parametrize("name", ["asyncpg", "psycopg", pytest.param("session on asyncpg", marks=pytest.mark.soak)])
async def test_a_kill_before_the_commit_leaves_nothing(postgres_url: str, name: str, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, postgres_url, SCHEMA], cwd=ROOT, stdout=file, stderr=file
        )
    try:
        await until(lambda: process.poll() is not None or output.read_text() == "open\n", "the script's enqueue")
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()
    sessions = "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    await until(lambda: not execute(postgres_url, sessions), "the killed session's end")
    assert stored(postgres_url) == []
    assert execute(postgres_url, "select to_regclass('business')") == [(None,)]
