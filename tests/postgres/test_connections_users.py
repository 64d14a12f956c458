"""What users do with the connections of their transactions is undone, or told."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from aioqueue.errors import TransactionError
from tests.postgres.stores import job, opened, transact
from tests.postgres_server import execute

pytestmark = pytest.mark.anyio


def ids(url: str) -> set[UUID]:
    return {row[0] for row in execute(url, "select id from aioqueue.job")}


LEFT = {
    "role": "SET ROLE pg_monitor",
    "session authorization": "SET SESSION AUTHORIZATION pg_monitor",
    "prepared statements": "DEALLOCATE ALL",
    "setting": "SET search_path = nowhere; SET default_transaction_read_only = on",
    "temporary table": "CREATE TEMP TABLE left_over (a int)",
    "cursor": "DECLARE left_over CURSOR WITH HOLD FOR SELECT 1",
    "lock": "SELECT pg_advisory_lock(1)",
}


@pytest.mark.parametrize("what", list(LEFT))
async def test_what_a_transaction_leaves_on_its_connection_is_undone(postgres_url: str, what: str) -> None:
    """For every later one on the same connection, and whoever else needs the lock."""
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        await transact(store)
        async with store.transaction() as tx:
            await tx.insert([job()])
            await tx.execute(LEFT[what])
        for _ in range(2):
            await transact(store)
            await store.insert([job()])
            async with store.transaction() as tx:
                await tx.execute(LEFT["temporary table"])
                await tx.execute(LEFT["cursor"])
                assert (await tx.fetch("select current_user::text, current_setting('search_path')"))[0][1] != "nowhere"
        assert execute(postgres_url, "select pg_try_advisory_lock(1)") == [(True,)]


async def test_a_codec_that_a_transaction_leaves_is_of_no_consequence(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        async with store.transaction() as tx:
            await tx.connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=lambda text: "mine")
        async with store.transaction() as tx:
            (new,) = await tx.insert([job()])
            assert (await tx.fetch("select id from aioqueue.job"))[0][0] == new.id


@pytest.mark.parametrize("by_hand", ["ROLLBACK", "ABORT AND CHAIN", "ROLLBACK; BEGIN", "COMMIT", "COMMIT AND CHAIN"])
async def test_a_transaction_that_was_ended_by_hand_ends_with_an_error(postgres_url: str, by_hand: str) -> None:
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        before, after = job(), job()
        with pytest.raises(TransactionError, match="ended inside its block"):
            async with store.transaction() as tx:
                await tx.insert([before])
                await tx.execute(by_hand)
                await tx.insert([after])
        # What a statement commits by hand is committed, and what comes after it in no transaction too.
        chained = "CHAIN" in by_hand or "BEGIN" in by_hand
        expected = {before.id} if "COMMIT" in by_hand else set()
        assert ids(postgres_url) == (expected if chained else expected | {after.id})
        await transact(store)


async def test_savepoints_may_be_used(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False) as store:
        kept, undone = job(), job()
        async with store.transaction() as tx:
            await tx.insert([kept])
            await tx.execute("SAVEPOINT mine")
            await tx.insert([undone])
            with pytest.raises(asyncpg.PostgresError):
                await tx.execute("SELECT 1 / 0")
            await tx.execute("ROLLBACK TO SAVEPOINT mine")
        assert ids(postgres_url) == {kept.id}
