"""Every statement of the store fits the schema, whatever that is called and whatever the session's settings are."""

from __future__ import annotations

import re

import asyncpg
import pytest

from aioqueue.errors import ConfigurationError
from aioqueue.postgres import make_store
from aioqueue.postgres._options_schema import Schema
from tests.postgres.statements import all_statements

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())


async def test_every_statement_can_be_prepared(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(
            "CREATE SCHEMA decoy; CREATE TABLE decoy.job (x integer); CREATE TABLE decoy.lease (x integer)"
        )
        await connection.execute("SET search_path = decoy")
        for name, sql in STATEMENTS.items():
            statement = await connection.prepare(sql)
            used = {int(number) for number in re.findall(r"\$(\d+)", sql)}
            assert used == set(range(1, len(statement.get_parameters()) + 1)), name
    finally:
        await connection.close()


def test_nothing_is_left_of_the_templates() -> None:
    for name, sql in STATEMENTS.items():
        assert "@" not in sql, name


ODD_NAMES = [
    "Jobs-Prod",
    "select",
    'a"b',
    "a'b",
    "x; drop table y; --",
    "ünï",
    "with.dot",
    "$aioqueue$",
    "@schema@",
    "%s\\",
    "é" * 31,
    "x" * 63,
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_quoted(name: str) -> None:
    schema = Schema(name)
    assert schema.render("SELECT 1 FROM @schema@.job") == f"SELECT 1 FROM {schema.quoted}.job"
    assert schema.quoted.strip('"').replace('""', '"') == name.strip('"')
    assert re.fullmatch(r"aioqueue_[0-9a-f]{20}", schema.channel)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "é" * 32, "pg_mine", "\ud800"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        make_store("postgresql://localhost/x", schema=name)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mysql://localhost/x", {}),
        ("postgresql://localhost:port/x", {}),
        ("postgresql://localhost/x", {"colour": "red"}),
        ("postgresql://localhost/x", {"timeout": 0}),
        ("postgresql://localhost/x?timeout=soon", {}),
        ("postgresql://localhost/x?notify=perhaps", {}),
        ("postgresql://localhost/x", {"pool_size": 0}),
        ("postgresql://localhost/x", {"pool": object()}),
        ("postgresql://localhost/x", {"pool": object(), "connect": object()}),
    ],
)
def test_what_cant_be_used_is_refused(url: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        make_store(url, **options)


def test_the_description_has_no_password() -> None:
    store = make_store("postgresql://me:secret@db.example:5433/app?password=secret&schema=Jobs")
    assert store.description == 'postgresql://db.example:5433/app (schema "Jobs")'
