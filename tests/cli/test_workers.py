"""`aioqueue workers`, on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio

from aioqueue import Client
from tests.cli.jobs import greet

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke


def test_nobody_works(invoke: Invoke) -> None:
    invoke("migrate")
    assert invoke("workers").stdout.startswith("no workers in ")
    assert json.loads(invoke("workers", "--json").stdout) == {"leases": []}


def test_who_works_on_what(invoke: Invoke, url: str) -> None:
    async def three_leases() -> None:
        async with Client(url) as client:
            await client.enqueue(greet("Ada"))
            lease_id = await client.store.open_lease("forged\nline", 3600, types=["jobs.greet"], slots=4)
            assert len(await client.store.claim(lease_id, ["jobs.greet"], 1)) == 1
            await client.store.open_lease("forged\nline", 3600, extra=True, types=["slow"], slots=4)
            await client.store.open_lease("of an older version", 3600)

    anyio.run(three_leases)
    header, *rows = invoke("workers").stdout.splitlines()
    assert header.split() == ["worker", "since", "lease", "running", "slots", "types"]
    assert len(rows) == 3
    shown = {row.rsplit("  ", 1)[1].strip(): row for row in rows}
    assert "s left" in shown["jobs.greet"]
    assert shown["jobs.greet"].split()[-3:] == ["1", "4", "jobs.greet"]
    assert shown["slow"].split()[-2:] == ["shared", "slow"]
    assert shown["?"].startswith("of an older version")

    leases = json.loads(invoke("workers", "--json").stdout)["leases"]
    (busy,) = [each for each in leases if each["running"]]
    assert (busy["worker"], busy["types"], busy["slots"], busy["alive"]) == ("forged\nline", ["jobs.greet"], 4, True)


def test_who_is_the_only_one_of_a_name(invoke: Invoke, url: str) -> None:
    async def two_leases() -> None:
        async with Client(url) as client:
            await client.store.open_lease("the one", 3600, singleton="reports")
            await client.store.open_lease("one of many", 3600)

    anyio.run(two_leases)
    header, *rows = invoke("workers").stdout.splitlines()
    assert header.endswith("alone as")
    assert [row.split()[-1] == "reports" for row in rows] == [row.startswith("the one") for row in rows]
    leases = json.loads(invoke("workers", "--json").stdout)["leases"]
    assert {each["worker"]: each["singleton"] for each in leases} == {"the one": "reports", "one of many": None}
