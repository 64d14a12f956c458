"""The SQL function that stores jobs, where they say in which sequence they run."""

from __future__ import annotations

import orjson
import pytest

from aioqueue.vocabulary._gates import SequenceMember
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

pytestmark = pytest.mark.anyio

MEMBERS = """SELECT j.type, m.sequence, m.strict, m.block, j.gates FROM aioqueue.job j
LEFT JOIN aioqueue.gate_member m ON m.chain_id = j.id ORDER BY m.number, j.type"""


def enqueue(url: str, *jobs: dict[str, object]) -> None:
    execute(url, f"SELECT * FROM aioqueue.enqueue_v2('{orjson.dumps(jobs).decode()}')")


async def test_a_name_or_an_object(postgres_url: str) -> None:
    """Members are numbered in the order of the batch; null is the same as nothing."""
    enqueue(
        postgres_url,
        {"type": "a", "sequence": "s"},
        {"type": "b", "sequence": {"name": "s", "strict": True}},
        {"type": "c", "sequence": {"name": "t", "block": True, "strict": None}},
        {"type": "d", "sequence": None},
    )
    assert execute(postgres_url, MEMBERS) == [
        ("a", "s", False, False, []),
        ("b", "s", True, False, []),
        ("c", "t", False, True, []),
        ("d", None, None, None, None),
    ]


async def test_the_order_of_a_batch_with_keys(postgres_url: str) -> None:
    """Those are stored in the order of their keys' hashes, before the others."""
    keys: list[dict[str, object]] = [{"key": str(n), "unique": {"window": 60} if n % 3 else True} for n in range(9)]
    asked: list[dict[str, object]] = [*keys[:5], {}, *keys[5:], {}]
    enqueue(postgres_url, *({"type": f"a{n:02}", "sequence": "s", **each} for n, each in enumerate(asked)))
    assert [row[0] for row in execute(postgres_url, MEMBERS)] == [f"a{n:02}" for n in range(11)]


@pytest.mark.parametrize(
    "odd",
    [5, "", [], "x" * 1025, {}, {"name": 5}, {"name": ""}, {"name": "s", "strict": 1}, {"name": "s", "on_failure": "block"}],
)
async def test_what_is_none_is_refused(postgres_url: str, odd: object) -> None:
    with pytest.raises(Exception, match="sequence must be a name"):
        enqueue(postgres_url, {"type": "a"}, {"type": "a", "sequence": odd})
    assert execute(postgres_url, "SELECT count(*) FROM aioqueue.job") == [(0,)]


async def test_one_that_takes_the_place_of_another_says_in_which_it_is(postgres_url: str) -> None:
    """By the function and by the store: it stays where it was in the same sequence, and otherwise those behind it may come."""
    replaces = {"type": "a", "key": "k", "unique": {"on_conflict": "replace"}}
    enqueue(postgres_url, {**replaces, "sequence": "s"}, {"type": "b", "sequence": "s"})
    enqueue(postgres_url, {**replaces, "sequence": "s"})
    assert [row[:2] for row in execute(postgres_url, MEMBERS)] == [("a", "s"), ("b", "s")]
    enqueue(postgres_url, {**replaces, "sequence": "t"})
    assert [row[:2] for row in execute(postgres_url, MEMBERS)] == [("b", "s"), ("a", "t")]
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        unique = Unique(on_conflict="replace")
        await store.insert([job(key="k", unique=unique, sequence=SequenceMember(name="s"))])
        assert [tuple(row)[:2] for row in await connection.fetch(MEMBERS)] == [("b", "s"), ("a", "s")]
        await store.insert([job(key="k", unique=unique)])
        assert [tuple(row)[:2] for row in await connection.fetch(MEMBERS)] == [("b", "s"), ("a", None)]
        marks = await connection.fetch("SELECT DISTINCT gate FROM aioqueue.gate_mark ORDER BY gate")
        assert [row["gate"] for row in marks] == ["sequence=s", "sequence=t"]
        assert await connection.fetchval("SELECT gates FROM aioqueue.job WHERE type = 'a'") is None
