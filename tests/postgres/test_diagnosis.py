"""What `aioqueue doctor` sees of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from aioqueue import Verdict
from aioqueue.postgres import _diagnosis_notifications, make_store
from aioqueue.postgres._diagnosis import diagnose
from aioqueue.postgres._diagnosis_access import server
from aioqueue.postgres._diagnosis_connection import Look
from aioqueue.postgres._diagnosis_vacuum import dead_rows, judge_slots, old_transactions, prepared_transactions
from aioqueue.postgres._lease_rights import WORKER
from aioqueue.postgres._options import read_options
from tests.pgbouncer import Bouncer, program
from tests.postgres.test_rights import role_with
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import Finding
    from tests.postgres_server import Server

pytestmark = pytest.mark.anyio

TROUBLED = {Verdict.WARNING, Verdict.PROBLEM}


async def found(url: str, check: str) -> Finding:
    """The only finding of a check."""
    (finding,) = [each for each in await make_store(url).diagnose() if each.check == check]
    return finding


@pytest.fixture
async def look(postgres_url: str) -> AsyncIterator[Look]:
    opened = Look(read_options(postgres_url, {}).source)
    yield opened
    await opened.close()


@pytest.mark.parametrize("fixture", ["postgres_url", "postgres15_url"])
async def test_all_is_well(request: pytest.FixtureRequest, fixture: str) -> None:
    url: str = request.getfixturevalue(fixture)
    execute(url, "select pg_stat_reset()")
    findings = {each.check: each for each in await make_store(url).diagnose()}
    assert len(findings) == 15
    # What other tests do on this server at the same time, and how it is set up for tests, isn't for this one to judge.
    others = {"durability", "connections", "old_transactions", "prepared_transactions", "replication_slots"}
    assert [each for each in findings.values() if each.check not in others and each.verdict is not Verdict.OK] == []
    assert Verdict.UNKNOWN not in {each.verdict for each in findings.values()}
    assert "postgres" in findings["connection"].seen


# -- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["database", "port"])
async def test_what_cant_be_reached_is_the_only_finding(postgres_url: str, wrong: str) -> None:
    parts = urlsplit(postgres_url)
    port, database = ("1", parts.path) if wrong == "port" else (parts.port, "/isnt_there")
    url = parts._replace(netloc=f"postgres:hunter2@{parts.hostname}:{port}", path=database).geturl()
    (finding,) = await make_store(url).diagnose()
    assert (finding.check, finding.verdict) == ("connection", Verdict.PROBLEM)
    assert "hunter2" not in repr(finding)


async def test_a_server_that_never_answers(unused_port_url: str) -> None:
    options = read_options(unused_port_url, {})
    (finding,) = await diagnose(options, longest=0.6)
    assert finding.verdict is Verdict.PROBLEM
    assert "no answer" in finding.seen


@pytest.fixture
async def unused_port_url() -> AsyncIterator[str]:
    """A server that accepts, and says nothing."""
    stop = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    yield f"postgresql://nobody@127.0.0.1:{server.sockets[0].getsockname()[1]}/none"
    stop.set()
    server.close()


async def test_a_server_that_takes_no_writes(postgres_url: str) -> None:
    database = urlsplit(postgres_url).path.removeprefix("/")
    execute(postgres_url, f"alter database {database} set default_transaction_read_only = on")
    finding = await found(postgres_url, "server")
    assert finding.verdict is Verdict.PROBLEM
    assert "default_transaction_read_only" in finding.advice


class Answers:
    """Stands in for a server that the tests don't have."""

    def __init__(self, *row: object) -> None:
        self._row = row

    async def row(self, _sql: str) -> tuple[object, ...]:
        return self._row


@pytest.mark.parametrize(
    ("row", "verdict", "text"),
    [
        (("18.1", 18, True, True), Verdict.PROBLEM, "standby"),
        (("12.4", 12, False, False), Verdict.WARNING, "12.4"),
        (("15.0", 15, False, False), Verdict.OK, "15.0"),
    ],
)
async def test_standbys_and_old_servers(row: tuple[object, ...], verdict: Verdict, text: str) -> None:
    (finding,) = await server(cast("Look", Answers(*row)))
    assert (finding.verdict, text in finding.seen) == (verdict, True)


async def test_no_schema_and_an_old_and_a_newer_one(empty_postgres_url: str, postgres_url: str) -> None:
    missing = await found(empty_postgres_url, "schema")
    assert (missing.verdict, "`aioqueue migrate` as a role that may" in missing.advice) == (Verdict.PROBLEM, True)
    rights = await found(empty_postgres_url, "rights")
    assert (rights.verdict, "tables" in rights.seen) == (Verdict.UNKNOWN, True)
    execute(postgres_url, "insert into aioqueue.migration (number, name, oldest_code) values (9998, '9998_harmless', 1)")
    newer = await found(postgres_url, "schema")
    assert (newer.verdict, "9998_harmless" in newer.seen) == (Verdict.OK, True)
    execute(postgres_url, "insert into aioqueue.migration (number, name, oldest_code) values (9999, '9999_later', 9999)")
    assert (await found(postgres_url, "schema")).verdict is Verdict.PROBLEM
    execute(postgres_url, "delete from aioqueue.migration where number > 3")
    old = await found(postgres_url, "schema")
    assert (old.verdict, "0004_lease_facts" in old.seen) == (Verdict.PROBLEM, True)


