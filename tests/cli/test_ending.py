"""`jobs complete`, `jobs fail`, and what the commands show and change of jobs that wait for each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client
from tests.cli.jobs import registry

if TYPE_CHECKING:
    from uuid import UUID

    from tests.cli.conftest import Invoke

APP = "tests.cli.jobs:registry"

greet = registry.types["jobs.greet"]


@pytest.fixture
def pair(url: str) -> tuple[UUID, UUID]:
    """A job, and one that waits for it."""

    async def enqueue() -> tuple[UUID, UUID]:
        async with Client(url) as client:
            first = greet(name="a")
            waiting = await client.enqueue(greet(name="b").options(after=[first]))
            return first.id, waiting.id

    return anyio.run(enqueue)


def state(invoke: Invoke, job_id: UUID) -> str:
    shown = json.loads(invoke("jobs", "show", str(job_id), "--json").stdout)
    return str(shown["state"])


def test_a_job_is_completed_by_hand(invoke: Invoke, pair: tuple[UUID, UUID]) -> None:
    first, waiting = pair
    assert invoke("jobs", "complete", str(first), '"hello"', "--yes").stdout == f"{first}  completed\n"
    assert state(invoke, waiting) == "ready"
    again = invoke("jobs", "complete", str(first), "null", "--yes", exit_code=1)
    assert "can't be ended any more: it has completed" in again.stderr
    shown = json.loads(invoke("jobs", "complete", str(waiting), '"x"', "--app", APP, "--json", "--yes").stdout)
    assert shown == {"id": str(waiting), "chain": str(waiting), "type": "jobs.greet", "became": "completed"}


def test_an_output_that_isnt_one_is_refused(invoke: Invoke, pair: tuple[UUID, UUID]) -> None:
    assert "Missing argument 'OUTPUT'" in invoke("jobs", "complete", str(pair[0]), "--yes", exit_code=2).stderr
    assert "isn't JSON" in invoke("jobs", "complete", str(pair[0]), "hello", exit_code=2).stderr
    assert (
        "isn't what jobs.greet declares"
        in invoke("jobs", "complete", str(pair[0]), "5", "--app", APP, "--yes", exit_code=2).stderr
    )
    assert "there is no job" in invoke("jobs", "complete", "0" * 32, "1", "--yes", exit_code=1).stderr
    assert state(invoke, pair[0]) == "ready"


def test_a_job_is_failed_by_hand_and_those_that_wait_with_it(invoke: Invoke, pair: tuple[UUID, UUID]) -> None:
    first, waiting = pair
    assert "empty" in invoke("jobs", "fail", str(first), "--reason", "", exit_code=2).stderr
    assert invoke("jobs", "fail", str(first), "--reason", "no answer", "--yes").stdout == f"{first}  failed\n"
    assert f"it waited for jobs.greet {first}: failed: Fail: no answer" in invoke("jobs", "show", str(waiting)).stdout
    refused = invoke("jobs", "retry", str(waiting), exit_code=1)
    assert "retry that one, with --cascade" in refused.stdout
    invoke("jobs", "retry", str(first), "--cascade")
    assert state(invoke, waiting) == "blocked"


def test_what_a_job_waits_for_is_shown(invoke: Invoke, pair: tuple[UUID, UUID]) -> None:
    first, waiting = pair
    shown = json.loads(invoke("jobs", "show", str(waiting), "--json").stdout)
    assert shown["open_blockers"] == 1
    assert shown["blockers"] == [{"chain": str(first), "type": "jobs.greet", "state": "ready", "needed": True, "told": False}]
    assert f"waits for\n{first}  jobs.greet  ready\n" in invoke("jobs", "show", str(waiting)).stdout
    assert json.loads(invoke("jobs", "show", str(first), "--json").stdout)["dependents"] == [str(waiting)]
    why = invoke("jobs", "why", str(waiting)).stdout
    assert f"blocked: it waits for 1 chain: jobs.greet {first} (ready)" in why
    assert f"`aioqueue jobs why {first}`" in why


def test_what_others_wait_for_is_deleted_only_with_them(invoke: Invoke, pair: tuple[UUID, UUID]) -> None:
    first, waiting = pair
    refused = invoke("jobs", "delete", str(first), "--yes", exit_code=1)
    assert "other unfinished jobs wait for it: --cascade deletes them too" in refused.stdout
    as_json = invoke("jobs", "delete", str(first), "--yes", "--json", exit_code=1).stdout.splitlines()
    assert json.loads(as_json[0]) == {"id": str(first), "became": "blocks"}
    invoke("jobs", "delete", str(first), "--yes", "--cascade")
    assert "there is no job" in invoke("jobs", "show", str(first), exit_code=1).stderr
    assert "no such option" in invoke("jobs", "run-now", str(waiting), "--cascade", exit_code=2).stderr.lower()
