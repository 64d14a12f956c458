"""Hashes every file of a folder tree, one job per file: `python -m examples.checksums [FOLDER]`.

Stop it with Ctrl-C, which cancels what is left, also where other workers run it; or kill it. Start it again: it finishes the
rest, and repeats nothing that had been committed.
More workers may help, from other terminals: `python -m aioqueue.worker examples.checksums:registry`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import signal
import stat
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aioqueue import (
    AioqueueError,
    Cancellation,
    Client,
    Exponential,
    Fail,
    Fixed,
    JobError,
    JobFailed,
    JobFilter,
    JobHandle,
    JobState,
    Registry,
    Retry,
    Worker,
    current_attempt,
)
from examples.checksums_report import Progress, Results, summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
    from uuid import UUID

    from aioqueue import Call, Job

registry = Registry(prefix="checksums.")

BATCH = 500
CHUNK = 1 << 20
INSTALLED = ("site-packages", "dist-packages")
"""What lies in the standard library's folder without being part of it."""

LEASE = 6.0
"""Seconds after which the files of a killed process are taken over: short, so that a restart needn't wait long."""


@dataclass(frozen=True)
class Measured:
    """What is known about one file."""

    size: int
    digest: str
    seconds: float


# -- the jobs -----------------------------------------------------------------------------------------------------------


@registry.job(
    phases=("count", "enqueue"),
    retry=Retry(max_attempts=50, backoff=Fixed(0.2), fail_on=(FileNotFoundError, NotADirectoryError)),
)
async def scan(folder: str, *, skip: tuple[str, ...] = ()) -> int:
    """Enqueue a job for every file below the folder, and count them. This job's id is the id of the run.

    Arguments:
        folder: Encoded.
        skip: Names of folders that aren't gone into.
    """
    attempt = current_attempt()
    # Whoever watches knows early how many there are. An attempt that follows one that was killed doesn't count again.
    expected = await attempt.phase("count", count_files, folder, skip)
    return await attempt.phase("enqueue", enqueue_files, folder, skip, expected)


def count_files(folder: str, skip: tuple[str, ...]) -> int:
    """Count the files below the folder: plain functions run in a thread."""
    return sum(1 for _ in _files(decode_path(folder), skip))


async def enqueue_files(folder: str, skip: tuple[str, ...], expected: int) -> int:
    """Enqueue a job for every file that hasn't one; returns how many files there are."""
    attempt = current_attempt()
    run = attempt.job.id
    # An attempt before this one may have been killed midway: what it had committed isn't enqueued again.
    there = {job.key async for job in _jobs_of(attempt.client, run)}
    count = 0
    batch: list[Call[Measured]] = []
    for path in await asyncio.to_thread(lambda: sorted(_files(decode_path(folder), skip))):
        count += 1
        key = _key(run, path)
        if key not in there:
            batch.append(measure(folder, encode_path(path)).options(key=key, unique=True, tags=[str(run)]))
        if len(batch) == BATCH:
            await attempt.client.enqueue_many(batch)
            attempt.progress(min(100 * count / max(expected, 1), 100), f"{count} files")
            batch = []
    await attempt.client.enqueue_many(batch)
    return count


@registry.job(
    retry=Retry(max_attempts=6, backoff=Exponential(initial=0.2, maximum=5), fail_on=(FileNotFoundError, PermissionError))
)
def measure(folder: str, path: str) -> Measured:
    """Hash one file, in a thread. What can't be read is tried again, unless that's of no use."""
    began, attempt = time.perf_counter(), current_attempt()
    where = os.path.join(decode_path(folder), decode_path(path))
    size, digest = hash_file(where, lambda: attempt.cancelled, attempt.progress)
    return Measured(size, digest, time.perf_counter() - began)


def hash_file(path: str, cancelled: Callable[[], bool], progress: Callable[[float], None]) -> tuple[int, str]:
    """Read a file once.

    Arguments:
        path: Where it is.
        cancelled: Asked now and then; a thread can't be interrupted from outside.
        progress: Told how many percent of a large file are done.

    Returns:
        Its size in bytes, and the SHA-256 of its content.
    """
    digest, size = hashlib.sha256(), 0
    # Without O_NONBLOCK, opening a pipe that has taken a file's place would wait for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Fail("it isn't a file any more")
        while chunk := file.read(CHUNK):
            if cancelled():
                raise InterruptedError("stopped before the end of the file")
            digest.update(chunk)
            size += len(chunk)
            if size < found.st_size:
                progress(100 * size / found.st_size)
    return size, digest.hexdigest()


