"""Processes of handlers are ended: by timeouts, cancels, lost claims and stops; with their worker; and what they've started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, CancelReason, Client, Job, Registry, Worker
from aioqueue.worker import _processes, _shutdown
from aioqueue.worker._phases import PhaseWriter
from aioqueue.worker._process import HandlerProcess
from tests.processes import ROOT, Ledger, WorkerProcess, ended, until
from tests.worker.in_processes import patient, registry, staged, stays, where

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "_NOTICE_SECONDS", 0.3)


def gone(pid: int) -> bool:
    """Whether a process has ended; a dead one whom nobody waits for has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def begun(path: Path) -> list[int]:
    """Wait until a handler has begun. Returns its process, and that of the program which it has started."""
    await until(lambda: path.exists() and len(path.read_text().split()) == 2, "the handler begins")
    return [int(each) for each in path.read_text().split()]


async def became(
    client: Client, call: Call[Any], path: Path, stop: Callable[[Worker, Any], Any], *, finishes: bool = False, **settings: Any
) -> tuple[Job, list[int]]:
    """Run a job until it has begun, stop it, and wait until its slot is free. One that `finishes` leaves its process, which
    would serve the next one, to the worker's end.
    """
    worker = Worker(client, registry, concurrency=1, **settings)
    async with worker:
        handle = await client.enqueue(call)
        pids = await begun(path)
        waiting = stop(worker, handle)
        if waiting is not None:
            await waiting
        await until(lambda: worker._run is None or not worker._run.holdings.running, "its slot is free")
        assert finishes or gone(pids[0])  # it's the slot's until then
        await until(lambda: all(gone(each) for each in pids), "they're gone", within=10)
    return await handle.snapshot(), pids


