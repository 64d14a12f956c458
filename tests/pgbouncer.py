"""PgBouncer in transaction mode in front of the tests' server, where it's installed.

`AIOQUEUE_TEST_PGBOUNCER` names its program; otherwise it's looked for where Debian puts it, and in PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg

from tests.postgres_server import PATIENCE, _system_user, _temporary_root
from tests.processes import die_with_parent


def program() -> str | None:
    """Where PgBouncer is, if it is."""
    return os.environ.get("AIOQUEUE_TEST_PGBOUNCER") or shutil.which(
        "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
    )


def version() -> tuple[int, ...]:
    """Such as (1, 24, 1)."""
    name = program()
    assert name is not None
    output = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)\.(\d+)", output)
    assert found is not None, output
    return tuple(map(int, found.groups()))


class Bouncer:
    """One PgBouncer in front of a database's server.

    Arguments:
        url: The database behind it.
        prepared_statements: Its `max_prepared_statements`; 0 leaves the setting out, which old ones don't know.
        pool_size: Connections to the server.
    """

    def __init__(self, url: str, *, prepared_statements: int = 0, pool_size: int = 2) -> None:
        parts = urlsplit(url)
        user = _system_user()
        name = program()
        assert name is not None
        self.directory = Path(tempfile.mkdtemp(prefix="aioqueue-pgb-", dir=_temporary_root()))
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = parts._replace(netloc=f"postgres@127.0.0.1:{self.port}").geturl()
        (self.directory / "users").write_text('"postgres" ""\n')
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.directory / "users",
            "pool_mode": "transaction",
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            "server_lifetime": 3600,
        }
        if prepared_statements:
            settings["max_prepared_statements"] = prepared_statements
        lines = [f"{key} = {value}" for key, value in settings.items()]
        databases = f"[databases]\n* = host=127.0.0.1 port={parts.port}\n\n[pgbouncer]\n"
        (self.directory / "settings").write_text(databases + "\n".join(lines) + "\n")
        self.directory.chmod(0o755)
        self.log = self.directory / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [name, str(self.directory / "settings")], user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    def __enter__(self) -> Self:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url).close()
                return self
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise AssertionError("PgBouncer doesn't start") from error
                time.sleep(0.03)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
