"""What all tests share: the event loop, and a quiet environment."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue import Client

pytest_plugins = [
    "tests.asyncpg_types",
    "tests.bytecode",
    "tests.one_store_each",
    "tests.postgres_databases",
    "tests.sqlite_leftovers",
]


def pytest_collection_finish() -> None:
    """Whoever looks for garbage in a test needn't look through all the tests, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of whoever runs the tests don't reach them."""
    for name in os.environ:
        if name.startswith("AIOQUEUE_") and not name.startswith("AIOQUEUE_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def same_logging() -> Iterator[None]:
    """For tests of commands, which configure the root logger that the other tests share."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file of the test's own, which isn't there yet."""
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def untended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tended to: jobs that weren't started in time are found by claims, who might come second otherwise."""
    from aioqueue.abc import Tended  # lazy: most tests need none

    async def finds_nothing(_store: object, _limit: int) -> Tended:
        return Tended()

    monkeypatch.setattr(type(client.store), "tend", finds_nothing)


@pytest.fixture(params=["sqlite", "postgres"])
def each_url(request: pytest.FixtureRequest, url: str) -> str:
    """A fresh database of each kind."""
    if request.param == "sqlite":
        return url
    value: str = request.getfixturevalue("postgres_url")
    return value
