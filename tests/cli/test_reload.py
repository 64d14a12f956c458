"""`aioqueue worker --reload`: a real worker whose files change, which is stopped, and whose parent is killed."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from aioqueue import Client
from aioqueue.cli import _reload
from aioqueue.cli._reload import _is_watched
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Invoke

pytestmark = pytest.mark.anyio

APP = """
import asyncio, hashlib, os, signal, sys
import version
from aioqueue import Registry

registry = Registry()
print(f"imported {version.NUMBER} as {os.getpid()}", file=sys.stderr, flush=True)

@registry.job
async def say() -> int:
    return version.NUMBER

@registry.job
async def wait() -> None:
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.sleep(3600)

@registry.job
async def compute() -> str:
    print("computing", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)  # about a second in C code that frees the interpreter's lock
    return "computed"
"""


class Reloading:
    """A worker with `--reload` in a process group of its own, as a shell starts it, and the folder that it watches."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def logs(self, text: str, times: int = 1) -> None:
        await until(lambda: self.log().count(text) >= times, f"{times} of {text!r}", story=self.log)

    async def started(self, times: int) -> int:
        """Wait until the worker claims for so many times. Returns the newest child's process id."""
        await self.logs(" slots for ", times)
        return self.children()[-1]

    def children(self) -> list[int]:
        return [int(each) for each in re.findall(r"^imported -?\d+ as (\d+)$", self.log(), re.MULTILINE)]

    async def ends(self) -> int:
        await until(lambda: self.process.poll() is not None, "the end", story=self.log)
        return self.process.returncode


def write(folder: Path, name: str, text: str) -> None:
    """Write as editors do: nobody reads half a file."""
    (folder / "new").write_text(text)
    (folder / "new").rename(folder / name)


@contextmanager
def reloading(url: str, folder: Path, *options: str) -> Iterator[Reloading]:
    code = folder / "code"
    code.mkdir()
    write(code, "app.py", APP)
    write(code, "version.py", "NUMBER = 1")
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "aioqueue.worker",
                "app:registry",
                "--url",
                url,
                "--reload",
                "--app-dir",
                str(code),
                *options,
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Reloading(process, folder)
    finally:
        for each in psutil.Process(process.pid).children() if process.poll() is None else ():
            each.kill()
        process.kill()
        process.wait()


async def said(url: str) -> object:
    async with Client(url) as client:
        return await (await client.enqueue_by_name("say")).result(timeout=60)


