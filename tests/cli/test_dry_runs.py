"""`aioqueue worker --dry-run`, and what the other commands say of the jobs that it has tried out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, JobState
from tests.cli.dry_jobs import charge, notify
from tests.cli.test_worker import enqueue, jobs, run

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

APP = "tests.cli.dry_jobs:registry"


@pytest.mark.anyio
async def test_a_worker_that_only_tries_jobs_out(url: str) -> None:
    await enqueue(url, charge(1), notify())
    ended = await run(url, APP, "--once", "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert "10 slots for shop.charge, in" in ended.stderr
    assert ": a dry run" in ended.stderr
    charged, notified = await jobs(url)
    assert (charged.output, notified.state) == ("would charge 1", JobState.READY)
    refused = await run(url, APP, "--once", "--types", "shop.notify", AIOQUEUE_DRY_RUN="1")
    assert refused.returncode == 2
    assert "isn't declared dry_run=True" in refused.stderr


async def dry_and_real(url: str) -> tuple[str, str]:
    """A job that a dry run has taken, and one that none has. Returns their ids."""
    async with Client(url) as client:
        handles = [await client.enqueue(charge(amount)) for amount in (1, 2)]
        lease = await client.store.open_lease("tries out", 3600)
        assert len(await client.store.claim(lease, ["shop.charge"], 1, dry_run=True)) == 1
        return str(handles[0].id), str(handles[1].id)


@pytest.fixture
def ids(url: str) -> tuple[str, str]:
    return anyio.run(dry_and_real, url)


def test_listings_say_which_they_are(invoke: Invoke, ids: tuple[str, str]) -> None:
    dry, real = ids
    header, *rows = invoke("jobs", "list").stdout.splitlines()
    assert header.endswith("dry run")
    assert {row.split()[0]: row.split()[-1] == "yes" for row in rows} == {dry: True, real: False}
    listed = [json.loads(line) for line in invoke("jobs", "list", "--json").stdout.splitlines()]
    assert {each["id"]: each.get("dry_run") for each in listed} == {dry: True, real: None}


def test_a_listing_without_any_has_no_column_for_it(invoke: Invoke, ids: tuple[str, str]) -> None:
    assert "dry run" not in invoke("jobs", "list", "--state", "ready").stdout


def test_so_does_one_that_is_shown(invoke: Invoke, ids: tuple[str, str]) -> None:
    dry, real = ids
    assert json.loads(invoke("jobs", "show", dry, "--json").stdout)["dry_run"] is True
    assert "dry_run" not in json.loads(invoke("jobs", "show", real, "--json").stdout)
    assert ["dry_run", "true"] in [line.split() for line in invoke("jobs", "show", dry).stdout.splitlines()]
