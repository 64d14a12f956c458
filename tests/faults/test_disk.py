"""Disks that are full, for a while."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from aioqueue import JobState
from tests.faults import app
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.scene import Scene
    from tests.postgres_server import Server

pytestmark = pytest.mark.anyio

LIMIT = 128 * 1024
"""Bytes that a file may have: enough for the ledger and the log, not for SQLite's."""


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of a running process")
async def test_a_worker_that_cant_write_to_sqlites_files(scene_on_sqlite: Scene) -> None:
    scene, gate = scene_on_sqlite, scene_on_sqlite.gate()
    async with scene.client() as client:
        worker = scene.worker(lease="600s", renew_every="60s")
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(4)])
        handles += await client.enqueue_many([app.nap(0) for _ in range(400)])
        await scene.started(4)
        _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (LIMIT, hard))
        gate.touch()
        await worker.wait_for(r"(?i)disk")
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (hard, hard))
        jobs = await scene.finished(handles)
    assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, worker.pid)}
    assert scene.ledger.count("start") == len(jobs)
    await scene.check(jobs)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of that size; skips the test where none can be mounted."""
    folder.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("file systems are mounted by root on Linux only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def move_log_to(server: Server, disk: Path) -> None:
    """The write-ahead log lives on that disk from now on."""
    server.stop()
    log = server.data / "pg_wal"
    moved = disk / "pg_wal"
    shutil.copytree(log, moved)
    shutil.rmtree(log)
    log.symlink_to(moved)
    if server.user is not None:
        for path in (disk, moved, *moved.rglob("*")):
            shutil.chown(path, server.user)
        disk.chmod(0o755)
        moved.chmod(0o700)
    server.start()


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))
    return filler


def out_of_log(server: Server) -> bool:
    """Write to the log until there's no room; the server then ends itself, as PostgreSQL does."""
    try:
        server.execute("select pg_logical_emit_message(false, 'fill', repeat('x', 4000000))")
    except psycopg.Error:
        return "No space left on device" in server.log.read_text(errors="replace")
    return False


@pytest.mark.soak  # it mounts a file system
async def test_a_full_disk_for_postgresqls_log(postgres_scene: Scene, own_postgres: Server) -> None:
    """The server crashes, and comes back when there's room: what was acknowledged is there, no attempt is lost."""
    scene, gate = postgres_scene, postgres_scene.gate()
    with small_disk(own_postgres.directory / "disk", 96) as disk:
        move_log_to(own_postgres, disk)
        async with scene.client() as client:
            handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
            handles += await client.enqueue_many([app.nap(0) for _ in range(30)])
            worker = scene.worker(lease="600s", renew_every="1s", concurrency="3")
            await scene.started(3)
            filler = fill(disk)
            await until(lambda: out_of_log(own_postgres), "a full disk")
            gate.touch()
            await scene.ended(3)
            await worker.wait_for(r"(?i)reach|connect|refused|closed|terminat")
            filler.unlink()
            own_postgres.restart(immediate=True)
            jobs = await scene.finished(handles)
        assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
        assert worker.alive
        await scene.check(jobs)
        scene.close()
        own_postgres.stop()
