"""The SQL of the documentation runs, does what its page says, and the pages name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

from aioqueue import Client, JobState, Registry, Retry, Worker
from aioqueue.postgres import _options, make_store
from aioqueue.vocabulary._identifiers import new_id
from tests.postgres_server import execute

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = re.compile(r";[^\n]*\n")

registry = Registry()


@registry.job(name="charge", retry=Retry(max_attempts=1))
async def charge(order_id: int) -> int:
    if order_id % 2:
        raise ValueError("declined")
    return order_id


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / page).read_text())


async def _works(url: str, orders: int = 4) -> None:
    async with Client(url) as client:
        async with Worker(client, registry):
            handles = await client.enqueue_many([charge(number) for number in range(orders)])
            async with client.transaction() as tx:
                handles.append(await tx.enqueue(charge(100)))
            assert await handles[0].result(timeout=120) == 0
            assert await handles[-1].result(timeout=120) == 100
            for handle in handles[1:-1:2]:
                with pytest.raises(Exception, match="declined"):
                    await handle.result(timeout=120)
        await client.retry(handles[1])
        await client.enqueue(charge(7).options(delay=3600))
        assert (await client.stats()).types
        assert (await client.list_jobs(states=[JobState.FAILED])).jobs


STATEMENTS = [text.strip() for block in blocks("operations.md") for text in END.split(block) if text.strip()]


async def test_the_statements_for_operations_run(postgres_url: str) -> None:
    """On a database with jobs in several states."""
    await _works(postgres_url)
    assert len(STATEMENTS) >= 8
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in STATEMENTS:
            cursor = connection.execute(statement.replace("'…'", f"'{new_id()}'").encode())
            assert cursor.statusmessage, statement


async def test_the_rights_that_are_named_are_enough(empty_postgres_url: str) -> None:
    """For a role that owns its schema, and for one that only enqueues and works."""
    owner, worker = f"app_{new_id().hex}", f"app_worker_{new_id().hex}"
    schema_block, grants_block, defaults_block, _ = blocks("how-to/postgresql.md")

    def url(role: str) -> str:
        parts = urlsplit(empty_postgres_url)
        return urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))

    connection = await asyncpg.connect(empty_postgres_url)
    try:
        for role in (owner, worker):
            await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        await connection.execute(schema_block.replace("AUTHORIZATION app", f"AUTHORIZATION {owner}"))
        assert await make_store(url(owner)).migrate()
        await connection.execute(grants_block.replace("app_worker", worker))
        await _works(url(owner))
        await _works(url(worker))
        migrating = await asyncpg.connect(url(owner))
        await migrating.execute(defaults_block.replace("app_worker", worker))
        await migrating.execute("CREATE TABLE aioqueue.later (x int); CREATE FUNCTION aioqueue.f() RETURNS int RETURN 1")
        await migrating.close()
        working = await asyncpg.connect(url(worker))
        await working.execute("INSERT INTO aioqueue.later VALUES (aioqueue.f()); DELETE FROM aioqueue.later")
        await working.close()
    finally:
        for role in (owner, worker):
            await connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
        await connection.close()


EVERYTHING = """SELECT 'class', n.nspname, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname <> 'pg_toast'
    UNION ALL SELECT 'type', n.nspname, t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace
    WHERE nspname <> 'pg_toast'
    UNION ALL SELECT 'function', n.nspname, p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
    UNION ALL SELECT 'schema', nspname, nspname FROM pg_namespace
    UNION ALL SELECT 'extension', extname, extname FROM pg_extension
    UNION ALL SELECT 'trigger', tgname, tgname FROM pg_trigger
    UNION ALL SELECT 'event trigger', evtname, evtname FROM pg_event_trigger
    UNION ALL SELECT 'cast', castsource::regtype::text, casttarget::regtype::text FROM pg_cast
    UNION ALL SELECT 'large object', oid::text, oid::text FROM pg_largeobject_metadata
    ORDER BY 1, 2, 3"""


async def test_uninstalling_as_shown_leaves_nothing(empty_postgres_url: str) -> None:
    """After some use; and it can be installed again."""
    *_, uninstall = blocks("how-to/postgresql.md")
    before = execute(empty_postgres_url, EVERYTHING)
    for _ in range(2):
        await make_store(empty_postgres_url).migrate()
        assert execute(empty_postgres_url, EVERYTHING) != before
        await _works(empty_postgres_url)
        execute(empty_postgres_url, uninstall)
        assert execute(empty_postgres_url, EVERYTHING) == before


async def test_the_function_is_called_as_shown(postgres_url: str) -> None:
    """From psql, and from a trigger: both make jobs that run."""
    block, *_ = blocks("how-to/transactions.md")
    execute(postgres_url, "create table orders (id int)")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(block.encode())
    execute(postgres_url, "insert into orders values (4)")
    async with Client(postgres_url) as client:
        jobs = (await client.list_jobs()).jobs
        assert {job.type for job in jobs} == {"charge"}
        assert sorted(job.arguments["order_id"] for job in jobs) == [4, 17]


async def test_a_job_is_put_off_as_shown(postgres_url: str) -> None:
    """From psql: the second call is the same job, which is due later."""
    _, block, _ = blocks("how-to/transactions.md")
    ((first, created),) = execute(postgres_url, block)
    due = execute(postgres_url, "select run_at from aioqueue.job")
    assert created
    assert execute(postgres_url, block) == [(first, False)]
    assert execute(postgres_url, "select run_at from aioqueue.job") > due


async def test_what_waits_is_enqueued_as_shown(postgres_url: str) -> None:
    """From psql: it gets the output at its place."""
    *_, block = blocks("how-to/transactions.md")
    receipts = Registry()

    @receipts.job(name="receipt")
    async def receipt() -> str:
        return "paid"

    @receipts.job(name="send_receipt")
    async def send_receipt(receipt: str) -> str:
        return f"sent: {receipt}"

    async with Client(postgres_url) as client:
        handle = await client.enqueue(receipt())
        ((waiting, created),) = execute(postgres_url, block.replace("0193f5a2-7c1e-…", str(handle.id)))
        assert created
        async with Worker(client, receipts):
            assert await client.handle(send_receipt, waiting).result(timeout=120) == "sent: paid"


def test_every_option_is_on_the_page() -> None:
    page = (DOCS / "how-to" / "postgresql.md").read_text()
    assert {name for name in _options._OWN if f"| `{name}` |" not in page} == set()
    assert {name for name in _options._OBJECTS if f"`{name}" not in page} == set()
