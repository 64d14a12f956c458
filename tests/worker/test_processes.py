"""Handlers in processes of their own: how they end, and what gets to them and back."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Call,
    Client,
    ConfigurationError,
    Job,
    ProcessFailed,
    RegistrationError,
    Registry,
    Worker,
    current_attempt,
    done,
)
from aioqueue.worker import _process, _processes
from aioqueue.worker._holdings import Slot
from aioqueue.worker._process import HandlerProcess
from aioqueue.worker._slots import Slots
from aioqueue.worker._stop_reason import StopReason
from tests.worker.exiting import LOOPS
from tests.worker.in_processes import absent, ends, http, registry, staged, tells, typed, where, works

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue import JobHandle
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

MANAGED = "tests.in_processes"


async def ran(client: Client, *calls: Call[Any], concurrency: int = 1) -> list[Job]:
    """Run calls with one worker. Returns what became of them, in order."""
    handles = await client.enqueue_many(calls)
    await Worker(client, registry, concurrency=concurrency).run_once()
    return [await handle.snapshot() for handle in handles]


def connections() -> int:
    """How many sockets, pipes and the like this process has open."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            count += not os.readlink(f"/proc/self/fd/{each}").startswith("/")
    return count


async def test_it_runs_in_a_process_that_is_used_again_and_ends_with_the_worker(client: Client) -> None:
    much = works("much")
    jobs = await ran(client, where(), where(), works("a value that no pickle knows"), works("signals"), much, where(), typed())
    first, second, value, signals, huge, last, wrong = jobs
    assert first.output == second.output == last.output != os.getpid()
    assert value.output == {"numbers": [1, 2.5], "text": "é"}
    assert signals.output is False  # and it has lived through them
    assert huge.output == "x" * 20_000_000
    assert (wrong.state, wrong.errors[-1].type) == ("failed", "OutputError")
    assert "int" in wrong.errors[-1].message
    with pytest.raises(ProcessLookupError):
        os.kill(first.output, 0)


async def test_what_cannot_be_stored_has_failed_for_good_as_anywhere(client: Client) -> None:
    (job,) = await ran(client, works("what can't be stored"))
    assert (job.state, job.attempt, job.errors[-1].type) == ("failed", 1, "OutputError")


HOW_THEY_END = [
    ("_exit", "scheduled", "ProcessFailed", "exited with code 3 before its handler had returned"),
    ("SIGKILL", "scheduled", "ProcessFailed", "killed by signal SIGKILL"),
    ("segfault", "scheduled", "ProcessFailed", "killed by signal SIGSEGV"),
    ("fork", "scheduled", "ProcessFailed", "exited with code 5"),
    ("sys.exit", "scheduled", "SystemExit", "4"),
    ("ctrl-c", "scheduled", "KeyboardInterrupt", ""),
    ("odd", "scheduled", "Odd", "1"),
    ("unpicklable", "failed", "Unpicklable", "a text"),  # its class is in the policy's `fail_on`, by a base class
    ("local", "scheduled", "Local", "of nowhere"),
    ("group", "failed", "Fail", "enough"),
    ("ordinary", "scheduled", "ValueError", "outer"),
    ("Fail", "failed", "Fail", "on purpose"),
    ("Cancel", "cancelled", "Cancel", "not wanted"),
    ("RetryIn", "scheduled", "RetryIn", "3600"),
]


async def test_whatever_a_handler_ends_with_is_its_jobs_failure_alone(client: Client) -> None:
    calls = [ends(how) for how, *_ in HOW_THEY_END]
    *jobs, later, after = await ran(client, *calls, ends("Reschedule"), where(), concurrency=2)
    told = [(str(job.state), job.errors[-1].type) for job in jobs]
    assert told == [(state, kind) for _, state, kind, _ in HOW_THEY_END]
    for job, (how, *_, message) in zip(jobs, HOW_THEY_END, strict=True):
        assert message in job.errors[-1].message, how
    by_name = dict(zip([how for how, *_ in HOW_THEY_END], jobs, strict=True))
    assert by_name["Fail"].outcome == "declined"
    traceback = by_name["ordinary"].errors[-1].traceback or ""
    assert "KeyError: 'inner'" in traceback
    assert 'raise ValueError("outer") from error' in traceback
    assert 'raise Odd(1, why="odd")' in (by_name["odd"].errors[-1].traceback or "")
    assert (later.state, later.attempt, later.errors) == ("scheduled", 0, ())
    assert after.state == "completed"


async def test_what_it_logs_and_says_of_its_progress_gets_to_the_worker(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=MANAGED)
    seen: list[tuple[Any, ...]] = []

    class Fields(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), current_attempt().number, record.__dict__.get("each")))

    handler = Fields()
    logging.getLogger(MANAGED).addHandler(handler)
    try:
        (job,) = await ran(client, tells(1_500).options(metadata={"a": 1}))
    finally:
        logging.getLogger(MANAGED).removeHandler(handler)
    assert job.output[:5] == [1, "tells", {"count": 1500}, {"a": 1}, False]
    assert seen == [*((f"number {each}", 1, each) for each in range(1_500)), ("it broke", 1, None)]
    assert job.outcome == "told"
    assert job.progress is not None
    assert job.progress.message == "at 1499"
    (log,) = await client.store.fetch_logs(job.id)
    left_out, *_, before, last = log.lines
    assert left_out == {"left_out": 501}
    assert before["message"] == "number 1499"
    assert (last["logger"], last["message"]) == (f"{MANAGED}.quiet", "it broke")  # which doesn't propagate
    assert 'raise Odd(2, why="for the log")' in last["exception"]


