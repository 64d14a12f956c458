"""`enqueue_v2` and unique keys, beside the cases of all stores: many connections at once, bad input, and the errors' codes."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from aioqueue.abc import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._unique import Unique
from tests.postgres.sql_producer import enqueue, sql_producer
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

pytestmark = pytest.mark.anyio

KEYED = {"type": "a", "key": "k"}

_KEPT = "id, type, priority, run_at, attempt, claims, reschedules, position, key, created_at, tags, metadata, payload, errors"
FINISH = f"""with gone as (delete from aioqueue.job returning *)
    insert into aioqueue.archive ({_KEPT}, state, finished_at) select {_KEPT}, 4, now() from gone"""
"""All that is live completes."""


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


def call(url: str, jobs: object) -> list[tuple[UUID, bool]]:
    """As somebody in psql does."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("select * from aioqueue.enqueue_v2(%s::json)", (json.dumps(jobs),)).fetchall()


def refused(url: str, jobs: object) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as caught:
        call(url, jobs)
    return caught.value.diag


# -- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"until": "started"}, {"window": 60}, {"on_conflict": "replace", "window": 60}], ids=str
)
async def test_many_connections_and_one_key(url: str, options: dict[str, Any]) -> None:
    """Of 20 connections that roll a third of their transactions back one job remains, which all that committed were told of."""
    told = set[UUID]()

    async def produce(connection: asyncpg.Connection[Any], seed: int) -> None:
        chance = random.Random(seed)
        for number in range(5):
            wanted = json.dumps({**KEYED, "unique": options, "payload": {"n": seed, "number": number}})
            transaction = connection.transaction()
            await transaction.start()
            try:
                ((id_, _),) = await connection.fetch("select * from aioqueue.enqueue_v2($1::text::json)", wanted)
                commits = chance.random() > 0.3
            except asyncpg.LockNotAvailableError:  # only of one that is to be replaced
                assert "on_conflict" in options
                commits = False
            if commits:
                await transaction.commit()
                told.add(id_)
            else:
                await transaction.rollback()

    connections = await asyncio.gather(*(asyncpg.connect(url) for _ in range(20)))
    try:
        await asyncio.gather(*(produce(each, seed) for seed, each in enumerate(connections)))
    finally:
        await asyncio.gather(*(each.close() for each in connections))
    assert told == {row[0] for row in execute(url, "select id from aioqueue.job")}
    assert len(told) == 1
    windows = execute(url, "select chain_id from aioqueue.dedup")
    assert {row[0] for row in windows} == (told if "window" in options else set())


async def test_several_keys_in_two_orders(url: str) -> None:
    """They're taken in one order, so nobody meets a deadlock."""
    keys = [f"k{number}" for number in range(10)]
    codes = set[str]()

    async def produce(connection: asyncpg.Connection[Any], seed: int) -> None:
        for number in range(5):
            ordered = keys if (seed + number) % 2 else keys[::-1]
            options = {"on_conflict": "return" if seed % 3 else "raise"}
            wanted = json.dumps([{"type": "a", "key": key, "unique": options} for key in ordered])
            try:
                await connection.fetch("select * from aioqueue.enqueue_v2($1::text::json)", wanted)
            except asyncpg.PostgresError as error:
                codes.add(error.sqlstate)

    connections = await asyncio.gather(*(asyncpg.connect(url) for _ in range(10)))
    try:
        await asyncio.gather(*(produce(each, seed) for seed, each in enumerate(connections)))
    finally:
        await asyncio.gather(*(each.close() for each in connections))
    assert codes == {"AQ003"}
    assert execute(url, "select count(*), count(distinct key) from aioqueue.job") == [(10, 10)]


async def test_a_running_holder_is_waited_for_briefly(url: str) -> None:
    """Somebody's open transaction holds the row that is to be replaced; what limits waits is as before the call."""
    ((first, _),) = call(url, {**KEYED, "unique": True})
    async with connected(url) as other, other.transaction():
        await other.execute("select from aioqueue.job for update")
        assert refused(url, {**KEYED, "unique": {"on_conflict": "replace"}}).sqlstate == "55P03"
    setting = "current_setting('lock_timeout')"
    wanted = json.dumps({**KEYED, "unique": {"on_conflict": "replace"}})
    rows = execute(url, f"select {setting}, (select id from aioqueue.enqueue_v2('{wanted}')), {setting}")
    assert rows == [("0", first, "0")]