def _files(folder: str, skip: Collection[str]) -> Iterator[str]:
    """Every file below the folder, relative to it; symbolic links to folders aren't followed."""
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"{folder} isn't a folder")
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in skip]
        for name in names:
            path = os.path.join(where, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                yield os.path.relpath(path, folder)


def encode_path(path: str) -> str:
    """A path as text that any database can hold: names needn't be UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(path).hex()}"
    return f"bytes:{path.encode().hex()}" if path.startswith("bytes:") else path


def decode_path(text: str) -> str:
    """The opposite of `encode_path`."""
    return os.fsdecode(bytes.fromhex(text.removeprefix("bytes:"))) if text.startswith("bytes:") else text


def _key(run: UUID, path: str) -> str:
    return f"{run}:{hashlib.sha256(os.fsencode(path)).hexdigest()}"


async def _jobs_of(client: Client, run: UUID, states: Sequence[JobState] = ()) -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await client.list_jobs(types=[measure], tag=str(run), states=states, limit=1000, cursor=cursor)
        for job in page.jobs:
            yield job
        if (cursor := page.cursor) is None:
            return


# -- the program --------------------------------------------------------------------------------------------------------

FINISHED = [state for state in JobState if state.finished]


async def find_run(client: Client, folder: str, skip: tuple[str, ...], *, again: bool) -> JobHandle[int]:
    """Continue the folder's newest run, or begin one. What was cancelled of it isn't any more.

    Arguments:
        client: Open.
        folder: Encoded.
        skip: As of `scan`.
        again: Whether a run that is complete is left alone, and another begun.
    """
    page = await client.list_jobs(types=[scan], key=_folder_key(folder), limit=1)
    if page.jobs:
        newest = page.jobs[0]
        if newest.state is JobState.CANCELLED:
            await client.retry(newest.id)
        await client.retry(where=JobFilter(tag=str(newest.id), states=[JobState.CANCELLED]))
        complete = newest.state is JobState.COMPLETED and await _count_finished(client, newest.id) >= newest.output
        if newest.state is not JobState.FAILED and not (again and complete):
            return client.handle(scan, newest.id)
    return await client.enqueue(scan(folder, skip=skip).options(key=_folder_key(folder), unique=True))


def _folder_key(folder: str) -> str:
    return f"folder:{hashlib.sha256(folder.encode()).hexdigest()}"


async def _count_finished(client: Client, run: UUID) -> int:
    return sum([1 async for _ in _jobs_of(client, run, FINISHED)])


async def watch(client: Client, run: JobHandle[int], progress: Progress) -> Results:
    """Show how it goes, until every file is done."""
    total = expected = None
    while True:
        began = time.perf_counter()
        if total is None:
            scanned = await run.snapshot()
            expected = next((phase.result for phase in scanned.phases if phase.name == "count"), None)
            if scanned.state.finished:
                total = expected = await run.result(timeout=0)
        results = Results([job async for job in _jobs_of(client, run.id, FINISHED)], expected)
        progress.show(results)
        if total is not None and len(results.jobs) >= total:
            return results
        # Looking costs more with every file, so it's done less often then: a tenth of the time at most.
        await asyncio.sleep(max(0.2, 10 * (time.perf_counter() - began)))


async def cancel_run(client: Client, run: JobHandle[int]) -> None:
    """Cancel what is left of a run, whoever runs it; first the scan, so that it enqueues nothing more."""
    if await run.cancel(reason="interrupted") is Cancellation.CANCELLING:
        with contextlib.suppress(JobError):
            await run.result(timeout=2)
    await client.cancel(where=JobFilter(tag=str(run.id)), reason="interrupted")


async def run_checksums(folder: str, skip: tuple[str, ...], url: str, concurrency: int, *, again: bool) -> int:
    """Do it all. SIGINT cancels what is left; SIGTERM leaves it to other workers, or to the next start.

    Returns:
        The exit code.
    """
    stopped, cancelled = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGINT, cancelled.set)
    progress = Progress(sys.stderr)
    async with Client(url) as client:
        run = await find_run(client, encode_path(folder), skip, again=again)
        before = await _count_finished(client, run.id)
        if before:
            print(f"{before} files of this run were done before")
        async with Worker(client, registry, concurrency=concurrency, lease=LEASE, poll_interval=1.0, grace=2.0):
            watching = asyncio.create_task(watch(client, run, progress))
            ends = [watching, *(asyncio.create_task(each.wait()) for each in (stopped, cancelled))]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in ends:
                    each.cancel()
                await asyncio.wait(ends)
                progress.end()
            if watching.cancelled() and cancelled.is_set():
                await cancel_run(client, run)
    if watching.cancelled():
        print("\nInterrupted. Start it again, and it goes on from here.")
        return 130
    print(summary(watching.result(), before))
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.checksums", description="Hash a folder tree, one job per file.")
    parser.add_argument("folder", nargs="?", help="by default Python's standard library")
    parser.add_argument("--url", default=os.environ.get("AIOQUEUE_URL") or "sqlite:///aioqueue.db", help="the database")
    parser.add_argument("--concurrency", type=int, default=8, help="files at once")
    parser.add_argument("--again", action="store_true", help="begin anew, even though the last run is complete")
    arguments = parser.parse_args()
    folder = os.path.realpath(os.path.expanduser(arguments.folder or sysconfig.get_path("stdlib")))
    skip = () if arguments.folder else INSTALLED
    print(f"hashing {ascii(folder)[1:-1]} with {arguments.concurrency} slots")
    try:
        return asyncio.run(run_checksums(folder, skip, arguments.url, arguments.concurrency, again=arguments.again))
    except JobFailed as error:
        print(f"the folder can't be read: {error.last_error}", file=sys.stderr)
    except AioqueueError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