async def test_rights_that_are_missing(postgres_url: str) -> None:
    async with role_with(postgres_url, WORKER) as (role, url):
        enough = await found(url, "rights")
        assert enough.verdict is Verdict.OK
        assert "may not migrate" in enough.seen
        assert "retry or delete" in enough.seen
        execute(postgres_url, f"revoke delete on aioqueue.job from {role}")
        lacking = await found(url, "rights")
        assert lacking.verdict is Verdict.PROBLEM
        assert lacking.advice == f'GRANT DELETE ON "aioqueue".job TO {role};'
        execute(postgres_url, f"revoke usage on schema aioqueue from {role}")
        findings = {each.check: each for each in await make_store(url).diagnose()}
        assert "USAGE ON SCHEMA" in findings["rights"].advice
        # A check that can't be made stops only itself.
        assert findings["schema"].verdict is Verdict.UNKNOWN
        assert findings["dead_rows"].verdict is Verdict.OK


async def test_a_check_that_waits_stops_only_itself(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("lock table aioqueue.migration")
        findings = {each.check: each for each in await diagnose(read_options(postgres_url, {}), longest=2.0)}
    assert findings["schema"].verdict is Verdict.UNKNOWN
    assert "no answer within 2 s" in findings["schema"].seen
    assert findings["rights"].verdict is Verdict.OK
    assert len(findings) == 15


async def test_the_owner_may_do_all(postgres_url: str) -> None:
    assert "may not" not in (await found(postgres_url, "rights")).seen
    execute(postgres_url, "revoke execute on all functions in schema aioqueue from public")
    async with role_with(postgres_url, WORKER) as (_, url):
        _, finding = [each for each in await make_store(url).diagnose() if each.check == "rights"]
        assert (finding.verdict, "enqueue_v1" in finding.seen) == (Verdict.WARNING, True)


# -- settings and clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "check", "verdict"),
    [
        ("synchronous_commit = off", "durability", Verdict.WARNING),
        ("statement_timeout = '2s'", "timeouts", Verdict.WARNING),
        ("statement_timeout = '60s'", "timeouts", Verdict.OK),
        ("idle_in_transaction_session_timeout = '1s'", "timeouts", Verdict.WARNING),
        ("idle_session_timeout = '10s'", "timeouts", Verdict.WARNING),
    ],
)
async def test_settings_that_hurt(postgres_url: str, setting: str, check: str, verdict: Verdict) -> None:
    name = setting.partition(" ")[0]
    before = [each for each in await make_store(postgres_url).diagnose() if each.check == check and name in each.seen]
    assert [each for each in before if each.verdict in TROUBLED] == []
    execute(postgres_url, f"alter database {urlsplit(postgres_url).path.removeprefix('/')} set {setting}")
    (finding,) = [
        each for each in await make_store(postgres_url).diagnose() if each.check == check and each.seen.find(name) >= 0
    ]
    assert finding.verdict is verdict


async def test_connections_that_are_left(postgres_url: str) -> None:
    assert (await found(postgres_url, "connections")).verdict is Verdict.OK
    execute(postgres_url, f"alter database {urlsplit(postgres_url).path.removeprefix('/')} connection limit 5")
    finding = await found(postgres_url, "connections")
    assert (finding.verdict, "of the 5 that it may have" in finding.seen) == (Verdict.WARNING, True)


async def test_connections_that_a_limit_leaves(postgres_url: str) -> None:
    """The limit alone is wide enough; what is in use of it isn't."""
    async with role_with(postgres_url, WORKER) as (role, url), AsyncExitStack() as held:
        execute(postgres_url, f"alter role {role} connection limit 20")
        assert "of the 20 that it may have" in (await found(url, "connections")).seen
        for _ in range(15):
            held.push_async_callback((await asyncpg.connect(url)).close)
        finding = await found(url, "connections")
        assert finding.verdict is Verdict.WARNING
        assert "the role has 16 of the 20 that it may have" in finding.seen
        execute(postgres_url, f"alter role {role} connection limit 200")
        database = urlsplit(postgres_url).path.removeprefix("/")
        execute(postgres_url, f"alter database {database} connection limit 18")
        finding = await found(url, "connections")
        assert finding.verdict is Verdict.WARNING
        assert re.search(r"the database has 1\d of the 18 that it may have", finding.seen)


async def test_autovacuum_that_is_off(postgres_url: str) -> None:
    execute(postgres_url, "alter table aioqueue.job set (autovacuum_enabled = off)")
    finding = await found(postgres_url, "autovacuum")
    assert (finding.verdict, finding.seen) == (Verdict.WARNING, "autovacuum is off for job")


