"""Commands that look at chains and change them, by any step's id."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import anyio

from aioqueue import Call, Client, Fail, Job, JobState, ReasonCode, Registry, Worker, done

if TYPE_CHECKING:
    from uuid import UUID

    from tests.cli.conftest import Invoke

HOUR = 3600.0

registry = Registry(prefix="chains.")


@registry.job
async def load(then: str) -> Call[int]:
    return check(then)


@registry.job
async def check(then: str) -> Call[int]:
    if then == "wait":
        return check("done").options(delay=HOUR)
    if then == "fail":
        raise Fail("nothing there\n\x1b[31m")
    return done(7)


def _run(url: str, then: str, *, unique: bool = False) -> list[Job]:
    """A chain as far as it gets; gives its steps."""

    async def work() -> list[Job]:
        async with Client(url) as client:
            handle = await client.enqueue(load(then).options(key="k", unique=unique))
            await Worker(client, registry).run_once()
            return list((await client.chain_jobs(handle)).jobs)

    return anyio.run(work)


def _end(url: str, job_id: UUID) -> Job:
    async def look() -> Job:
        async with Client(url) as client:
            return await client.chain(job_id)

    return anyio.run(look)


def test_a_chain_is_shown_by_any_steps_id(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "fail")
    shown = {each_invoke("chains", "show", str(step.id)).stdout for step in steps}
    assert len(shown) == 1
    first, *rows = shown.pop().splitlines()
    assert first == f"chain {steps[0].id}: at step 1, chains.check, failed"
    assert [re.split(" {2,}", row)[:4] for row in rows] == [
        ["├─ step 0", "chains.load", "continued", str(steps[0].id)],
        ["└─ step 1", "chains.check", "failed", str(steps[1].id)],
    ]
    assert re.search(r"finished 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d, took \d+\.\d s", rows[0])
    assert rows[1].endswith("Fail: nothing there\\n\\x1b[31m")
    digits = steps[1].id.hex[:31]
    assert each_invoke("chains", "show", digits).stdout.startswith(first)


def test_a_chain_as_json(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    answer = json.loads(each_invoke("chains", "show", str(steps[1].id), "--json").stdout)
    assert (answer["id"], answer["end"]["id"], answer["end"]["state"]) == (str(steps[0].id), str(steps[2].id), "scheduled")
    assert [(each["id"], each["position"]) for each in answer["steps"]] == [(str(each.id), each.position) for each in steps]
    assert {each["chain"] for each in answer["steps"]} == {str(steps[0].id)}
    assert {each["key"] for each in answer["steps"]} == {"k"}
    assert answer["cursor"] is None


def test_a_long_chain_is_shown_page_by_page(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    page = json.loads(each_invoke("chains", "show", str(steps[0].id), "--limit", "2", "--json").stdout)
    result = each_invoke("chains", "show", str(steps[0].id), "--limit", "2")
    assert f"--cursor {page['cursor']}" in result.stderr
    assert str(steps[2].id) not in result.stdout
    rest = each_invoke("chains", "show", str(steps[0].id), "--cursor", page["cursor"])
    assert [row.split()[:3] for row in rest.stdout.splitlines()[1:]] == [["└─", "step", "2"]]
    assert "removed" not in rest.stdout
    assert rest.stderr == ""
    each_invoke("chains", "show", str(steps[0].id), "--cursor", "x", exit_code=2)
    assert "there is no job" in each_invoke("chains", "show", "0" * 32, exit_code=1).output


def test_steps_that_were_pruned(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    each_invoke("jobs", "prune", "--older-than", "0s", "--state", "continued", "--yes")
    first, second, row = each_invoke("chains", "show", str(steps[0].id)).stdout.splitlines()
    assert first == f"chain {steps[0].id}: at step 2, chains.check, scheduled"
    assert second == "its first 2 steps have been removed"
    assert row.startswith(f"└─ step 2  chains.check  scheduled  {steps[2].id}  due 20")


def test_a_job_tells_its_chain_and_its_place(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    for step in steps:
        shown = json.loads(each_invoke("jobs", "show", str(step.id), "--json").stdout)
        assert (shown["id"], shown["chain"], shown["position"]) == (str(step.id), str(steps[0].id), step.position)
    text = each_invoke("jobs", "show", str(steps[1].id)).stdout
    assert re.search(rf"^chain +{steps[0].id}$", text, re.MULTILINE)
    assert re.search(r"^position +1$", text, re.MULTILINE)
    assert "finished: continued" in text
    alone = each_invoke("enqueue", "another").stdout.split()[0]
    assert "chain" not in json.loads(each_invoke("jobs", "show", alone, "--json").stdout)


def test_why_of_a_chain_whose_first_step_was_pruned_says_where_it_stands(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    first, end = steps[0].id, _end(each_url, steps[0].id)
    each_invoke("jobs", "prune", "--older-than", "0s", "--state", "continued", "--yes")
    (reason, advice) = each_invoke("jobs", "why", str(first)).stdout.splitlines()
    assert reason == (
        "continued: it has run, its chain has gone on from it, and it has been removed since: "
        f"the chain {first} is at step 2 now, chains.check {end.id}, which is scheduled"
    )
    assert f"aioqueue jobs why {end.id}" in advice
    answer = json.loads(each_invoke("jobs", "why", str(first), "--json").stdout)
    assert (answer["state"], answer["type"], answer["chain_end"]["id"]) == ("continued", None, str(end.id))
    digits = str(first).replace("-", "")[:-1]
    assert "is found by its whole id" in each_invoke("jobs", "why", digits, exit_code=1).stderr


def test_why_of_a_continued_job_says_where_its_chain_stands(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    first, reason, advice = each_invoke("jobs", "why", str(steps[0].id)).stdout.splitlines()
    assert first == f"{steps[0].id}  chains.load  continued"
    assert reason.startswith("continued: it has run, and its chain has gone on from it at ")
    assert reason.endswith(f"is at step 2 now, chains.check {steps[2].id}, which is scheduled")
    assert f"aioqueue jobs why {steps[2].id}" in advice
    answer = json.loads(each_invoke("jobs", "why", str(steps[1].id), "--json").stdout)
    assert [each["code"] for each in answer["reasons"]] == ["continued"]
    assert answer["chain_end"] == {"id": str(steps[2].id), "type": "chains.check", "state": "scheduled"}
    codes = [each["code"] for each in json.loads(each_invoke("jobs", "why", str(steps[2].id), "--json").stdout)["reasons"]]
    assert codes == [ReasonCode.SCHEDULED, ReasonCode.NO_WORKER]


def test_changes_by_any_steps_id(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "fail")
    assert each_invoke("jobs", "retry", str(steps[0].id)).stdout == f"{steps[0].id}  done\n"
    assert _end(each_url, steps[0].id).state is JobState.READY
    waiting = _run(each_url, "wait")
    assert each_invoke("jobs", "run-now", str(waiting[1].id)).stdout == f"{waiting[1].id}  done\n"
    assert _end(each_url, waiting[0].id).state is JobState.READY
    each_invoke("jobs", "delete", str(waiting[1].id), "--yes")
    for step in waiting:
        assert "there is no job" in each_invoke("jobs", "show", str(step.id), exit_code=1).output


def test_a_filter_that_fits_an_earlier_step_deletes_no_chain(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait")
    assert each_invoke("jobs", "delete", "--type", "chains.load", "--yes").stdout.startswith("0 deleted: no jobs that fit in ")
    each_invoke("jobs", "delete", "--state", "continued", "--yes", exit_code=2)
    assert _end(each_url, steps[0].id).state is JobState.SCHEDULED
    assert each_invoke("jobs", "delete", "--type", "chains.check", "--yes").stdout == "1 deleted\n"
    assert "there is no job" in each_invoke("chains", "show", str(steps[0].id), exit_code=1).output


def test_who_waits_for_a_chain_is_told_where_it_stands(each_invoke: Invoke, each_url: str) -> None:
    steps = _run(each_url, "wait", unique=True)
    command = ("enqueue", "chains.load", "--key", "k", "--unique", "--wait", "0s")
    stored, waited = map(json.loads, each_invoke(*command, "--json", exit_code=1).stdout.splitlines())
    assert (stored["id"], stored["created"]) == (str(steps[0].id), False)
    assert waited == {"id": str(steps[0].id), "state": "scheduled"}
    told = each_invoke(*command, exit_code=1).stderr
    assert f"{steps[2].id} of chains.check, step 2 of the chain {steps[0].id}, isn't finished" in told