async def test_a_chosen_id_that_was_done_with_while_it_was_waited_for(url: str) -> None:
    """Another's transaction, which has stored it, ends when the job has run, too: it's that one."""
    chosen = {"type": "a", "id": str(new_id()), "chosen_id": True}
    async with connected(url) as other:
        async with other.transaction():
            await other.fetch("select * from aioqueue.enqueue_v2($1::text::json)", json.dumps(chosen))
            late = asyncio.ensure_future(asyncio.to_thread(call, url, chosen))
            while not await other.fetch("select from pg_locks where not granted"):
                await asyncio.sleep(0)
            await other.execute(FINISH)
        assert [created for _, created in await late] == [False]
    assert execute(url, "select count(*) from aioqueue.job") == [(0,)]


# -- who holds a key --------------------------------------------------------------------------------------------------


def finish(url: str) -> None:
    """All that is live completes."""
    execute(url, FINISH)


async def test_a_key_that_was_freed_by_a_start(url: str) -> None:
    """Nobody takes the one that runs for its holder, whatever else is asked."""
    call(url, {**KEYED, "unique": {"until": "started"}})
    execute(url, "update aioqueue.job set state = 2, claims = 1, attempt = 1")
    for fields in ({"unique": {"window": 60}}, {"unique": True, "chosen_id": True, "id": str(new_id())}):
        ((stored, created),) = call(url, {**KEYED, **fields})
        assert created
        execute(url, f"delete from aioqueue.job where id = '{stored}'")


async def test_a_window_beside_an_unfinished_holder(url: str) -> None:
    """A holder that was enqueued without a window counts, though another's window isn't over; replaced, it has one itself."""
    call(url, {**KEYED, "unique": {"window": 60}})
    finish(url)
    ((holder, created),) = call(url, {**KEYED, "unique": True})
    assert created
    replaces = {**KEYED, "unique": {"window": 60, "on_conflict": "replace"}}
    assert call(url, replaces) == [(holder, False)]
    assert execute(url, "select chain_id from aioqueue.dedup") == [(holder,)]
    finish(url)
    assert call(url, replaces) == [(holder, False)]


async def test_a_window_under_an_older_name(url: str) -> None:
    ((first, _),) = call(url, {**KEYED, "unique": {"window": 60}})
    finish(url)
    renamed = {**KEYED, "type": "c", "aliases": ["b", "a"], "unique": {"window": 60}}
    assert call(url, renamed) == [(first, False)]
    assert refused(url, {**renamed, "unique": {"window": 60, "on_conflict": "raise"}}).message_detail == str(first)
    assert execute(url, "select count(*) from aioqueue.job") == [(0,)]


# -- what can't be stored ---------------------------------------------------------------------------------------------


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"unique": True, "key": None}, "unique needs a key"),
    "until": ({"unique": {"until": "done"}}, 'until must be "started" or "finished", not "done"'),
    "on_conflict": ({"unique": {"on_conflict": "x"}}, 'on_conflict must be "return", "replace" or "raise", not "x"'),
    "negative window": ({"unique": {"window": -1}}, "window must be a positive number of seconds"),
    "endless window": ({"unique": {"window": "infinity"}}, "window must be a positive number of seconds"),
    "both": ({"unique": {"until": "started", "window": 1}}, "a window counts what has finished"),
    "unknown": ({"unique": {"untill": "started"}}, "unique has until, window and on_conflict, and no untill"),
    "text": ({"unique": "often"}, 'invalid input syntax for type boolean: "often"'),
    "max_delay": ({"max_delay": -1}, "max_delay must be a number of seconds"),
    "max_delay that waits": ({"max_delay": 1, "blockers": [{"chain_id": str(new_id())}]}, "max_delay is for jobs that wait"),
    "chosen": ({"chosen_id": True}, "chosen_id needs an id"),
    "no type": ({"type": None}, "a job needs a type"),
}


@pytest.mark.parametrize("wrong", BAD)
async def test_bad_input(url: str, wrong: str) -> None:
    """Nothing is stored, and the error says what is wrong; its code is that of a value that's at fault."""
    fields, message = BAD[wrong]
    found = refused(url, [{"type": "b"}, {**KEYED, **fields}])
    assert (found.message_primary or "").startswith(message)
    assert (found.sqlstate or "").startswith("22")
    assert execute(url, "select count(*) from aioqueue.job") == [(0,)]