async def test_a_timeout_kills_it_with_what_it_has_started_and_its_slot_goes_on(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "began"
    async with Worker(client, registry, concurrency=1):
        await (await client.enqueue(where())).result(timeout=60)  # its start doesn't count
        handle = await client.enqueue(stays(str(path)).options(timeout=2))
        after = await client.enqueue(where())
        pids = await begun(path)
        assert await after.result(timeout=60) not in pids
        assert all(gone(each) for each in pids)
    job = await handle.snapshot()
    assert (job.state, job.errors[-1].type, job.errors[-1].message) == (
        "failed",
        "TimeoutError",
        "the attempt took longer than 2 s",
    )


CANCELLED = [
    ({}, "cancelled", "Cancelled", "not wanted"),
    ({"looks": True}, "cancelled", "InterruptedError", "it looked"),
    ({"looks": True, "returns": True}, "completed", None, None),
]


@pytest.mark.parametrize(("named", "state", "kind", "message"), CANCELLED)
async def test_a_cancel_is_seen_by_its_handler_or_kills_it(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: Any,
    state: str,
    kind: str | None,
    message: str | None,
) -> None:
    path = tmp_path / "began"
    if named:
        monkeypatch.setattr(_processes, "_NOTICE_SECONDS", 30.0)
    job, _ = await became(client, stays(str(path), **named), path, lambda _, handle: handle.cancel(reason="not wanted"))
    assert job.state == state
    if kind is None:
        assert job.output == "stopped: cancelled"
    else:
        assert (job.errors[-1].type, job.errors[-1].message) == (kind, message)
    assert (tmp_path / "began.seen").exists() is bool(named)


async def test_a_lost_claim_ends_it(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "began"
    monkeypatch.setattr(_processes, "_NOTICE_SECONDS", 30.0)
    job, _ = await became(
        client,
        stays(str(path), looks=True),
        path,
        lambda _, handle: client.fail(handle, "somebody has decided"),
        lease=1.0,
    )
    assert (job.state, job.errors[-1].message) == ("failed", "somebody has decided")
    assert (tmp_path / "began.seen").read_text() == CancelReason.COMPLETED


@pytest.mark.parametrize("force", [False, True])
async def test_a_stop_past_the_grace_kills_it_and_gives_its_job_back(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    path, at = tmp_path / "began", time.monotonic()

    def stop(worker: Worker, _handle: Any) -> None:
        nonlocal at
        at = time.monotonic()
        worker.stop(force=force)

    if force:
        monkeypatch.setattr(_processes, "_NOTICE_SECONDS", 30.0)
        monkeypatch.setattr(_shutdown, "_LAST_CANCEL_SECONDS", 10.0)  # a busy machine takes its time to kill
    job, _ = await became(client, stays(str(path)), path, stop, grace=60.0 if force else 0.1)
    assert time.monotonic() - at < 20
    assert (job.state, job.attempt) == ("ready", 0)


async def test_the_worker_s_end_lets_one_finish_within_the_grace(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "began"

    def stop(worker: Worker, _handle: Any) -> None:
        worker.stop()
        path.with_suffix(".go").touch()

    job, _ = await became(client, patient(str(path)), path, stop, finishes=True, grace=60.0)
    assert (job.state, job.output) == ("completed", "went")


async def test_a_middlewares_own_timeout_ends_it(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "began"

    monkeypatch.setattr(_processes, "_NOTICE_SECONDS", 30.0)

    async def limit(attempt: Any, call_next: Any) -> object:
        async with asyncio.timeout(2 if attempt.job.type == "stays" else None):
            return await call_next()

    around = Registry(middlewares=[limit])
    around.include(registry)
    _, handle = await client.enqueue_many([where(), stays(str(path), looks=True, returns=True)])  # its start doesn't count
    await Worker(client, around, concurrency=1).run_once()
    job = await handle.snapshot()
    assert (job.state, job.errors[-1].type) == ("failed", "TimeoutError")
    assert (tmp_path / "began.seen").read_text() == "None"


async def test_one_that_waits_for_the_store_is_killed_too(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def hangs(*_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(PhaseWriter, "submit", hangs)
    async with Worker(client, registry) as worker:
        handle = await client.enqueue(staged(str(tmp_path / "path")))
        async with asyncio.timeout(60):
            await asked.wait()
            await handle.cancel(reason="why")
            await until(lambda: worker._run is None or not worker._run.holdings.running, "its slot is free")
    assert (await handle.snapshot()).state == "cancelled"


async def test_it_ends_when_its_pipe_does(tmp_path: Path) -> None:
    process = HandlerProcess("w")
    try:
        os.close(process._lifeline)
        process._lifeline = -1
        assert process._exited(60)
    finally:
        process.end(0)


APP = """
import os, pathlib, re, time
from aioqueue import Registry

registry = Registry()

@registry.job(executor="process")
def holds(path: str) -> None:
    pathlib.Path(path).write_text(f"{os.getpid()} {os.getppid()}")
    re.match(r"(a+)+$", "a" * 64 + "b")  # for ever, and no other thread runs meanwhile
"""


async def test_it_ends_with_a_worker_that_is_killed(url: str, tmp_path: Path) -> None:
    (tmp_path / "holding.py").write_text(APP)
    path = tmp_path / "began"
    options = ("--app-dir", str(tmp_path))
    worker = WorkerProcess(url, Ledger(tmp_path / "ledger"), tmp_path, *options, app="holding:registry")
    with ended([worker]):
        async with Client(url) as client:
            worker.start()
            await client.enqueue(_holds(path))
            process, parent = await begun(path)
            assert parent == worker.pid
            worker.kill()
            await until(lambda: gone(process), "it's gone", within=10)


def _holds(path: Path) -> Call[None]:
    there = Registry()

    @there.declare
    def holds(path: str) -> None: ...

    return holds(str(path))


SCRIPT = """
import asyncio, os, sys
from aioqueue import Client, Fixed, Registry, Retry, Worker

registry = Registry()

@registry.job(executor="process", retry=Retry(max_attempts=1))
def mine(number: int) -> int:
    return os.getppid() + number

async def main() -> None:
    async with Client(sys.argv[1]) as client:
        handle = await client.enqueue(mine(1))
        await Worker(client, registry).run_once()
        job = await handle.snapshot()
        assert job.output == os.getpid() + 1 or "an event loop was to be started" in job.errors[-1].message, job
        print("guarded" if job.output else "refused")

{guard}asyncio.run(main())
"""


@pytest.mark.parametrize(("guard", "told"), [('if __name__ == "__main__": ', "guarded"), ("", "refused")])
async def test_a_main_module_needs_its_guard(url: str, tmp_path: Path, guard: str, told: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{guard}", guard))
    async with Client(url):
        pass
    ran = subprocess.run(
        [sys.executable, script, url], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ran.stdout.split()[-1:] == [told], ran.stdout + ran.stderr


async def test_who_stops_the_service_may_signal_it_too(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "began"

    def stop(worker: Worker, _handle: Any) -> None:
        os.killpg(int(path.read_text().split()[0]), signal.SIGTERM)
        worker.stop()
        path.with_suffix(".go").touch()

    job, _ = await became(client, patient(str(path)), path, stop, finishes=True, grace=60.0)
    assert job.state == "completed"
