"""The types of handlers in processes of their own."""

from __future__ import annotations

from typing import Any, assert_type

from aioqueue import Call, NotInProcess, ProcessFailed, Registry, Retry, current_attempt

registry = Registry()


@registry.job(executor="process", timeout=60, retry=Retry(fail_on=(ProcessFailed, NotInProcess)))
def resize(path: str) -> int:
    attempt = current_attempt()
    assert_type(attempt.from_thread(attempt.phase_results), dict[str, Any])
    return len(path)


@registry.job(executor="thread")
def in_thread(path: str) -> None:
    del path


declared = registry.declare(name="declared")(in_thread.fn)


@registry.implement(declared, executor="process")
def implemented(path: str) -> None:
    del path


assert_type(resize("a"), Call[int])
assert_type(ProcessFailed("no", exit_code=-9).exit_code, int | None)
