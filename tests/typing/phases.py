"""Never run: what both type checkers must know about phases and progress."""

from __future__ import annotations

from functools import partial
from typing import Any, assert_type

from aioqueue import Attempt, Call, Phase, PhaseError, PhaseState, Progress, Registry, current_attempt

registry = Registry()


async def download(url: str, *, tries: int = 1) -> bytes:
    return url.encode() * tries


def measure(data: bytes) -> int:
    return len(data)


async def nothing() -> None: ...


class Uploader:
    async def upload(self, name: str) -> list[str]:
        return [name]


@registry.job(phases=("download", "measure", "upload"), capture_logs=True)
async def build(url: str) -> int:
    attempt = current_attempt()
    data = await attempt.phase("download", download, url, tries=2)
    assert_type(data, bytes)
    assert_type(await attempt.phase("measure", measure, data), int)
    assert_type(await attempt.phase("upload", Uploader().upload, "a"), list[str])
    assert_type(await attempt.phase("upload", partial(download, "a")), bytes)
    assert_type(await attempt.phase("nothing", nothing), None)
    attempt.progress(50)
    attempt.progress(12.5, "halfway")
    assert_type(await attempt.phase_results(), dict[str, Any])
    assert_type(attempt.last_progress, Progress | None)
    return len(data)


@registry.job(phases=["measure"])
def build_in_thread(url: str) -> int:
    attempt = current_attempt()
    attempt.progress(1, message=None)
    assert_type(attempt.from_thread(attempt.phase_results), dict[str, Any])
    return len(url)


declared = registry.declare(name="declared")(build_in_thread.fn)


@registry.implement(declared, phases=("a", "b"), capture_logs=False)
def implemented(url: str) -> int:
    return len(url)


assert_type(build("a"), Call[int])


def fields(attempt: Attempt, phase: Phase, progress: Progress, error: PhaseError) -> None:
    assert_type(attempt.job_type.phases, tuple[str, ...])
    assert_type(phase.state, PhaseState)
    assert_type(progress.percent, float)
    assert_type(error.phase, str)
