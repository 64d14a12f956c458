"""What is logged: one line each, with the job in `extra`, and nothing of anybody's arguments."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Literal

import pytest

from aioqueue import Client, Fail, Fixed, RegistrationError, Registry, Reschedule, Retry, RetryIn, RowRejected
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.worker import Worker
from tests.worker.faults import Faults, Jobs, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

FORGED = "x\n2026-01-01 ERROR forged\r\x1b[2J\x1b[31mred\x00\x85\u2028end"
NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.all: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(record)

    def of(self, handle: JobHandle[object]) -> list[logging.LogRecord]:
        return [record for record in self.all if record.__dict__.get("job_id") == str(handle.id)]

    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.all]

    def everything(self) -> str:
        """All that a formatter could write."""
        formatter = logging.Formatter("%(message)s")
        return "\n".join(f"{formatter.format(record)} {record.__dict__}" for record in self.all)


@pytest.fixture
def records() -> Iterator[Records]:
    handler, logger = Records(), logging.getLogger("aioqueue")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


async def test_an_attempt_has_one_line_for_its_start_and_one_for_its_outcome(client: Client, records: Records) -> None:
    registry = Registry(prefix="shop.")

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def ends(how: str) -> None:
        if how == "fail":
            raise Fail("declined")
        if how == "raise":
            raise ValueError("no")

    fine, declined, failing = await client.enqueue_many([ends(how) for how in ("return", "fail", "raise")])
    await Worker(client, registry).run_once()
    for handle, outcomes in (
        (fine, ["completed"]),
        (declined, ["failed"]),
        (failing, ["failed", "failed"]),
    ):
        found = records.of(handle)
        assert len(found) == 2 * len(outcomes)
        for number, outcome in enumerate(outcomes, start=1):
            begins, ends_ = (each for each in found if each.__dict__["attempt"] == number)
            assert f"attempt {number} begins" in begins.getMessage()
            assert f"attempt {number} {outcome}" in ends_.getMessage()
            assert ends_.__dict__["duration"] >= 0
        for record in found:
            assert record.__dict__["job_type"] == "shop.ends"
            assert str(handle.id) in record.getMessage()
            assert record.name == "aioqueue.worker"


async def test_what_others_wrote_forges_no_lines(client: Client, records: Records, monkeypatch) -> None:
    """Not with the text of an error, its type's name, a reason, a label, a worker's name or the database's words."""
    registry = Registry()
    strange = type("Odd\nERROR forged", (Exception,), {})

    @registry.job(retry=Retry(max_attempts=1))
    async def ends(how: str) -> None:
        raise {"raise": ValueError(FORGED), "type": strange(FORGED), "fail": Fail(FORGED, FORGED)}[how]

    @registry.job(retry=Retry(max_attempts=1))
    def in_thread() -> None:
        raise ValueError(FORGED)

    calls = [ends("raise"), ends("type"), ends("fail"), in_thread()]
    faults = Faults(client, monkeypatch)
    faults.before["settle"] = [RowRejected(FORGED)] * (2 * len(calls))
    faults.before["take_expired"] = [RowRejected(FORGED)]
    await client.enqueue_many(calls)
    done = await Worker(client, registry, name=FORGED).run_once()
    assert done.failed + done.retried <= len(calls)
    async with Worker(client, registry, name=FORGED, renew_every=0.05, poll_interval=0.05):
        await until(lambda: faults.failed["take_expired"])
    assert any("refused" in line for line in records.lines())
    assert any("forged" in line for line in records.lines())
    assert [line for line in records.lines() if NOT_IN_A_LINE.search(line)] == []


async def test_type_names_can_not_hold_control_characters() -> None:
    async def handler() -> None: ...

    with pytest.raises(RegistrationError):
        Registry().job(name="a\nERROR forged")(handler)


async def test_a_row_with_a_strange_type_is_left_alone_and_not_logged(client: Client, records: Records) -> None:
    registry = Registry()

    @registry.job
    async def fine() -> None: ...

    await client.store.insert([NewJob(id=new_id(), type="odd\nERROR forged")])
    await Worker(client, registry).run_once()
    assert "forged" not in records.everything()


async def test_no_arguments_and_no_outputs_are_logged(client: Client, records: Records, monkeypatch) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def keeps(secret: str, how: Literal["return", "raise", "later", "reschedule"] = "return") -> str:
        if how == "raise":
            raise ValueError("no")
        if how == "later":
            raise RetryIn(0)
        if how == "reschedule":
            raise Reschedule(delay=3600)
        return f"{secret} again"

    @registry.job(timeout=0.01, retry=Retry(max_attempts=1))
    async def too_slow(secret: str) -> None:
        await Jobs().gate.wait()

    secret = "hunter2-correct-horse"
    await client.enqueue_many(
        [keeps(secret), keeps(secret, "raise"), keeps(secret, "later"), keeps(secret, "reschedule"), too_slow(secret)]
    )
    await client.enqueue_by_name("keeps", {"secret": {"not a text": secret}})
    quoted = await client.enqueue_by_name("keeps", {"secret": "x", "how": secret})
    faults = Faults(client, monkeypatch)
    faults.before["settle"] = [RuntimeError("a bug"), RowRejected("no")]
    await Worker(client, registry).run_once()
    assert len(records.all) > 10
    everything = records.everything()
    assert "hunter2" not in everything, everything
    job = await quoted.snapshot()
    assert job.last_error is not None
    assert "hunter2" in job.last_error.message  # where the arguments are too


async def test_troubles_are_told_once_and_when_they_are_over(client: Client, records: Records, monkeypatch) -> None:
    jobs, faults = Jobs(), Faults(client, monkeypatch)
    handle = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=600, renew_every=0.02, poll_interval=0.02, concurrency=2) as worker:
        await jobs.started()
        faults.away = True
        await until(lambda: faults.failed["renew"] >= 3 and faults.failed["claim"] >= 2)
        await until(lambda: {"renew", "claim"} <= worker.health().troubles.keys())
        faults.away = False
        await until(lambda: worker.health().ok)
        jobs.gate.set()
        assert await handle.result(timeout=60) == 1
    for part in ("claim", "renew"):
        assert len([line for line in records.lines() if f"{part} fails" in line]) == 1
        assert len([line for line in records.lines() if f"{part} works again" in line]) == 1
    assert all(record.exc_info is None for record in records.all if "fails, and" in record.getMessage())
