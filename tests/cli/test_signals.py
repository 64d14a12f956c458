"""SIGINT and SIGTERM at any instant of a worker's process: it ends, in time, and its exit code says how."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, JobState
from tests.cli import stubborn_jobs as jobs
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue import Job
    from aioqueue.definitions._job_type import JobType

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel tells which signals have handlers"),
]
APP = "tests.cli.stubborn_jobs:registry"
SCRIPT = shutil.which("aioqueue", path=str(Path(sys.executable).parent)) or "aioqueue"
COMMANDS = {"module": [sys.executable, "-m", "aioqueue.worker"], "script": [sys.executable, SCRIPT, "worker"]}
WITHIN_A_SECOND = 2.5
"""With time for a busy machine."""


def long(what: str) -> Any:
    """A parameter for the long run only."""
    return pytest.param(what, marks=pytest.mark.soak)


@contextmanager
def started(
    url: str, folder: Path, *options: str, command: str = "module", prefix: tuple[str, ...] = (), **variables: str
) -> Iterator[subprocess.Popen[str]]:
    with (folder / "log").open("w") as output:
        process = subprocess.Popen(
            [*prefix, *COMMANDS[command], APP, "--url", url, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "STUBBORN_BEGUN": str(folder / "begun"), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def log(folder: Path) -> str:
    return (folder / "log").read_text()


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return False
    (mask,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")]
    return bool(mask >> (number - 1) & 1)


async def ends(process: subprocess.Popen[str], folder: Path, *, within: float) -> int:
    begun = time.monotonic()
    await until(lambda: process.poll() is not None, "the process's end", within=60, story=lambda: log(folder))
    assert time.monotonic() - begun < within, log(folder)
    return process.returncode


async def enqueue(url: str, job_type: JobType[[], None, None]) -> None:
    async with Client(url) as client:
        await client.enqueue(job_type())


async def only_job(url: str) -> Job:
    async with Client(url) as client:
        (job,) = (await client.list_jobs()).jobs
        return job


# -- the first instants -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", list(COMMANDS))
async def test_the_first_signal_ends_it_well_from_the_first_instant(url: str, tmp_path: Path, command: str) -> None:
    """From before the package itself is imported, and in each moment after that."""
    for number in range(5):
        with started(url, tmp_path, command=command) as process:
            await until(lambda: catches(process.pid, signal.SIGTERM), "a handler")
            assert "aioqueue" not in log(tmp_path)
            time.sleep(number * 0.09)
            process.send_signal(signal.SIGTERM if number % 2 else signal.SIGINT)
            assert await ends(process, tmp_path, within=WITHIN_A_SECOND) == 0, log(tmp_path)
        assert "Traceback" not in log(tmp_path)


async def test_the_handler_is_there_before_anything_else_is_imported(url: str) -> None:
    """Every signal before that is lost, or ends the process as if it had failed."""
    command = [sys.executable, "-X", "importtime", *COMMANDS["module"][1:], APP, "--url", url, "--once"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    imported = [line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")]
    before = imported[: imported.index("aioqueue.runtime._process")]
    folder = "aioqueue.runtime"  # holds nothing but its docstring
    assert [name for name in before if name.startswith("aioqueue")] == [folder]
    assert not {"asyncio", "typing", "logging", "click"}.intersection(before)


async def test_other_programs_keep_their_signals() -> None:
    code = "import signal, aioqueue, aioqueue.cli; print(signal.getsignal(15) is signal.SIG_DFL)"
    ended = subprocess.run([sys.executable, "-c", code, "worker"], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


@pytest.mark.parametrize("how", ["imported slowly", "imported deafly"])
async def test_a_signal_while_the_user_s_modules_are_imported(url: str, tmp_path: Path, how: str) -> None:
    with started(url, tmp_path, STUBBORN=how) as process:
        await until((tmp_path / "begun").exists, "the import")
        process.terminate()
        assert await ends(process, tmp_path, within=WITHIN_A_SECOND) == 0
    assert "can't be imported" not in log(tmp_path)
    assert "Traceback" not in log(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("database", ["refuses", "is silent"])
async def test_a_signal_while_it_waits_for_the_database(tmp_path: Path, database: str, number: signal.Signals) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if database == "is silent":
            listener.listen()
        url = f"postgresql://nobody@127.0.0.1:{listener.getsockname()[1]}/none"
        with started(url, tmp_path) as process:
            if database == "refuses":
                await until(lambda: "trying again" in log(tmp_path), "a try", story=lambda: log(tmp_path))
            else:
                listener.settimeout(60)
                accepted, _ = listener.accept()
            process.send_signal(number)
            assert await ends(process, tmp_path, within=WITHIN_A_SECOND) == 0
            if database == "is silent":
                accepted.close()
    assert "Traceback" not in log(tmp_path)
    assert "Aborted" not in log(tmp_path)


def unshare() -> tuple[str, ...]:
    """The command that makes its child process 1 of a container; empty where that isn't allowed."""
    for options in (["--pid", "--fork"], ["--user", "--map-root-user", "--pid", "--fork"]):
        if shutil.which("unshare") and subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0:
            return ("unshare", *options)
    return ()


