"""URLs: passwords with every character, several hosts, and errors that show nothing of them."""

from __future__ import annotations

import string
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from asyncpg.connect_utils import _parse_connect_dsn_and_args

from aioqueue import Client, ConfigurationError
from aioqueue.postgres import make_store
from aioqueue.postgres._options_address import read_address
from tests.postgres_server import execute

OWN = ("schema", "timeout")
SECRET = "tr0ub4d"


def seen(url: str) -> tuple[Any, Any]:
    """The hosts and the parameters that asyncpg reads."""
    names = [
        "host",
        "port",
        "user",
        "password",
        "passfile",
        "database",
        "ssl",
        "service",
        "servicefile",
        "direct_tls",
        "server_settings",
    ]
    names += ["target_session_attrs", "krbsrvname", "gsslib"]
    return _parse_connect_dsn_and_args(dsn=url, **dict.fromkeys(names))


def password_of(url: str) -> str | None:
    _, parameters = seen(read_address(url, OWN).url)
    password: str | None = parameters.password
    return password


@pytest.mark.parametrize("character", [*string.punctuation, " ", "\t", "\n", "\x00", "\x7f", "ä"])
@pytest.mark.parametrize("where", ["{s}{c}{s}", "{c}{s}", "{s}{c}", "{s}{c}5@{s}", "1{c}{s}=2"])
def test_a_character_in_a_password_arrives_or_is_named(character: str, where: str) -> None:
    password = where.format(c=character, s=SECRET)
    encoded = f"postgresql://app:{quote(password, safe='')}@db.example:5432/shop?schema=jobs"
    assert password_of(encoded) == password
    for database in ("/shop", "/shop?schema=jobs", ""):
        address = error = None
        try:
            address = read_address(f"postgresql://app:{password}@db.example:5432{database}", OWN)
        except ConfigurationError as caught:
            error = str(caught)
        if error is not None:
            assert "%" in error
            assert SECRET not in error
            if ord(character) < 128 and password.count("@") == 0:
                assert f"%{ord(character):02X}" in error
        else:
            assert address is not None
            hosts, parameters = seen(address.url)
            assert hosts == [("db.example", 5432)]
            # What was encoded is decoded, as anywhere.
            assert parameters.password in {password, password.replace("%5", "5")}
            assert address.description == f"postgresql://db.example:5432{database.partition('?')[0]}"


@pytest.mark.parametrize(
    ("hosts", "read"),
    [
        ("h1:5432,h2:5433", [("h1", 5432), ("h2", 5433)]),
        ("h1,h2", [("h1", 5432), ("h2", 5432)]),
        ("[::1]:5000,127.0.0.1", [("::1", 5000), ("127.0.0.1", 5432)]),
    ],
)
def test_several_hosts(hosts: str, read: list[tuple[str, int]]) -> None:
    address = read_address(f"postgresql://u@{hosts}/db?timeout=5&target_session_attrs=read-write", OWN)
    found, parameters = seen(address.url)
    assert found == read
    assert parameters.target_session_attrs.value == "read-write"
    assert address.options == {"timeout": "5"}
    assert address.description == f"postgresql://{hosts}/db"


@pytest.mark.parametrize(
    "url", ["postgresql://u@h:port/db", "postgresql://u@h:0/db", "postgresql://u@[::1/db", "postgresql://u@h:70000/db"]
)
def test_hosts_that_cant_be_read_are_told(url: str) -> None:
    with pytest.raises(ConfigurationError, match="port isn't a number"):
        make_store(url)


def test_what_is_no_url_of_ours_is_told_without_it() -> None:
    for url in (f"mysql://u:{SECRET}@h/db", f"u:{SECRET}@h/db", f"postgresql:{SECRET}"):
        with pytest.raises(ConfigurationError) as caught:
            read_address(url, OWN)
        assert SECRET not in str(caught.value)


@pytest.mark.anyio
async def test_the_first_host_that_answers_is_used(postgres_url: str) -> None:
    before, _, after = postgres_url.partition("@")
    host, _, rest = after.partition("/")
    several = f"{before}@127.0.0.1:1,{host}/{rest}?target_session_attrs=read-write"
    async with Client(several) as client:
        assert (await client.stats()).types == {}


@pytest.mark.anyio
async def test_a_password_of_nothing_but_special_characters_connects(postgres_url: str) -> None:
    password = "#/?@:[]%&=+ ä"
    execute(postgres_url, f"create role odd_password login superuser password '{password}'")
    try:
        _, _, after = postgres_url.partition("@")
        url = f"postgresql://odd_password:{quote(password, safe='')}@{after}"
        async with Client(url) as client:
            assert (await client.stats()).types == {}
        connection = await asyncpg.connect(read_address(url, OWN).url)
        await connection.close()
    finally:
        execute(postgres_url, "drop role odd_password")
