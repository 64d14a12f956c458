"""Checks of a diagnosis: the file, its folder and its disk. They never open it, which would end locks of this process."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from aioqueue.sqlite._options import network_file_system
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite._options import Options

__all__ = ["local", "megabytes", "space", "there", "writable"]

_LITTLE_SPACE_BYTES = 256 * 2**20
_NO_SPACE_BYTES = 16 * 2**20


def there(path: Path) -> list[Finding]:
    """Whether there is a file."""
    if path.is_dir():
        return [Finding("file", Verdict.PROBLEM, f"{path} is a folder", "Name a file in it.")]
    if not path.exists():
        seen = f"there is no file {path}: nothing was ever enqueued there, or it is another one"
        return [Finding("file", Verdict.PROBLEM, seen, "Check the URL; a relative path begins in the working folder.")]
    return [Finding("file", Verdict.OK, f"{path}, {megabytes(path.stat().st_size)}")]


def local(options: Options) -> list[Finding]:
    """Whether it's on a disk of this machine."""
    kind = network_file_system(options.path)
    if kind is None:
        return [Finding("filesystem", Verdict.OK, "it's on no network file system that is known here")]
    seen = f"{options.path} is on a network file system ({kind}), whose locks SQLite can't rely on"
    verdict = Verdict.WARNING if options.allow_network else Verdict.PROBLEM
    return [Finding("filesystem", verdict, seen, "Use a local disk, or PostgreSQL.")]


def writable(path: Path) -> list[Finding]:
    """Whether this user may write the file, and make the two that stand beside it."""
    user = f"the user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
    findings: list[Finding] = []
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if each.exists() and not os.access(each, os.R_OK | os.W_OK):
            advice = "Give the file to the user whom the workers run as."
            findings.append(Finding("writable", Verdict.PROBLEM, f"{user} may not read and write {each}", advice))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        seen = f"{user} may make no files in {path.parent}, where the write-ahead log has to be"
        findings.append(Finding("writable", Verdict.PROBLEM, seen, "Give the folder to the user whom the workers run as."))
    return findings or [Finding("writable", Verdict.OK, f"{user} may write the file and its folder")]


def space(path: Path) -> list[Finding]:
    """How much room is left on the disk."""
    free = shutil.disk_usage(path.parent).free
    seen = f"{megabytes(free)} are free on the disk of {path.parent}"
    if free >= _LITTLE_SPACE_BYTES:
        return [Finding("disk", Verdict.OK, seen)]
    verdict = Verdict.PROBLEM if free < _NO_SPACE_BYTES else Verdict.WARNING
    return [Finding("disk", verdict, seen, "Make room: when it's full, nothing can be enqueued or completed.")]


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 2**20:,.1f} MiB"
