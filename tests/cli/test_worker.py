"""`aioqueue worker` and `python -m aioqueue.worker`, as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
import uvloop

from aioqueue import Client, Job, JobState
from aioqueue.cli._worker import _loop_factory
from tests.cli.jobs import fail, fail_twice, greet, until_exists
from tests.examples.servers import free_port
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aioqueue import Call
    from tests.cli.conftest import Invoke

APP = "tests.cli.jobs:registry"
SCRIPT = [sys.executable, "-c", "from aioqueue.cli import main; main()", "worker"]
MODULE = [sys.executable, "-m", "aioqueue.worker"]

pytestmark = pytest.mark.anyio


def environment(url: str, **variables: str) -> dict[str, str]:
    return {**os.environ, "AIOQUEUE_URL": url, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **variables}


async def run(
    url: str, *arguments: str, command: list[str] = MODULE, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a worker that ends by itself."""

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=cwd, env=environment(url, **variables), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip

    return await anyio.to_thread.run_sync(call)


@contextmanager
def worker(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that runs until it's told to stop."""
    process = subprocess.Popen(
        [*MODULE, APP, *arguments], cwd=ROOT, env=environment(url), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def enqueue(url: str, *calls: Call[object]) -> None:
    async with Client(url) as client:
        await client.enqueue_many(calls)


async def jobs(url: str) -> list[Job]:
    async with Client(url) as client:
        return list((await client.list_jobs()).jobs)[::-1]


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
async def test_once_works_off_what_is_due_and_leaves_the_rest(url: str, command: list[str]) -> None:
    await enqueue(url, greet("a"), greet("b", shout=True), greet("later").options(delay=3600))
    ended = await run(url, APP, "--once", command=command)
    assert ended.returncode == 0, ended.stderr
    assert [job.output for job in await jobs(url)] == ["a", "B", None]
    assert [job.state for job in await jobs(url)] == [JobState.COMPLETED, JobState.COMPLETED, JobState.SCHEDULED]


async def test_once_says_that_jobs_failed_and_logs_no_arguments_and_a_line_each(url: str, tmp_path: Path) -> None:
    await enqueue(url, greet("secret-one"), fail("for a reason\nof two lines"), fail_twice(str(tmp_path / "secret-two")))
    ended = await run(url, APP, "--once", "--log-level", "info")
    assert ended.returncode == 3, ended.stderr
    assert "secret" not in ended.stderr + ended.stdout
    assert "\x1b" not in ended.stderr
    for line in ended.stderr.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARNING|ERROR) +aioqueue", line), line


async def test_only_the_given_types_are_run(url: str) -> None:
    await enqueue(url, greet("a"), fail("not now"))
    ended = await run(url, APP, "--once", "--types", "jobs.greet", AIOQUEUE_CONCURRENCY="3")
    assert ended.returncode == 0, ended.stderr
    assert "3 slots for jobs.greet" in ended.stderr
    assert [job.state for job in await jobs(url)] == [JobState.COMPLETED, JobState.READY]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_running_jobs_finish(url: str, tmp_path: Path, number: int) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go on"
    await enqueue(url, until_exists(str(started), str(go_on)), greet("never").options(delay=3600))
    with worker(url, "--grace", "120", "--name", "the one") as process:
        await until(started.exists, "the job's start")
        assert (await jobs(url))[0].worker == "the one"
        process.send_signal(number)
        go_on.touch()
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert [job.state for job in await jobs(url)] == [JobState.COMPLETED, JobState.SCHEDULED]


async def test_a_second_signal_gives_running_jobs_back_at_once(url: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    await enqueue(url, until_exists(str(started), str(tmp_path / "never")))
    with worker(url, "--grace", "1h") as process:
        await until(started.exists, "the job's start")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "stopping" not in await anyio.to_thread.run_sync(process.stderr.readline):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0
    (job,) = await jobs(url)
    assert (job.state, job.attempt) == (JobState.READY, 0)


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
async def test_a_project_s_folder_works_as_the_working_folder(url: str, tmp_path: Path, command: list[str]) -> None:
    program = "from aioqueue import Registry\nregistry = Registry()\n@registry.job\ndef work() -> int:\n    return 1\n"
    (tmp_path / "projectjobs.py").write_text(program)
    (tmp_path / "orjson.py").write_text("raise RuntimeError('shadowed')\n")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    wrong = await run(url, "projectjobs:registri", "--once", "--app-dir", str(tmp_path), command=command, cwd=folder)
    assert wrong.returncode == 2
    assert "Did you mean registry?" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    found = await run(url, "projectjobs:registry", "--once", command=command, cwd=folder, AIOQUEUE_APP_DIR=str(tmp_path))
    assert found.returncode == 0, found.stderr


async def test_a_password_is_never_logged(tmp_path: Path) -> None:
    ended = await run("postgresql://user:hunter2@127.0.0.1:1/x", APP, "--once", "--log-level", "debug")
    assert ended.returncode == 1
    assert "hunter2" not in ended.stderr + ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--types", "jobs.gret"], "did you mean jobs.greet"),
        (["--concurrency", "0"], "concurrency"),
        (["--lease", "10ms"], "lease"),
        (["--poll-interval", "often"], "must be a duration"),
        (["--log-level", "loud"], "log-level"),
        (["--url", "nonsense"], "scheme"),
    ],
)
def test_wrong_settings_are_explained(invoke: Invoke, arguments: list[str], message: str) -> None:
    assert message in invoke("worker", APP, *arguments, exit_code=2).output


async def test_enqueue_waits_for_the_end(url: str) -> None:
    with worker(url, "--poll-interval", "100ms"):
        command = [sys.executable, "-c", "from aioqueue.cli import main; main()", "enqueue", "--wait", "60"]
        ended = await run(url, "jobs.greet", "name=world", "shout:=true", command=command)
        assert json.loads(ended.stdout.splitlines()[1]) == "WORLD"
        ended = await run(url, "jobs.fail", "reason=because", command=command)
        assert ended.returncode == 3, ended.stderr
        assert "because" in ended.stderr


async def test_the_port_is_open_before_the_first_connection() -> None:
    """A worker that waits for its database is alive, and not ready."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with worker("postgresql://127.0.0.1:1/nobody", "--metrics-port", str(port)):

        def answered() -> bool:
            try:
                with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
                    return answer.status == 200
            except urllib.error.URLError:
                return False

        await until(answered, "the port")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/readyz", timeout=10)
        assert refused.value.code == 503
        refused.value.close()


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _loop_factory(wanted=None) is uvloop.new_event_loop
    assert _loop_factory(wanted=False) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert _loop_factory(wanted=None) is None
