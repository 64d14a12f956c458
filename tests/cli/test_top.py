"""`aioqueue top`: a live screen, which leaves the terminal as it was, and outlasts a database that goes away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, NewJob
from aioqueue.vocabulary._identifiers import new_id
from tests.cli.jobs import greet
from tests.postgres_server import execute
from tests.processes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from tests.cli.conftest import Invoke
    from tests.postgres_server import Server

EVIL = "[red]a[/red][link=http://x]\x1b[31m\nforged"
VISIBLE = r"[red]a[/red][link=http://x]\x1b[31m\nforged"
OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
TERMINALS = {"rich": {}, "without rich": {}, "dumb": {"TERM": "dumb"}}
WAYS_TO_END = ["q", "\x03", "SIGINT", "SIGTERM"]
# Each way and each terminal has its turn; the rest of the combinations are for the long run.
ENDS = {("rich", "q"), ("rich", "SIGTERM"), ("without rich", "\x03"), ("dumb", "SIGINT")}
ENDS_AT_ONCE = {("rich", "SIGINT"), ("rich", "SIGHUP"), ("without rich", "SIGTERM")}


def some(kinds: Iterable[str], ways: Iterable[str], by_default: set[tuple[str, str]]) -> list[Any]:
    """All pairs, of which those that aren't taken by default are for the long run."""
    pairs = [(kind, way) for kind in kinds for way in ways]
    return [pytest.param(*pair, marks=() if pair in by_default else pytest.mark.soak) for pair in pairs]


@pytest.fixture
def busy_url(each_url: str) -> str:
    fill(each_url)
    return each_url