async def test_changed_code_runs_in_a_fresh_process(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        first = await worker.started(1)
        assert await said(url) == 1
        write(tmp_path / "code", "version.py", "NUMBER = 2")
        assert await worker.started(2) != first
        assert await said(url) == 2
        assert "version.py has changed: the worker is started anew" in worker.log()
        worker.process.terminate()
        assert await worker.ends() == 0
    assert not psutil.pid_exists(first)


async def test_a_single_worker_waits_until_the_name_of_one_that_was_killed_is_free(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path, "--singleton", "alone", "--lease", "2s") as worker:
        os.kill(await worker.started(1), signal.SIGKILL)
        await worker.logs("it's started again at the next change")
        write(tmp_path / "code", "version.py", "NUMBER = 2")
        await worker.started(2)
        assert await said(url) == 2
        worker.process.terminate()
        assert await worker.ends() == 0


async def test_a_ctrl_c_is_one_whatever_the_worker_is_doing(url: str, tmp_path: Path) -> None:
    """A worker that can't see its own copy of the signal for a while doesn't take what it's told for another one."""
    with reloading(url, tmp_path) as worker:
        await worker.started(1)
        async with Client(url) as client:
            handle = await client.enqueue_by_name("compute")
            await worker.logs("computing")
            os.killpg(worker.process.pid, signal.SIGINT)
            assert await handle.result(timeout=60) == "computed"
        assert await worker.ends() == 0
    assert worker.log().count(": stopping") == 1
    assert "at once" not in worker.log()


async def test_what_isn_t_code_of_the_app_s_starts_nothing_anew(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        await worker.started(1)
        for name in ("notes.txt", ".venv/some.py", "env/lib/site-packages/some.py", "__pycache__/some.py", ".git/some.py"):
            (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "code" / name).write_text("")
        write(tmp_path / "code", "version.py", "NUMBER = 2")
        await worker.started(2)
        worker.process.terminate()
        assert await worker.ends() == 0
    assert len(worker.children()) == 2
    assert worker.log().count("has changed") == 1
    assert "more have changed" not in worker.log()


def test_which_files_are_watched(tmp_path: Path) -> None:
    """By their place in the folder, wherever that lies."""
    where = tmp_path / ".venv" / "project"
    watched = {name: _is_watched(where / name, where) for name in ("a.py", "b/a.py", "a.pyc", "b/.c/a.py", "__pycache__/a.py")}
    assert watched == {"a.py": True, "b/a.py": True, "a.pyc": False, "b/.c/a.py": False, "__pycache__/a.py": False}


async def test_several_changes_at_once_are_one_restart(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        await worker.started(1)
        for number in range(20):
            (tmp_path / "code" / f"part{number}.py").write_text("")
        write(tmp_path / "code", "version.py", "NUMBER = 2")
        await worker.started(2)
        assert await said(url) == 2
        worker.process.terminate()
        assert await worker.ends() == 0
    assert len(worker.children()) == 2


async def test_what_changes_while_the_worker_stops_is_the_same_restart(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path, "--grace", "1s") as worker:
        await worker.started(1)
        async with Client(url) as client:
            await client.enqueue_by_name("wait")
        await worker.logs("waiting")
        write(tmp_path / "code", "version.py", "NUMBER = 2")
        await worker.logs(": stopping")
        write(tmp_path / "code", "version.py", "NUMBER = 3")
        await worker.started(2)
        assert await said(url) == 3
        worker.process.terminate()
        assert await worker.ends() == 0
    assert worker.log().count("has changed") == 1


async def test_code_that_can_t_be_imported_is_told_and_waits_for_the_next_change(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        await worker.started(1)
        write(tmp_path / "code", "version.py", "NUMBER = 1 / 0")
        await worker.logs("the worker has ended with exit code 2: it's started again at the next change")
        assert "ZeroDivisionError" in worker.log()
        assert "app can't be imported" in worker.log()
        write(tmp_path / "code", "version.py", "NUMBER = 3")
        await worker.started(2)
        assert await said(url) == 3
        write(tmp_path / "code", "version.py", "1 / 0")
        await worker.logs("at the next change", 2)
        worker.process.terminate()
        assert await worker.ends() == 2


@pytest.mark.parametrize(
    ("number", "whom"),
    [
        (signal.SIGINT, "its group"),
        (signal.SIGTERM, "the process"),
        pytest.param(signal.SIGINT, "the process", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, "its group", marks=pytest.mark.soak),
    ],
)
async def test_one_signal_is_one_stop(url: str, tmp_path: Path, number: int, whom: str) -> None:
    """With a job that runs: a second signal would give it back at once, rather than after the grace."""
    with reloading(url, tmp_path, "--grace", "1s") as worker:
        child = await worker.started(1)
        async with Client(url) as client:
            await client.enqueue_by_name("wait")
        await worker.logs("waiting")
        if whom == "the process":
            worker.process.send_signal(number)
        else:
            os.killpg(worker.process.pid, number)
        assert await worker.ends() == 0
    assert ": stopping\n" in worker.log()
    assert "at once" not in worker.log()
    assert "at the next change" not in worker.log()
    assert "asked to stop, since they still run" in worker.log()
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize("whom", ["the process", pytest.param("its group", marks=pytest.mark.soak)])
async def test_a_second_signal_ends_both_at_once(url: str, tmp_path: Path, whom: str) -> None:
    with reloading(url, tmp_path, "--grace", "10m") as worker:
        child = await worker.started(1)
        async with Client(url) as client:
            await client.enqueue_by_name("wait")
        await worker.logs("waiting")
        for said in (": stopping\n", ": stopping at once\n"):
            if whom == "the process":
                worker.process.send_signal(signal.SIGINT)
            else:
                os.killpg(worker.process.pid, signal.SIGINT)
            await worker.logs(said)
        assert await worker.ends() == 0
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize("changed", [set[Any](), {(1, "app.py")}], ids=["nothing", "a file"])
@pytest.mark.parametrize("when", ["during the look", "after it"])
def test_a_signal_that_has_ended_the_child_first_is_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, changed: set[Any], when: str
) -> None:
    """An idle worker ends between two looks: it's neither said to wait for a change nor started anew."""
    reloader, children = _reload._Reloader(10.0), list[object]()

    def start(_: object) -> None:
        children.append(child := subprocess.Popen([sys.executable, "-c", ""]))
        monkeypatch.setattr(reloader, "_child", child)
        monkeypatch.setattr(reloader, "_pipe", os.open(os.devnull, os.O_WRONLY))
        child.wait()

    def interrupt(_seconds: float = 0.0) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def changes() -> Iterator[set[Any]]:
        yield set()
        if when == "during the look":
            interrupt()
        else:
            monkeypatch.setattr(_reload, "time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic))
        yield changed
        yield set()

    monkeypatch.setattr(_reload._Reloader, "_start", start)
    monkeypatch.setattr(_reload.process, "_act", None)  # it's as it was afterwards
    caplog.set_level(logging.INFO, logger="aioqueue.worker")
    with reloader.taking_signals():
        assert reloader.run(changes(), tmp_path) == 0
    assert len(children) == 1
    assert [record.__dict__["event"] for record in caplog.records] == ["reload.watching"]


async def test_a_signal_before_the_worker_has_begun(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        await worker.logs("are watched")
        os.killpg(worker.process.pid, signal.SIGINT)
        assert await worker.ends() == 0, worker.log()
    assert "Traceback" not in worker.log()


async def test_a_worker_that_doesn_t_end_is_killed(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path) as worker:
        child = await worker.started(1)
        os.kill(child, signal.SIGSTOP)
        worker.process.send_signal(signal.SIGTERM)
        worker.process.send_signal(signal.SIGINT)  # a second SIGTERM might be one with the first
        assert await worker.ends() in {0, 128 + signal.SIGKILL}
    assert not psutil.pid_exists(child)


async def test_a_killed_parent_leaves_no_worker_with_old_code(url: str, tmp_path: Path) -> None:
    with reloading(url, tmp_path, "--grace", "1s") as worker:
        child = await worker.started(1)
        worker.process.kill()
        await worker.logs("has ended: ")
        await until(lambda: not psutil.pid_exists(child), "the worker's end", story=worker.log)
    assert "SIGTERM: stopping" in worker.log()


def test_it_can_t_be_had_with_once(invoke: Invoke) -> None:
    assert "--once" in invoke("worker", "tests.cli.jobs:registry", "--reload", "--once", exit_code=2).output


def test_without_watchfiles_it_says_how_to_get_it(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = invoke("worker", "tests.cli.jobs:registry", "--reload", exit_code=2)
    assert "pip install watchfiles" in result.output


def test_a_folder_that_is_not_there(invoke: Invoke) -> None:
    result = invoke("worker", "tests.cli.jobs:registry", "--reload", "--app-dir", "nowhere", exit_code=2)
    assert "--app-dir: there is no folder" in result.output
