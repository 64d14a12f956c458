"""The example, and workers of it, with a ledger of what was hashed, and files at which it waits to be stopped.

`python -m tests.examples.checksums_watched FOLDER …` is the example; `tests.examples.checksums_watched:registry` is for
workers. Every file that is hashed is a line in the ledger. One whose name has `gate` in it isn't hashed before a file
`open` lies beside the ledger. With `CHECKSUMS_PAUSE` the scan waits for it too, after its first batch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from aioqueue import Client
from examples import checksums
from tests.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from aioqueue import Call, JobHandle

LEDGER = Path(os.environ["CHECKSUMS_LEDGER"])
registry = checksums.registry
_hash_file = checksums.hash_file

die_with_parent()


def _watched(path: str, cancelled: Callable[[], bool], progress: Callable[[float], None]) -> tuple[int, str]:
    _write(f"begin {os.getpid()} {ascii(os.path.basename(path))[1:-1].replace(' ', '_')}")
    while "gate" in os.path.basename(path) and not LEDGER.with_name("open").exists():
        if cancelled():
            raise InterruptedError("stopped at the gate")
        time.sleep(0.02)
    return _hash_file(path, cancelled, progress)


def _write(line: str) -> None:
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


async def _enqueue_and_pause(self: Client, calls: Iterable[Call[Any]]) -> list[JobHandle[Any]]:
    handles = await _enqueue_many(self, calls)
    LEDGER.with_name("paused").touch()
    while not LEDGER.with_name("open").exists():
        await anyio.sleep(0.02)
    return handles


checksums.hash_file = _watched
_enqueue_many = Client.enqueue_many
if "CHECKSUMS_PAUSE" in os.environ:
    checksums.BATCH = 5
    Client.enqueue_many = _enqueue_and_pause

if __name__ == "__main__":
    sys.exit(checksums.main())
