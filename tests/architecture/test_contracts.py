"""The contracts about imports ring: each fails, alone, when what it forbids is done somewhere in a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ONLY_FOR_THE_CHECKER = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}"

# What is added to which files, and the contracts that it breaks. (Whoever imports a higher layer is in a circle with it too.)
BROKEN: list[tuple[dict[str, str], list[str]]] = [
    ({"vocabulary/_job.py": "import aioqueue.definitions"}, ["circles", "layers"]),
    ({"runtime/_log.py": "import aioqueue.vocabulary"}, ["circles", "layers"]),
    ({"abc.py": "from aioqueue.client import Client"}, ["circles", "layers"]),
    ({"client/_handle.py": "from aioqueue.worker import Worker"}, ["circles", "layers"]),
    ({"testing/__init__.py": "from aioqueue.worker import Worker"}, ["layers"]),
    ({"worker/_run.py": "from aioqueue.testing import CASES"}, ["layers"]),
    ({"worker/_run.py": "from aioqueue.cli import main"}, ["circles", "layers"]),
    ({"errors/__init__.py": ONLY_FOR_THE_CHECKER.format("from aioqueue.vocabulary._job import Job")}, ["circles", "layers"]),
    ({"errors/__init__.py": "def late() -> None:\n    from aioqueue.vocabulary._job import Job"}, ["circles", "layers"]),
    ({"shelf.py": ""}, ["layers"]),
    ({"shelf/__init__.py": "import aioqueue.errors"}, ["layers"]),
    (
        {"runtime/_exits.py": "from aioqueue.runtime import _ring", "runtime/_ring.py": "import aioqueue.runtime._exits"},
        ["circles"],
    ),
    ({"worker/_run.py": "import aioqueue"}, ["front"]),
    ({"worker/_run.py": ONLY_FOR_THE_CHECKER.format("from aioqueue import Client")}, ["front"]),
    ({"worker/_run.py": "import aioqueue.client._session"}, ["private"]),
    ({"worker/_run.py": ONLY_FOR_THE_CHECKER.format("from aioqueue.client._handle import JobHandle")}, ["private"]),
    ({"client/_stores.py": "import aioqueue.postgres"}, ["adapters"]),
    ({"definitions/_resources.py": "from aioqueue.postgres import PostgresStore"}, ["adapters"]),
    ({"testing/__init__.py": "def late() -> None:\n    import aioqueue.sqlite"}, ["adapters"]),
    ({"__init__.py": "from aioqueue.sqlite import SQLiteStore"}, ["adapters"]),
    ({"vocabulary/_codec.py": "import asyncpg"}, ["asyncpg"]),
    ({"abc.py": ONLY_FOR_THE_CHECKER.format("from asyncpg import Connection")}, ["asyncpg"]),
    ({"store_rules/_new.py": "import asyncpg"}, ["asyncpg"]),
    ({"__init__.py": "import asyncpg.exceptions"}, ["asyncpg"]),
    ({"runtime/_log.py": "import sqlite3"}, ["sqlite3"]),
    ({"testing/_new.py": "from sqlite3 import Connection"}, ["sqlite3"]),
    ({"postgres/_rows.py": "import sqlite3"}, ["sqlite3"]),
    ({"worker/_run.py": "import click"}, ["click"]),
    ({"worker/_run.py": "import rich.text"}, ["rich"]),
    ({"worker/_webhooks.py": "import httpx"}, ["webhooks"]),
    ({"client/_client.py": "from standardwebhooks import Webhook"}, ["webhooks"]),
    ({"definitions/_timing.py": "def late() -> None:\n    from cronsim import CronSim"}, ["cronsim"]),
    ({"worker/_run.py": "from opentelemetry import trace"}, ["opentelemetry"]),
    ({"telemetry/_new.py": "import aioqueue.definitions._call"}, ["layers"]),
    ({"definitions/_settings.py": "import aioqueue.telemetry"}, ["layers"]),
    ({"sqlite/_rows.py": "import aioqueue.runtime._batcher"}, ["sqlite"]),
    ({"sqlite/_rows.py": "import anyio.abc\nimport aiosqlite"}, ["sqlite"]),
    ({"sqlite/_rows.py": "import asyncpg"}, ["asyncpg", "sqlite"]),
    ({"sqlite/_rows.py": "import aioqueue.postgres"}, ["adapters", "layers", "sqlite"]),
    ({"postgres/_rows.py": "from aioqueue.runtime import _batcher"}, ["postgres"]),
    ({"postgres/_rows.py": ONLY_FOR_THE_CHECKER.format("from aioqueue.runtime._exits import traceback_of")}, ["postgres"]),
    ({"postgres/_new.py": "import psycopg"}, ["postgres"]),
    ({"postgres/_rows.py": "import aioqueue.definitions._call"}, ["layers", "postgres"]),
]


def _kind(change: dict[str, str]) -> str:
    """How it imports: at once, only for the checker, or late."""
    (text, *_) = change.values()
    return "checker" if "TYPE_CHECKING" in text else "late" if "def late" in text else "at once"


def _first_of_their_kind() -> set[int]:
    """The first change that breaks these contracts, and the first that does so in this way."""
    first: dict[object, int] = {}
    for number, (change, contracts) in enumerate(BROKEN):
        first.setdefault(tuple(contracts), number)
        first.setdefault((_kind(change), contracts[-1]), number)
    return set(first.values())


BREAKS = "test_a_contract_fails_when_it_is_broken"
# The others are further doors to the same contracts.
BY_DEFAULT = _first_of_their_kind()


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """The contracts that are broken in a copy: as it is (-1), and for each change that is asked for."""
    here = [each.name for each in request.session.items if each.path == Path(__file__)]
    numbers = [number for number in range(len(BROKEN)) if any(name.startswith(f"{BREAKS}[{number}-") for name in here)]
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "aioqueue", folder / "aioqueue", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.architecture.lint_copies", str(folder)],
        input=json.dumps([BROKEN[number][0] for number in numbers]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip([-1, *numbers], json.loads(done.stdout), strict=True))


def test_an_unchanged_copy_keeps_all_contracts(found: dict[int, list[str]]) -> None:
    assert found[-1] == []


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=f"{number}-{'+'.join(change)}-{'+'.join(contracts)}",
            marks=() if number in BY_DEFAULT else pytest.mark.soak,
        )
        for number, (change, contracts) in enumerate(BROKEN)
    ],
)
def test_a_contract_fails_when_it_is_broken(found: dict[int, list[str]], number: int) -> None:
    change, contracts = BROKEN[number]
    assert found[number] == contracts, change


def test_each_contract_is_broken_alone_by_some_change() -> None:
    assert {contracts[0] for _, contracts in BROKEN if len(contracts) == 1} == {each["id"] for each in CONTRACTS}
