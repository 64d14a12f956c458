"""A test's database is another's afterwards only if nothing but rows has changed, and those are gone by then."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.postgres_server import execute

if TYPE_CHECKING:
    from tests.postgres_databases import Databases

ROWS = """
insert into aioqueue.job (id, type, payload) select gen_random_uuid(), 'a', '{}' from generate_series(1, 20);
update aioqueue.job set priority = 1;
insert into aioqueue.lease (worker, expires_at) values ('a', now());
insert into aioqueue.event (kind, job_id, chain_id, type, attempt, claims)
    select 'enqueued', id, id, 'a', 0, 0 from aioqueue.job
"""

CHANGES = {
    "trigger": "alter table aioqueue.event disable trigger user",
    "function": "create function aioqueue.f() returns int language sql as 'select 1'",
    "type": "create type public.mood as enum ('fine')",
    "index": "create index on aioqueue.job (attempt)",
    "table": "create table public.other ()",
    "table that's gone": "create table public.other (); drop table public.other",
    "schema": "create schema other",
    "column": "alter table aioqueue.job add column other int",
    "storage": "alter table aioqueue.job set (autovacuum_enabled = off)",
    "constraint": "alter table aioqueue.job add constraint short check (length(type) < 9)",
    "setting": "alter database {name} set timezone = 'Asia/Tokyo'",
    "setting of a role": "alter role postgres in database {name} set timezone = 'Asia/Tokyo'",
    "limit": "alter database {name} connection limit 100",
    "right to connect": "revoke connect on database {name} from public",
    "right to a function": "revoke execute on function pg_notify(text, text) from public",
    "right to a table": "grant select on aioqueue.job to public",
    "default right": "alter default privileges in schema aioqueue grant select on tables to public",
    "migration": "delete from aioqueue.migration",
    "many rows": "insert into aioqueue.subscriber select gen_random_uuid(), now() from generate_series(1, 2000)",
    "statistics": f"{ROWS}; analyze aioqueue.job",
    "counts": "alter table aioqueue.job set (fillfactor = 50); select pg_stat_reset()",
    "no database": "drop database {name} with (force)",
}


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def exists(databases: Databases, url: str) -> bool:
    return bool(execute(databases.url, f"select 1 from pg_database where datname = '{name_of(url)}'"))


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All that a test may come to see of what was there before it."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "select oid::regclass::text from pg_class where relnamespace = 'aioqueue'::regnamespace and relkind = 'r'"
        ).fetchall()
        found = {str(table): connection.execute(f"select * from {table}".encode()).fetchall() for [table] in sorted(tables)}
        for name, query in {
            "sequences": "select sequencename, last_value from pg_sequences order by 1",
            "estimates": "select oid::regclass::text, relpages, reltuples from pg_class where oid >= 16384 order by 1",
            "counts": "select relname, n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup from pg_stat_user_tables order by 1",
            "deadlocks": "select deadlocks, conflicts from pg_stat_database where datname = current_database()",
        }.items():
            found[name] = connection.execute(query.encode()).fetchall()
    return found


def test_rows_are_gone(postgres_databases: Databases) -> None:
    with postgres_databases.fresh() as url:
        fresh = contents(url)
    with postgres_databases.reused() as url:
        execute(url, ROWS)
        assert contents(url) != fresh
    for _ in range(2):
        with postgres_databases.reused() as again:
            assert again == url
            assert contents(again) == fresh
            execute(again, ROWS)
            assert execute(again, "select id from aioqueue.lease") == [(1,)]


@pytest.mark.parametrize("used", [0, 1], ids=["new", "used"])
def test_more_than_rows(postgres_databases: Databases, used: int) -> None:
    """In a database's first use, and in a later one."""
    with postgres_databases.reused() as first:
        execute(first, "alter table aioqueue.job set (fillfactor = 50)")
    assert not exists(postgres_databases, first)
    for _ in range(used):
        with postgres_databases.reused() as url:
            execute(url, ROWS)
    with postgres_databases.reused() as url:
        execute(url, "alter table aioqueue.job set (fillfactor = 50)")
    assert not exists(postgres_databases, url)


# They are found as others are that stay: by the count of what was written to the catalogs, or that of settings.
SOAKED = {
    "function",
    "table",
    "schema",
    "column",
    "storage",
    "constraint",
    "setting of a role",
    "right to a table",
    "default right",
}


@pytest.mark.parametrize("change", [pytest.param(each, marks=[pytest.mark.soak] if each in SOAKED else []) for each in CHANGES])
def test_changes(postgres_databases: Databases, change: str) -> None:
    with postgres_databases.reused() as url:
        psycopg.connect(url).close()
        at = postgres_databases.url if change == "no database" else url
        execute(at, CHANGES[change].replace("{name}", name_of(url)))
    assert not exists(postgres_databases, url)


def test_nobody_may_be_left(postgres_databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_databases, "_patience", 0.1)
    with pytest.raises(AssertionError, match="left over"), postgres_databases.reused() as url:
        connection = psycopg.connect(url)
    assert not exists(postgres_databases, url)
    connection.close()


def test_a_lost_connection_is_replaced(postgres_databases: Databases) -> None:
    with postgres_databases.fresh():
        kept = "query like 'create database%' and pid <> pg_backend_pid()"
        ended = execute(postgres_databases.url, f"select pg_terminate_backend(pid, 10000) from pg_stat_activity where {kept}")
        assert ended == [(True,)]
    with postgres_databases.fresh() as url:
        assert exists(postgres_databases, url)
