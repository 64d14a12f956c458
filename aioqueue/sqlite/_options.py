"""What a SQLite URL says, and whether its file can be used at all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._numbers import read_duration
from aioqueue.vocabulary._time import seconds

__all__ = ["Options", "network_file_system", "read_options"]

_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "glusterfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "smb", "smb3", "smbfs", "vboxsf", "virtiofs", "gfs2", "ocfs2"}
)
_HALF_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to use one database file.

    Attributes:
        path: The file.
        synchronous: `normal` survives a crash of the process, and may lose the last commits with the machine's power;
            `full` survives that too, and waits for the disk at every commit (https://sqlite.org/pragma.html).
        busy_timeout: Seconds that a write waits for other processes' transactions.
        poll_interval: Seconds between two looks for other processes' commits.
        wal_limit: Bytes that the write-ahead log may keep.
        allow_network: Use a file on a network file system all the same.
        create: Whether the file and its tables are made where there are none.
    """

    path: Path
    synchronous: str = "normal"
    busy_timeout: float = 30.0
    poll_interval: float = 0.01
    wal_limit: int = 16 * 1024 * 1024
    allow_network: bool = False
    create: bool = True


def read_options(url: str, given: dict[str, Any]) -> Options:
    """Read a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, with options as `?synchronous=full`.

    Arguments:
        url: The URL.
        given: The same options as keyword arguments; they win.

    Raises:
        ConfigurationError: It names no file, or an option isn't known or can't be read.
    """
    scheme, separator, rest = url.partition("://")
    if scheme.lower() != "sqlite" or not separator:
        raise ConfigurationError(f"a SQLite URL begins with sqlite:///, not {url!r}")
    if not rest.startswith("/"):
        raise ConfigurationError(
            f"a SQLite URL has three slashes before a relative path and four before an absolute one: {url!r}"
        )
    # Not read by urlsplit, which drops what follows a `#`: two files of which only that differs would be one.
    written, _, query = rest[1:].partition("?")
    if _HALF_ENCODED.search(written):
        raise ConfigurationError(f"a % in a path is written as %25: {url!r}")
    path = unquote(written)
    if path in {"", ":memory:"} or path.startswith("file:"):
        raise ConfigurationError(
            f"{url!r} names no file. A database in memory can't be shared between connections and processes: "
            "give a file, such as sqlite:///jobs.db, or one in a temporary directory"
        )
    if "\0" in path:
        raise ConfigurationError("a path can't hold a NUL character")
    values: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True)) | given
    if unknown := sorted(set(values) - set(_READERS)):
        raise ConfigurationError(
            f"SQLite knows no option {', '.join(unknown)}; there are {', '.join(_READERS)}. (A ? in a path is written as %3F.)"
        )
    return Options(path=Path(os.path.abspath(path)), **{name: _READERS[name](value, name) for name, value in values.items()})


def _synchronous(value: object, name: str) -> str:
    text = str(value).lower()
    if text not in {"normal", "full", "extra"}:
        raise ConfigurationError(f"{name} must be normal, full or extra, not {value!r}")
    return text


def _duration(value: Any, name: str) -> float:
    return seconds(read_duration(value, name) if isinstance(value, str) else value, name, positive=True)


def _size(value: Any, name: str) -> int:
    try:
        size = int(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be a number of bytes, not {value!r}") from None
    if size < 0:
        raise ConfigurationError(f"{name} must not be negative, not {value!r}")
    return size


def _flag(value: object, name: str) -> bool:
    text = str(value).lower()
    if text not in {"1", "0", "true", "false", "yes", "no"}:
        raise ConfigurationError(f"{name} must be true or false, not {value!r}")
    return text in {"1", "true", "yes"}


_READERS: dict[str, Any] = {
    "synchronous": _synchronous,
    "busy_timeout": _duration,
    "poll_interval": _duration,
    "wal_limit": _size,
    "allow_network": _flag,
    "create": _flag,
}


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Find out whether a path is on a network file system, whose locks SQLite can't rely on.

    Arguments:
        path: The database file; its directory need not exist yet.
        mounts: The text of `/proc/self/mounts`; read, where there is one, if it isn't given.

    Returns:
        The file system's type, or None: it isn't, or it can't be told.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    real = os.path.realpath(path)
    longest, found = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # a later mount on the same point hides the earlier one
            longest, found = len(point), fields[2]
    return found if found in _NETWORK else None
