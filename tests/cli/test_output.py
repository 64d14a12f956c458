"""Standard output that can't take everything, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TextIO

import anyio
import pytest

from aioqueue import Client, NewJob
from aioqueue.vocabulary._identifiers import new_id


def run(*command: str, url: str, stdout: TextIO | int, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "from aioqueue.cli import main; main()"
    plain = {**os.environ, "AIOQUEUE_URL": url, **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *command], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=plain
    )


def enqueue(url: str, name: str) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert([NewJob(id=new_id(), type=name)])

    anyio.run(put)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("command", ["enqueue ok", "jobs list", "jobs list --json", "jobs delete --type a --yes"])
def test_a_full_disk_is_told_in_a_line(url: str, command: str) -> None:
    enqueue(url, "a")
    for unbuffered in ("", "1") if command == "jobs list" else ("",):  # where it's written makes no difference to the others
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = run(*command.split(), url=url, stdout=full, PYTHONUNBUFFERED=unbuffered)
        assert ended.stderr == "Error: standard output can't be written: No space left on device\n"
        assert ended.returncode == 1


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252:strict"])
@pytest.mark.parametrize("command", ["jobs list", "stats"])
def test_what_the_encoding_doesnt_have_is_shown_as_an_escape(url: str, command: str, encoding: str) -> None:
    enqueue(url, "smile \N{GRINNING FACE}")
    ended = run(*command.split(), url=url, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert r"smile \U0001f600" in ended.stdout
