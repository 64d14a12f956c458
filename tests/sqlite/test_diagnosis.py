"""What `aioqueue doctor` sees of a SQLite file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest

from aioqueue import Client, StoreUnavailable, Verdict
from aioqueue.sqlite import _diagnosis, _diagnosis_contents, _diagnosis_file, make_store
from aioqueue.sqlite._options import Options, read_options
from tests.processes import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue import Finding

pytestmark = pytest.mark.anyio


async def verdicts(url: str) -> dict[str, Verdict]:
    findings = await make_store(url).diagnose()
    assert len({each.check for each in findings}) == len(findings)
    return {each.check: each.verdict for each in findings}


async def finding(url: str, check: str) -> Finding:
    (found,) = [each for each in await make_store(url).diagnose() if each.check == check]
    return found


@pytest.fixture
async def path(url: str, tmp_path: Path) -> Path:
    """A file with the schema."""
    await make_store(url).migrate()
    await until(lambda: not (tmp_path / "jobs.db-wal").exists(), "the end of the connection")
    return tmp_path / "jobs.db"


async def test_all_is_well(url: str, path: Path) -> None:
    before = sorted(each.name for each in path.parent.iterdir())
    checks = ["disk", "file", "filesystem", "integrity", "journal_mode", "schema", "wal", "writable"]
    found = await verdicts(url)
    assert sorted(found) == checks
    assert set(found.values()) == {Verdict.OK}
    async with Client(url):  # beside somebody who uses it
        assert set((await verdicts(url)).values()) == {Verdict.OK}
    assert sorted(each.name for each in path.parent.iterdir()) == before


async def test_a_file_that_isnt_there_isnt_made(url: str, tmp_path: Path) -> None:
    found = await verdicts(url)
    assert found["file"] is Verdict.PROBLEM
    assert "schema" not in found
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_goes_away_meanwhile_isnt_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        _diagnosis_contents.schema(Options(path=tmp_path / "jobs.db"))
    assert list(tmp_path.iterdir()) == []


async def test_an_older_schema_stays_as_it_is(url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM migration WHERE number > 1")
    for _ in range(2):
        found = await finding(url, "schema")
        assert found.verdict is Verdict.WARNING
        assert "0002_extra_leases" in found.seen


async def test_a_newer_schema(url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO migration VALUES (9999, '9999_later', 9999, 0)")
    found = await finding(url, "schema")
    assert found.verdict is Verdict.PROBLEM
    assert "9999_later" in found.seen


async def test_a_file_that_holds_something_else(url: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"no database" * 1000)
    found = await verdicts(url)
    assert (found["schema"], found["integrity"]) == (Verdict.PROBLEM, Verdict.PROBLEM)
    assert (found["journal_mode"], found["wal"]) == (Verdict.UNKNOWN, Verdict.UNKNOWN)  # and the others were made all the same


async def test_a_file_with_a_table_of_the_same_name(url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.execute("CREATE TABLE job (name TEXT)")
    found = await finding(url, "schema")
    assert found.verdict is Verdict.PROBLEM
    assert "job already exists" in found.seen


async def test_a_file_whose_tables_are_gone(url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE archive")
    found = await finding(url, "schema")
    assert found.verdict is Verdict.PROBLEM
    assert "archive" in found.seen


async def test_a_damaged_file(url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA journal_mode = delete; CREATE TABLE big (text); CREATE INDEX big_text ON big (text);"
            "INSERT INTO big WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
            " SELECT hex(randomblob(100)) FROM n;"
        )
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 4096 * 40)
        file.write(os.urandom(4096 * 20))
    found = await finding(url, "integrity")
    assert found.verdict is Verdict.PROBLEM
    assert "damaged" in found.seen


async def test_reading_the_whole_file_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnosis_contents, "_STEPS_BETWEEN_LOOKS", 1)
    (found,) = _diagnosis_contents.integrity(path, -1.0)
    assert found.verdict is Verdict.UNKNOWN
    assert "quick_check" in found.advice


async def test_a_reader_that_starves_the_checkpoint(path: Path) -> None:
    options = read_options(f"sqlite:///{path}?wal_limit=0", {})
    with closing(sqlite3.connect(path, isolation_level=None)) as reader, closing(sqlite3.connect(path)) as writer:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM job").fetchall()
        writer.executescript("CREATE TABLE filler (text); PRAGMA wal_autocheckpoint = 0;")
        writer.execute("INSERT INTO filler VALUES (zeroblob(70000000))")
        writer.commit()
        (found,) = [each for each in await _diagnosis.diagnose(options) if each.check == "wal"]
    assert found.verdict is Verdict.WARNING
    assert "reader" in found.seen


async def test_what_may_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everything, so the answer is made up.
    monkeypatch.setattr(os, "access", lambda each, mode: not mode & os.W_OK or each == path)
    (folder,) = _diagnosis_file.writable(path)
    assert folder.verdict is Verdict.PROBLEM
    assert str(path.parent) in folder.seen
    monkeypatch.setattr(os, "access", lambda each, _: each != path)
    (file,) = _diagnosis_file.writable(path)
    assert (file.verdict, str(path) in file.seen) == (Verdict.PROBLEM, True)


HANGING = """
import functools, shutil, threading
from aioqueue.cli import main
from aioqueue.sqlite import _store, _diagnosis
shutil.disk_usage = lambda _: threading.Event().wait()
_store.diagnose = functools.partial(_diagnosis.diagnose, longest=0.5)
main()
"""


@pytest.mark.usefixtures("path")
async def test_a_disk_that_never_answers_holds_up_nothing(url: str) -> None:
    with anyio.fail_after(PATIENCE):
        ended = await anyio.run_process([sys.executable, "-c", HANGING, "doctor", "--url", url], check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"no answer within 0.5 s" in ended.stdout
    assert b"no jobs are due" in ended.stdout


async def test_another_journal_mode_stays_as_it_is(url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
    before = path.read_bytes()
    found = {each.check: each for each in await Client(url).diagnose()}
    assert found["journal_mode"].verdict is Verdict.WARNING
    assert found["queue"].seen == "not looked at, because of journal_mode"
    assert path.read_bytes() == before


async def test_a_disk_that_is_nearly_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    for free, verdict in ((2**30, Verdict.OK), (100 * 2**20, Verdict.WARNING), (2**20, Verdict.PROBLEM)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: Usage(free))
        (found,) = _diagnosis_file.space(path)
        assert found.verdict is verdict


async def test_a_network_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnosis_file, "network_file_system", lambda _: "nfs4")
    (refused,) = _diagnosis_file.local(read_options(f"sqlite:///{path}", {}))
    (allowed,) = _diagnosis_file.local(read_options(f"sqlite:///{path}?allow_network=true", {}))
    assert (refused.verdict, allowed.verdict) == (Verdict.PROBLEM, Verdict.WARNING)
    assert "nfs4" in refused.seen


async def test_the_queue_on_a_network_file_system(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It's looked at where that is allowed, and refused as it's to every client where it isn't."""
    for module in ("_diagnosis_file", "_store"):
        monkeypatch.setattr(f"aioqueue.sqlite.{module}.network_file_system", lambda _: "nfs4")
    refused = {each.check: each for each in await Client(url).diagnose()}
    assert "nfs4" in refused["queue"].seen
    allowed = {each.check: each for each in await Client(f"{url}?allow_network=true").diagnose()}
    assert allowed["types"].verdict is Verdict.OK