def fill(url: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            ids = [NewJob(id=new_id(), type=EVIL), *(NewJob(id=new_id(), type="mail.send") for _ in range(5))]
            await client.store.insert(ids)
            lease_id = await client.store.open_lease("postman", 3600, types=["mail.send"], slots=4)
            assert len(await client.store.claim(lease_id, ["mail.send"], 3)) == 3

    anyio.run(put)


class Terminal:
    """`aioqueue top` on a terminal of its own, which is its controlling one."""

    def __init__(self, url: str, *options: str, without_rich: bool = False, before: str = "", **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.modes = termios.tcgetattr(self._ours)
        code = "import sys; " + ("sys.modules['rich'] = None; " if without_rich else "") + before
        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{code}from aioqueue.cli import main; main()", "top", "--interval", "200ms", *options],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**plain, "TERM": "xterm-256color", "AIOQUEUE_URL": url, **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(theirs)
        self.shown = ""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def forget(self) -> None:
        """What was shown until now isn't waited for."""
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.shown, re.DOTALL):
            assert time.monotonic() < deadline, f"not shown: {pattern}\n{self.shown[-3000:]}"
            assert self._read(), f"it has ended: {self.shown[-3000:]}"

    def end(self) -> int:
        """Read what is left; returns the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read() or self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown[-3000:]
        return self.process.wait()

    def modes_now(self) -> list[object]:
        return termios.tcgetattr(self._ours)

    def _read(self) -> bool:
        try:
            if select.select([self._ours], [], [], 0.5)[0]:
                part = os.read(self._ours, 65536)
                self.shown += part.decode(errors="replace")
                return bool(part)
        except OSError:  # the other end is closed
            return False
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def on_terminal(url: str, *options: str, kind: str = "rich", before: str = "", **environment: str) -> Generator[Terminal]:
    plain = kind == "without rich"
    terminal = Terminal(url, *options, without_rich=plain, before=before, **TERMINALS[kind], **environment)
    try:
        yield terminal
    finally:
        terminal.close()


# -- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "how"), some(TERMINALS, WAYS_TO_END, ENDS))
def test_it_ends_cleanly(url: str, kind: str, how: str) -> None:
    fill(url)
    with on_terminal(url, kind=kind) as terminal:
        terminal.wait_for("mail.send.*postman.*3/4|3/4.*mail.send.*postman")
        assert terminal.modes_now() != terminal.modes
        if len(how) == 1:
            terminal.press(how)
        else:
            terminal.process.send_signal(getattr(signal, how))
        assert terminal.end() == 0
        # As it was: its modes, its first screen, its cursor, and nothing said about an interruption.
        assert terminal.modes_now() == terminal.modes
        if kind == "dumb":
            assert "\x1b" not in terminal.shown
        else:
            assert terminal.shown.count(OTHER_SCREEN) == terminal.shown.count(FIRST_SCREEN) == 1
            assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")
        assert "Abort" not in terminal.shown
        assert "Traceback" not in terminal.shown


SIGNAL_AT_ONCE = """
import os, signal; from contextlib import contextmanager; from aioqueue.cli import _top
def pressed(ended, real=_top.pressed):
    @contextmanager
    def context():
        with real(ended):
            os.kill(os.getpid(), signal.{})
            yield
    return context()
_top.pressed = pressed
"""


@pytest.mark.parametrize(("kind", "name"), some(["rich", "without rich"], ["SIGINT", "SIGTERM", "SIGHUP"], ENDS_AT_ONCE))
def test_a_signal_as_soon_as_the_screen_is_there(url: str, kind: str, name: str) -> None:
    fill(url)
    with on_terminal(url, kind=kind, before=SIGNAL_AT_ONCE.format(name)) as terminal:
        assert terminal.end() == 0
        assert terminal.modes_now() == terminal.modes
        assert terminal.shown.count(OTHER_SCREEN) == terminal.shown.count(FIRST_SCREEN) == 1
        assert "Abort" not in terminal.shown


@pytest.mark.parametrize("kind", ["rich", pytest.param("without rich", marks=pytest.mark.soak), "dumb"])
def test_other_keys_do_nothing_and_what_changes_is_shown(url: str, kind: str) -> None:
    fill(url)
    with on_terminal(url, kind=kind) as terminal:
        terminal.wait_for("3/4")
        terminal.press("xyz\n")
        anyio.run(enqueue_greeting, url)
        terminal.wait_for(re.escape(greet.name))
        terminal.forget()
        terminal.wait_for(re.escape(greet.name))  # again and again
        terminal.press("q")
        assert terminal.end() == 0


async def enqueue_greeting(url: str) -> None:
    async with Client(url) as client:
        await client.enqueue(greet("Ada"))


@pytest.mark.parametrize("kind", ["rich", "without rich", pytest.param("dumb", marks=pytest.mark.soak)])
def test_users_texts_do_nothing_to_the_terminal(url: str, kind: str) -> None:
    fill(url)
    with on_terminal(url, kind=kind) as terminal:
        terminal.wait_for(re.escape(VISIBLE))
        terminal.press("q")
        assert terminal.end() == 0
        assert EVIL not in terminal.shown
        assert "link=http://x" in terminal.shown


@pytest.mark.parametrize("kind", ["rich", "without rich"])
def test_each_table_has_its_place_on_the_screen(url: str, kind: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=new_id(), type=f"type.{number}") for number in range(100)])
            for number in range(100):
                await client.store.open_lease(f"worker-{number}", 3600, types=["a"], slots=1)

    anyio.run(put)
    with on_terminal(url, kind=kind) as terminal:
        terminal.wait_for(r"type\.\d+ .*and \d+ more.*worker-\d+ .*and \d+ more")
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.parametrize("kind", ["rich", pytest.param("without rich", marks=pytest.mark.soak)])
def test_a_database_that_goes_away_and_comes_back(own_postgres: Server, kind: str) -> None:
    url = own_postgres.url()
    anyio.run(Client(url).migrate)
    fill(url)
    with on_terminal(url, kind=kind) as terminal:
        terminal.wait_for("3/4")
        own_postgres.kill()
        terminal.wait_for("trying again")
        terminal.forget()
        terminal.wait_for("trying again.*mail.send")  # what was seen last stays
        own_postgres.start()
        anyio.run(enqueue_greeting, url)
        terminal.wait_for(re.escape(greet.name))
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.modes_now() == terminal.modes


def test_it_may_be_started_before_the_database(own_postgres: Server) -> None:
    url = own_postgres.url()
    own_postgres.kill()
    with on_terminal(url) as terminal:
        terminal.wait_for("trying again")
        terminal.press("q")
        assert terminal.end() == 0


def test_what_isnt_a_matter_of_time_ends_it(empty_postgres_url: str) -> None:
    with on_terminal(empty_postgres_url) as terminal:
        assert terminal.end() == 1
        assert terminal.modes_now() == terminal.modes
        assert "aioqueue migrate" in terminal.shown
        assert "Traceback" not in terminal.shown
        assert terminal.shown.rindex("aioqueue migrate") > terminal.shown.rindex(FIRST_SCREEN)


# -- elsewhere --------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_looks_once(invoke: Invoke, busy_url: str) -> None:
    lines = invoke("top", "--url", busy_url).stdout.splitlines()
    assert lines[0].startswith("ready 3  scheduled 0  running 3  failed 0  oldest ready ")
    assert lines[0].endswith("1 worker, 3/4 slots busy")
    assert any(line.startswith(VISIBLE) for line in lines)
    (worker,) = [line for line in lines if line.startswith("postman")]
    assert worker.split()[-3:] == ["3", "4", "mail.send"]
    assert sum(line.endswith(" s") and " postman " in line for line in lines) == 3


def test_once_as_json(invoke: Invoke, busy_url: str) -> None:
    shown = json.loads(invoke("top", "--once", "--json", "--url", busy_url).stdout)
    assert shown["types"]["mail.send"]["counts"] == {"ready": 2, "running": 3}
    assert shown["types"][EVIL]["finished_per_second"] is None
    assert [(each["worker"], each["running"], each["slots"]) for each in shown["workers"]] == [("postman", 3, 4)]
    assert [each["type"] for each in shown["running"]] == ["mail.send"] * 3


def test_json_again_and_again_until_a_signal(url: str, tmp_path: Path) -> None:
    fill(url)
    command = [sys.executable, "-c", "from aioqueue.cli import main; main()", "top", "--json", "--interval", "100ms"]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen([*command, "--url", url], stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        for _ in range(3):
            assert json.loads(process.stdout.readline())["types"]["mail.send"]["counts"]["running"] == 3
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE) == 0
        assert all(json.loads(line)["types"] for line in rest.splitlines())
        assert (tmp_path / "errors").read_text() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_errors_as_json(own_postgres: Server) -> None:
    url = own_postgres.url()
    anyio.run(Client(url).migrate)
    command = [sys.executable, "-c", "from aioqueue.cli import main; main()", "top", "--json", "--interval", "100ms"]
    process = subprocess.Popen([*command, "--url", url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["types"] == {}
        own_postgres.kill()
        while "error" not in (shown := json.loads(process.stdout.readline())):
            pass
        assert "StoreUnavailable" in shown["error"]
        own_postgres.start()
        while "error" in json.loads(process.stdout.readline()):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_whoever_reads_may_go_away(url: str) -> None:
    fill(url)
    command = f"{sys.executable} -c 'from aioqueue.cli import main; main()' top --json --interval 100ms --url {url} | head -2"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert len(ended.stdout.splitlines()) == 2
    assert ended.stderr == ""


@pytest.mark.parametrize("options", ["", *(pytest.param(each, marks=pytest.mark.soak) for each in ("--once", "--json"))])
def test_without_standard_output(url: str, options: str) -> None:
    fill(url)
    command = f"{sys.executable} -c 'from aioqueue.cli import main; main()' top {options} --url {url} >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 2
    assert "standard output is closed" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_one_look_at_what_isnt_there(invoke: Invoke, tmp_path: Path) -> None:
    assert "there is no file" in invoke("top", "--once", exit_code=1).output
    assert list(tmp_path.iterdir()) == []
    invoke("top", "--interval", "1ms", exit_code=2)


def test_the_statements_are_bounded(postgres_url: str, invoke: Invoke) -> None:
    execute(
        postgres_url,
        "insert into aioqueue.job (id, type, state, payload) select gen_random_uuid(), 'many', 1, '{}' "
        "from generate_series(1, 10050)",
    )
    shown = json.loads(invoke("top", "--once", "--json", "--url", postgres_url).stdout)
    assert shown["types"]["many"]["counts"]["ready"] == 10_000
    assert shown["types"]["many"]["capped"] == ["ready"]