async def test_phases_are_stored_through_the_worker_and_a_crash_goes_on_behind_them(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "downloads"
    (job,) = await ran(client, staged(str(path)))
    assert job.output == [7, "x" * 7, "PhaseRepeated", {"download": 7, "upload": "x" * 7}]
    assert [error.type for error in job.errors] == ["ProcessFailed"]
    (line,) = path.read_text().splitlines()
    assert line.startswith("download ")
    assert line != f"download {os.getpid()}"


async def test_what_does_not_reach_it_says_so(client: Client) -> None:
    whats = ["client", "enqueue", "completion", "resource", "from_thread"]
    handles = await client.enqueue_many([absent(what) for what in whats])
    await Worker(client, registry, concurrency=1, resources={http: 1}).run_once()
    for what, handle in zip(whats, handles, strict=True):
        assert (await handle.snapshot()).output.startswith("NotInProcess: "), what


def test_what_could_not_be_imported_is_refused_when_it_is_registered() -> None:
    mine = Registry()
    with pytest.raises(RegistrationError, match="async def"):

        @mine.job(executor="process")
        async def coroutine() -> None: ...

    with pytest.raises(RegistrationError, match="at module level"):

        @mine.job(executor="process")
        def nested() -> None: ...

    with pytest.raises(RegistrationError, match="at module level"):
        mine.job(executor="process", name="nameless")(lambda: None)
    with pytest.raises(ConfigurationError, match='"thread" or "process"'):
        mine.job(executor="fork", name="forks")(plain)
    mine.job(executor="process", name="elsewhere")(plain)
    with pytest.raises(RegistrationError, match="isn't its job type here"):
        mine.check()
    with pytest.raises(RegistrationError, match="return a value, and continue in a job"):
        Registry().job(executor="process")(continuing)
    registry.check()


def plain() -> None: ...


def continuing() -> Call[int]:
    return done(1)


async def test_what_cannot_be_started_is_an_error_of_the_attempt_and_the_next_is_begun(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(client, where())
    started, tries, fds = _process._started, 0, connections()

    def refuses(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return started(*arguments)

    monkeypatch.setattr(_process, "_started", refuses)
    refused, begun = await ran(client, ends("Cancel"), where())
    assert [(error.type, "unavailable" in error.message) for error in refused.errors] == [(ProcessFailed.__name__, True)]
    assert begun.state == "completed"
    assert connections() == fds


async def test_one_that_has_died_while_it_was_idle_is_nobodys_failure(client: Client) -> None:
    async with Worker(client, registry, concurrency=1):
        first: JobHandle[int] = await client.enqueue(where())
        pid = await first.result(timeout=60)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        second = await client.enqueue(where())
        assert await second.result(timeout=60) != pid
    assert (await second.snapshot()).errors == ()


async def test_an_attempt_that_is_cancelled_before_its_first_step_starts_no_process(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, started = Slots.start, _process._started
    begun: list[Any] = []
    monkeypatch.setattr(_process, "_started", lambda *arguments: begun.append(arguments) or started(*arguments))

    def cancels(self: Slots, job: ClaimedJob) -> None:
        begin(self, job)
        slot: Slot = self._holdings.held[job.claim]
        slot.cancel(StopReason.SHUTDOWN)
        monkeypatch.setattr(Slots, "start", begin)

    monkeypatch.setattr(Slots, "start", cancels)
    handle = await client.enqueue(where())
    worker = Worker(client, registry)
    await worker.run_once()
    job = await handle.snapshot()
    assert (job.state, job.attempt, len(begun)) == ("completed", 1, 1)


async def test_without_what_tells_of_a_process_s_end_it_is_looked_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_process, "_pidfd", lambda pid: -1)
    ok, crashed, forked = await ran(client, where(), ends("_exit"), ends("fork"))
    assert ok.state == "completed"
    assert "exited with code 3" in crashed.errors[-1].message
    assert "exited with code 5" in forked.errors[-1].message


async def test_idle_ones_are_ended_after_a_while(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "_IDLE_SECONDS", 0.01)
    gone = asyncio.Event()
    end = HandlerProcess.end

    def ends_it(self: HandlerProcess, *arguments: Any, **named: Any) -> int | None:
        gone.set()
        return end(self, *arguments, **named)

    monkeypatch.setattr(HandlerProcess, "end", ends_it)
    async with Worker(client, registry):
        pid = await (await client.enqueue(where())).result(timeout=60)
        async with asyncio.timeout(60):
            await gone.wait()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_it_works_on_uvloop(url: str) -> None:
    async def main() -> int:
        async with Client(url, poll_interval=0.2) as client:
            (job,) = await ran(client, where())
            return int(job.output)

    with asyncio.Runner(loop_factory=LOOPS["uvloop"]) as runner:
        assert runner.run(main()) != os.getpid()


def test_no_worker_starts_in_the_process_of_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "_in_handlers_process", True)
    nobody: Any = None
    with pytest.raises(ConfigurationError, match="__main__"):
        _processes.HandlerProcesses("w", nobody)
