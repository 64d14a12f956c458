"""Whether the file and all around it are as they should be: what `aioqueue doctor` asks."""

from __future__ import annotations

import asyncio
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
        return await run_checks({name: partial(asyncio.to_thread, each) for name, each in checks.items()}, longest=longest)

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
            "schema": partial(contents.schema, path),
            "wal": partial(contents.wal, path, options.wal_limit),
            "integrity": partial(contents.integrity, path, longest / 3),
        }
    )