@pytest.mark.skipif(not unshare(), reason="no process may have a container of its own here")
@pytest.mark.parametrize("moment", ["first", "running"])
async def test_as_the_first_process_of_a_container(url: str, tmp_path: Path, moment: str) -> None:
    """There the kernel drops signals without a handler."""
    with started(url, tmp_path, prefix=unshare()) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        await until(lambda: children.read_text().split(), "process 1")
        (pid,) = [int(each) for each in children.read_text().split()]
        if moment == "first":
            await until(lambda: catches(pid, signal.SIGTERM), "a handler")
        else:
            await until(lambda: "slots for" in log(tmp_path), "its start", story=lambda: log(tmp_path))
        os.kill(pid, signal.SIGTERM)
        assert await ends(process, tmp_path, within=WITHIN_A_SECOND) == 0


# -- the last ones ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_type", "loop"),
    [
        (jobs.swallow, "--uvloop"),
        (jobs.block, "--uvloop"),
        (jobs.block, "--no-uvloop"),
        (jobs.in_thread, "--uvloop"),
        (jobs.in_executor, "--uvloop"),
        (jobs.wait, "--uvloop"),
        (jobs.wait, "--no-uvloop"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
async def test_the_second_signal_ends_it_within_a_second(
    url: str, tmp_path: Path, job_type: JobType[[], None, None], loop: str
) -> None:
    """Whatever jobs do. What could be given back was."""
    await enqueue(url, job_type)
    with started(url, tmp_path, "--grace", "1h", "--lease", "1h", loop) as process:
        await until((tmp_path / "begun").exists, "the job's start", story=lambda: log(tmp_path))
        process.terminate()
        time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        code = await ends(process, tmp_path, within=WITHIN_A_SECOND)
    job = await only_job(url)
    if job_type in {jobs.wait, jobs.in_executor}:
        assert (code, job.state, job.attempt) == (0, JobState.READY, 0)
    else:
        assert (code, job.state) == (4, JobState.RUNNING)


@pytest.mark.parametrize("what", ["at exit", "thread"])
async def test_the_second_signal_ends_what_remains_when_the_worker_has_ended(url: str, tmp_path: Path, what: str) -> None:
    with started(url, tmp_path, STUBBORN=what) as process:
        await until(lambda: "slots for" in log(tmp_path), "its start", story=lambda: log(tmp_path))
        process.terminate()
        if what == "at exit":
            await until((tmp_path / "begun.exit").exists, "the end of the worker", story=lambda: log(tmp_path))
        else:
            await until(lambda: "stopping" in log(tmp_path), "the stop", story=lambda: log(tmp_path))
            time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        assert await ends(process, tmp_path, within=WITHIN_A_SECOND) == 0


@pytest.mark.parametrize("what", ["swallow", long("in_executor"), long("at exit"), "thread"])
async def test_one_signal_is_enough(url: str, tmp_path: Path, what: str) -> None:
    """Within the sum that the documentation gives."""
    if hasattr(jobs, what):
        await enqueue(url, getattr(jobs, what))
    with started(url, tmp_path, "--grace", "100ms", "--lease", "1h", STUBBORN=what) as process:
        await until(lambda: "slots for" in log(tmp_path), "its start", story=lambda: log(tmp_path))
        if hasattr(jobs, what):
            await until((tmp_path / "begun").exists, "the job's start", story=lambda: log(tmp_path))
        process.terminate()
        code = await ends(process, tmp_path, within=20)
    if what == "swallow":
        (job, text) = (await only_job(url), log(tmp_path))
        assert (code, job.state) == (4, JobState.RUNNING)
        assert f"stubborn.swallow {job.id} doesn't stop" in text
    else:
        assert code == 0
        if what == "in_executor":
            assert (await only_job(url)).state is JobState.READY
        elif what == "thread":
            assert "a thread of the user's" in log(tmp_path)


@pytest.mark.soak
async def test_a_process_that_wasnt_told_to_stop_may_take_its_time_at_exit(url: str, tmp_path: Path) -> None:
    with started(url, tmp_path, "--once", STUBBORN="at exit") as process:
        await until((tmp_path / "begun.exit").exists, "the end of the worker", story=lambda: log(tmp_path))
        time.sleep(7)
        assert process.poll() is None
        process.terminate()
        assert await ends(process, tmp_path, within=10) == 0