@pytest.mark.parametrize(("ahead", "text"), [(30.0, "30.0 s ahead of"), (-3600.0, "s behind"), (1.0, "")])
async def test_clocks_that_differ(postgres_url: str, ahead: float, text: str) -> None:
    findings = await diagnose(read_options(postgres_url, {}), now=lambda: time.time() + ahead)
    (finding,) = [each for each in findings if each.check == "clock"]
    assert finding.verdict is (Verdict.WARNING if text else Verdict.OK)
    assert text in finding.seen


# -- what holds back vacuum -------------------------------------------------------------------------------------------


async def test_an_old_transaction_is_named(postgres_url: str, look: Look) -> None:
    connection = await asyncpg.connect(postgres_url, server_settings={"application_name": "forgotten\nreport"})
    try:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.fetch("SELECT 1")
        assert [each.verdict for each in await old_transactions(look)] == [Verdict.OK]
        (finding,) = await old_transactions(look, old=0.0)
        assert finding.verdict is Verdict.WARNING
        assert f"pid {connection.get_server_pid()}," in finding.seen
        assert "forgotten" in finding.seen
        assert "idle in transaction" in finding.seen
        assert "\n" not in finding.seen
        await transaction.rollback()
    finally:
        await connection.close()
    assert [each.verdict for each in await old_transactions(look, old=0.0)] == [Verdict.OK]


async def test_what_a_role_may_not_see_is_said(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with role_with(postgres_url, WORKER) as (role, url):
        mine = Look(read_options(url, {}).source)
        try:
            (finding,) = await old_transactions(mine, old=0.0)
            assert finding.verdict is Verdict.UNKNOWN
            execute(postgres_url, f"grant pg_read_all_stats to {role}")
            assert (await old_transactions(mine, old=0.0))[0].verdict is Verdict.OK
        finally:
            await mine.close()
            await connection.close()


async def test_a_prepared_transaction_is_named(own_postgres: Server) -> None:
    url = own_postgres.url()
    execute(url, "alter system set max_prepared_transactions = 2")
    own_postgres.restart()
    with psycopg.connect(url) as connection:
        connection.execute("create table mine ()")
        connection.execute("prepare transaction 'left behind'")
    look = Look(read_options(url, {}).source)
    try:
        assert [each.verdict for each in await prepared_transactions(look)] == [Verdict.OK]
        (finding,) = await prepared_transactions(look, old=0.0)
        assert (finding.verdict, "'left behind'" in finding.seen) == (Verdict.WARNING, True)
    finally:
        await look.close()
        execute(url, "rollback prepared 'left behind'")


def test_slots_that_hold_back_vacuum() -> None:
    (fine,) = judge_slots([("near", True, 10)])
    assert fine.verdict is Verdict.OK
    gone, behind = judge_slots([("gone", False, 10), ("far_behind", True, 5_000_000)])
    assert (gone.verdict, behind.verdict) == (Verdict.WARNING, Verdict.WARNING)
    assert "nobody" in gone.seen
    assert "5,000,000" in behind.seen


async def test_dead_rows(postgres_url: str, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.postgres._diagnosis_vacuum._MANY_DEAD_ROWS", 100)
    execute(postgres_url, "alter table aioqueue.migration set (autovacuum_enabled = off)")
    execute(postgres_url, "insert into aioqueue.migration select n, 'n', 1 from generate_series(1000, 2000) as n")
    execute(postgres_url, "delete from aioqueue.migration where number >= 1000")
    schema = read_options(postgres_url, {}).schema
    async with asyncio.timeout(60):  # the server's statistics come a moment later
        while (finding := (await dead_rows(look, schema))[0]).verdict is Verdict.OK:
            await asyncio.sleep(0.05)
    assert "migration has 1,001 dead rows" in finding.seen


# -- notifications and poolers ----------------------------------------------------------------------------------------


async def test_notifications_that_dont_arrive(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnosis_notifications, "notify_statements", lambda _: {"notify": "SELECT $1::text"})
    options = read_options(postgres_url, {})
    look = Look(options.source)
    try:
        (finding,) = await _diagnosis_notifications.notifications(look, options, heard_within=0.1)
        assert finding.verdict is Verdict.WARNING
        (off,) = await _diagnosis_notifications.notifications(look, read_options(postgres_url, {"notify": False}))
        assert off.verdict is Verdict.OK
    finally:
        await look.close()


@pytest.mark.skipif(program() is None, reason="PgBouncer isn't installed (AIOQUEUE_TEST_PGBOUNCER may name it)")
async def test_behind_pgbouncer(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnosis_notifications, "_HEARD_SECONDS", 1.0)
    with Bouncer(postgres_url) as bouncer:
        assert (await found(f"{bouncer.url}?statement_cache_size=1", "pooler")).verdict is Verdict.WARNING
        said = {each.check: each for each in await make_store(bouncer.url, pgbouncer=True).diagnose()}
        assert (said["pooler"].verdict, "is said" in said["pooler"].seen) == (Verdict.OK, True)
        assert said["notifications"].verdict is Verdict.WARNING
        direct = {
            each.check: each.verdict
            for each in await make_store(bouncer.url, pgbouncer=True, listen_url=postgres_url).diagnose()
        }
        assert direct["notifications"] is Verdict.OK
        assert direct["rights"] is Verdict.OK
