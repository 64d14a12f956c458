"""The main example, as processes: a whole run, runs that were interrupted or killed, and workers that help."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue import Job, Phase

pytestmark = pytest.mark.anyio

FILES = 12
GATES = 2
BATCH = 5


class Scene:
    """A folder of files, a database, and the processes on them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.tree = folder / "tree"
        self.ledger = folder / "ledger"
        self.url = url
        self.folder = folder
        self.command = ("tests.examples.checksums_watched", str(self.tree), "--concurrency", "4")
        for number in range(FILES):
            file = self.tree / f"part{number % 3}" / f"file{number:02}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"same" if number < 4 else os.urandom(100 * number))
        for number in range(GATES):
            (self.tree / f"zz_gate{number}").write_bytes(b"gate %d" % number)

    @contextmanager
    def process(self, *command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CHECKSUMS_LEDGER": str(self.ledger), "PYTHONUNBUFFERED": "1"}
        environment |= variables
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", *command, "--url", self.url],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def finish(self, *options: str) -> str:
        """Start it (again) with the gate open; returns what it printed."""
        self.open()
        with self.process(*self.command, *options) as process:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        return out

    def open(self) -> None:
        (self.folder / "open").touch()

    def begun(self) -> list[tuple[int, str]]:
        """Process id and file of everything that was begun to be hashed."""
        if not self.ledger.exists():
            return []
        return [(int(line.split()[1]), line.split()[2]) for line in self.ledger.read_text().splitlines()]

    async def jobs(self, *states: JobState) -> list[Job]:
        async with Client(self.url) as client:
            return list((await client.list_jobs(types=["checksums.measure"], states=states, limit=1000)).jobs)

    async def phases_of_the_scan(self) -> list[Phase]:
        async with Client(self.url) as client:
            (scan,) = (await client.list_jobs(types=["checksums.scan"])).jobs
            return list((await client.job(scan.id)).phases)

    async def until_at_the_gate(self) -> set[str]:
        """Wait until all files but the gates are committed, and the gates are begun; gives what is committed."""

        async def there() -> bool:
            gates = {name for _pid, name in self.begun() if "gate" in name}
            return len(gates) == GATES and len(await self.jobs(JobState.COMPLETED)) == FILES

        await until(there, "the gates")
        return {os.path.basename(job.arguments["path"]) for job in await self.jobs(JobState.COMPLETED)}


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    url = f"sqlite:///{tmp_path}/queue.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return Scene(tmp_path, url)


async def check(scene: Scene, committed: set[str], begun_before: int) -> None:
    """Every file is there once, completed, and what was committed wasn't touched again."""
    jobs = await scene.jobs()
    assert len(jobs) == FILES + GATES
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert len({job.arguments["path"] for job in jobs}) == FILES + GATES
    again = {name for _pid, name in scene.begun()[begun_before:]}
    assert again.isdisjoint(committed), "what had been committed was repeated"
    assert committed | again == {path.name for path in scene.tree.rglob("*") if path.is_file()}


async def test_a_whole_run_prints_its_summary_and_isn_t_repeated(scene: Scene) -> None:
    (scene.tree / "dangling").symlink_to("nowhere")
    (scene.tree / "loop").symlink_to("loop")
    (scene.tree / os.fsdecode(b"odd \xff\n")).write_text("odd")
    os.mkfifo(scene.tree / "pipe")
    out = scene.finish()
    assert re.search(rf"^files +{FILES + GATES + 3}$", out, re.MULTILINE)
    assert re.search(r"^duplicates +3 \(12 B\), in 1 groups$", out, re.MULTILINE)
    assert re.search(r"^failures +2$", out, re.MULTILINE)
    assert re.search(r"^  dangling: FileNotFoundError: .* \(tried once\)$", out, re.MULTILINE)
    assert re.search(r"^  loop: OSError: .* \(tried 6 times\)$", out, re.MULTILINE)
    assert re.search(r"largest\n +1.1 kB  part2/file11\n", out)
    assert "slowest" in out
    begun = len(scene.begun())

    again = scene.finish()
    assert len(scene.begun()) == begun, "a finished run was repeated"
    assert out.split("largest")[1] == again.split("largest")[1]

    scene.finish("--again")
    assert len(scene.begun()) == 2 * begun


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_goes_on_when_it_is_started_again(scene: Scene, number: int) -> None:
    with scene.process(*scene.command) as process:
        committed = await scene.until_at_the_gate()
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "Start it again" in out
    begun = len(scene.begun())
    left = [job for job in await scene.jobs() if job.state is not JobState.COMPLETED]
    assert len(left) == GATES
    if number == signal.SIGINT:
        assert {job.state for job in left} == {JobState.CANCELLED}
    else:  # what was running has been given back, without an attempt counted
        assert {(job.state, job.attempt) for job in left} == {(JobState.READY, 0)}
    assert f"{FILES} files of this run were done before" in scene.finish()
    await check(scene, committed, begun)


async def test_a_killed_run_goes_on_when_it_is_started_again(scene: Scene) -> None:
    with scene.process(*scene.command) as process:
        committed = await scene.until_at_the_gate()
        process.kill()
        process.wait()
    begun = len(scene.begun())
    scene.finish()
    await check(scene, committed, begun)


async def test_a_run_that_was_killed_while_it_enqueued_is_completed(scene: Scene) -> None:
    with scene.process(*scene.command, CHECKSUMS_PAUSE="yes") as process:
        await until((scene.folder / "paused").exists, "the first batch")

        async def first_batch_done() -> bool:
            return len(await scene.jobs(JobState.COMPLETED)) == BATCH

        await until(first_batch_done, "the first batch's end")
        process.kill()
        process.wait()
    committed = {os.path.basename(job.arguments["path"]) for job in await scene.jobs()}
    assert len(committed) == BATCH
    counted, enqueueing = await scene.phases_of_the_scan()
    assert (counted.state, counted.result, enqueueing.state) == ("completed", FILES + GATES, "running")
    begun = len(scene.begun())
    scene.finish()
    again, enqueued = await scene.phases_of_the_scan()
    assert again == counted, "the files were counted again"
    assert (enqueued.state, enqueued.result) == ("completed", FILES + GATES)
    await check(scene, committed, begun)


async def test_workers_of_their_own_help(scene: Scene) -> None:
    worker = ("aioqueue.worker", "tests.examples.checksums_watched:registry", "--concurrency", "1", "--poll-interval", "0.1")
    with scene.process("tests.examples.checksums_watched", str(scene.tree), "--concurrency", "1") as process:
        await until(lambda: scene.begun(), "the example's first file")
        with scene.process(*worker) as first, scene.process(*worker) as second:
            # Two gates keep two of the three slots; all three can't be one process's.
            await scene.until_at_the_gate()
            scene.open()
            _out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            for helper in (first, second):
                helper.terminate()
                _out, err = helper.communicate(timeout=120)
                assert helper.returncode == 0, err
    counted = Counter(name for _pid, name in scene.begun())
    assert set(counted.values()) == {1}, "a file was hashed twice"
    assert len({pid for pid, _name in scene.begun()}) > 1, "nobody helped"
    await check(scene, set(), 0)
