"""The example, and workers of it, with a ledger of what was hashed, and files at which it waits to be stopped.

`python -m tests.examples.checksums_watched FOLDER …` is the example; `tests.examples.checksums_watched:registry` is for
workers. Every file that is hashed is a line in the ledger. One whose name has `gate` in it isn't hashed before a file
`open` lies beside the ledger.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples import checksums
from tests.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

LEDGER = Path(os.environ["CHECKSUMS_LEDGER"])
registry = checksums.registry
_hash_file = checksums.hash_file

die_with_parent()


def _watched(path: str, cancelled: Callable[[], bool]) -> tuple[int, str]:
    _write(f"begin {os.getpid()} {os.path.basename(path)}")
    while "gate" in os.path.basename(path) and not LEDGER.with_name("open").exists():
        if cancelled():
            raise InterruptedError("stopped at the gate")
        time.sleep(0.02)
    return _hash_file(path, cancelled)


def _write(line: str) -> None:
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


checksums.hash_file = _watched

if __name__ == "__main__":
    sys.exit(checksums.main())