async def test_a_key_that_is_held(url: str) -> None:
    """The error names the key and, in its detail alone, the chain; so it does in a trigger, whose row isn't written then."""
    ((holder, _),) = call(url, {**KEYED, "unique": True})
    found = refused(url, [{"type": "b"}, {**KEYED, "unique": {"on_conflict": "raise"}}])
    message = f'the key "k" of a is held by the chain {holder}'
    assert (found.sqlstate, found.message_primary, found.message_detail) == ("AQ003", message, str(holder))
    execute(
        url,
        """
        create table orders (key text);
        create or replace function public.order_job() returns trigger language plpgsql as $$
        begin
            perform aioqueue.enqueue_v2(json_build_object('type', 'a', 'key', new.key,
                                                          'unique', json_build_object('on_conflict', 'raise')));
            return null;
        end $$;
        create trigger order_job after insert on orders for each row execute function public.order_job();
        """,
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("insert into orders values ('free')")
        with pytest.raises(psycopg.Error, match="is held by the chain") as caught:
            connection.execute("insert into orders values ('k')")
        assert caught.value.sqlstate == "AQ003"
    assert execute(url, "select key from aioqueue.job order by key") == [("free",), ("k",)]
    assert execute(url, "select key from orders") == [("free",)]


async def test_an_id_of_another_type(url: str) -> None:
    """Also of a finished job. Without `chosen_id` only what is unfinished is looked at, whatever its type."""
    chosen = {"type": "a", "id": str(new_id()), "chosen_id": True}
    assert [created for _, created in call(url, [chosen, chosen])] == [True, False]
    finish(url)
    assert [created for _, created in call(url, chosen)] == [False]
    found = refused(url, {**chosen, "type": "b"})
    assert (found.sqlstate, found.message_detail) == ("AQ004", chosen["id"])
    assert [created for _, created in call(url, {**chosen, "type": "b", "aliases": ["a"]})] == [False]
    assert [created for _, created in call(url, {**chosen, "chosen_id": False})] == [True]


# -- circles ----------------------------------------------------------------------------------------------------------


async def test_circles(url: str) -> None:
    """A job that is replaced may not come to wait for itself, through what is there or through the rest of its batch."""
    replace = Unique(on_conflict="replace")
    async with opened(url) as store, connected(url) as connection, sql_producer(url) as producer:
        holder = job(key="k", unique=replace)
        behind = job("b", blockers=(NewBlocker(holder.id),))
        await producer.insert([holder, behind])
        for waits in (holder.id, behind.id):
            with pytest.raises(asyncpg.PostgresError) as caught:
                await enqueue(connection, store, [job(key="k", unique=replace, blockers=(NewBlocker(waits),))])
            assert caught.value.sqlstate == "AQ002"
        first = job(key="l", unique=replace)
        middle = job("b", blockers=(NewBlocker(first.id),))
        with pytest.raises(asyncpg.PostgresError) as caught:
            await enqueue(connection, store, [first, middle, job(key="l", unique=replace, blockers=(NewBlocker(middle.id),))])
        assert caught.value.sqlstate == "AQ002"
        free = job("c")
        last = job(key="k", unique=replace, blockers=(NewBlocker(free.id),))
        results = await enqueue(connection, store, [free, last])
        assert [(each.id, each.replaced) for each in results] == [(free.id, False), (holder.id, True)]
        async with connection.transaction(isolation="repeatable_read"):
            with pytest.raises(asyncpg.InvalidTransactionStateError, match="begin it as READ COMMITTED"):
                await enqueue(connection, store, [job(key="k", unique=replace, blockers=(NewBlocker(free.id),))])


# -- what isn't needed ------------------------------------------------------------------------------------------------


async def test_what_was_written_before_it_was_known_that_nobody_needs_it(url: str) -> None:
    """An implied job has replaced others, and has its own key: all is as it was, whatever the order of the hashes is."""
    for keys in (("one", "two"), ("two", "one")):
        execute(url, "delete from aioqueue.job")
        ((held, _), (waiting, _)) = call(
            url,
            [{"type": "a", "key": keys[0], "unique": True}, {"type": "a", "key": keys[1], "unique": True, "payload": {"n": 1}}],
        )
        child = {
            "type": "a",
            "id": str(new_id()),
            "key": keys[1],
            "implied": True,
            "payload": {"n": 2},
            "unique": {"on_conflict": "replace"},
        }
        refuses = {**child, "id": str(new_id()), "key": keys[0], "unique": {"on_conflict": "raise"}}
        parent = {
            "type": "a",
            "key": keys[0],
            "unique": True,
            "blockers": [{"chain_id": child["id"]}, {"chain_id": refuses["id"]}],
        }
        rows = [(str(id_), created) for id_, created in call(url, [child, refuses, parent])]
        assert rows == [(child["id"], False), (refuses["id"], False), (str(held), False)]
        assert execute(url, f"select payload::text from aioqueue.job where id = '{waiting}'") == [('{"n": 1}',)]
        needed = {**parent, "key": "three", "blockers": [{"chain_id": child["id"]}]}
        rows = [(str(id_), created) for id_, created in call(url, [child, needed])]
        assert rows[0] == (str(waiting), False)
        assert rows[1][1]
        assert execute(url, f"select payload::text from aioqueue.job where id = '{waiting}'") == [('{"n": 2}',)]
