"""Whether the file and all around it are as they should be: what `aioqueue doctor` asks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aioqueue.sqlite import _diagnosis_contents as contents
from aioqueue.sqlite import _diagnosis_file as file
from aioqueue.store_rules._diagnosis import CHECK_SECONDS, run_checks
from aioqueue.vocabulary._finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.sqlite._options import Options
    from aioqueue.vocabulary._finding import Finding

__all__ = ["diagnose"]


async def diagnose(options: Options, *, longest: float = CHECK_SECONDS) -> list[Finding]:
    """Make all checks, in threads, as a disk may not answer.

    Arguments:
        options: The store's.
        longest: Seconds that each check may take.
    """
    path = options.path

    async def made(checks: dict[str, Callable[[], list[Finding]]]) -> list[Finding]:
        return await run_checks({name: partial(_in_a_thread, each) for name, each in checks.items()}, longest=longest)

    findings = await made(
        {
            "file": partial(file.there, path),
            "filesystem": partial(file.local, options),
            "writable": partial(file.writable, path),
            "disk": partial(file.space, path),
        }
    )
    if any(each.check == "file" and each.verdict is not Verdict.OK for each in findings):
        return findings  # there is nothing in it to be looked at
    return findings + await made(
        {
            "schema": partial(contents.schema, options),
            "journal_mode": partial(contents.journal_mode, path),
            "wal": partial(contents.wal, path, options.wal_limit),
            "integrity": partial(contents.integrity, path, longest / 3),
        }
    )


async def _in_a_thread(check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check in a daemon thread of its own: the ends of loop and process don't wait for one that hangs."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Finding]] = loop.create_future()

    def tell(findings: list[Finding], error: BaseException | None) -> None:
        if answer.done():  # nobody waits any more
            return
        if error is None:
            answer.set_result(findings)
        else:
            answer.set_exception(error)

    def run() -> None:
        findings: list[Finding] = []
        raised: BaseException | None = None
        try:
            findings = check()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            raised = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, findings, raised)

    thread = threading.Thread(target=run, name="aioqueue diagnosis", daemon=True)
    contextvars.Context().run(thread.start)  # what hangs doesn't carry its caller along
    return await answer
