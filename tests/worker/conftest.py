"""A client on a SQLite file of its own, or on both stores, and what tests of workers work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry
from aioqueue.worker import _shutdown
from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.worker.completing import Notes, made_client
from tests.worker.faults import Faults, Jobs
from tests.worker.refusals import Refusals, Work
from tests.worker.stubborn import Stubborn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "without_postgres: where `client` is on each store, this test isn't on PostgreSQL")
    config.addinivalue_line("markers", "both_stores: each of its tests that has a database runs on SQLite and on PostgreSQL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_stores"):
        metafunc.parametrize("url", ["sqlite", "postgres"], indirect=True)
    if "client" in metafunc.fixturenames and getattr(metafunc.module, "ON_EACH_STORE", False):
        postgres = [] if metafunc.definition.get_closest_marker("without_postgres") else ["postgres"]
        metafunc.parametrize("client", ["memory", "sqlite", *postgres], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, url: str) -> str:
    """A database of its own: SQLite's, unless the test is marked with `both_stores`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return url
    postgres: str = request.getfixturevalue("postgres_url")
    return postgres


@pytest.fixture
async def client(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Client]:
    """A client on a fresh database, or on a fresh store of each kind where the test's module says `ON_EACH_STORE`."""
    async with made_client(request) if hasattr(request, "param") else Client(url, poll_interval=0.2) as client:
        yield client


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def notes(client: Client) -> Notes:
    """A table of the user's."""
    notes = Notes(client)
    await notes.make()
    return notes


@pytest.fixture
def harness(url: str, tmp_path: Path) -> SQLiteHarness | PostgresHarness:
    """What can be done to the database behind everybody's back."""
    return SQLiteHarness(tmp_path / "jobs.db") if url.startswith("sqlite") else PostgresHarness(url)


@pytest.fixture
async def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def faults(client: Client, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(client, monkeypatch)


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    made = Stubborn()
    yield made
    made.release.set()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bounded in seconds is bounded in tenths."""
    for name in ("_LAST_CLAIM_SECONDS", "_INTERRUPTED_SECONDS", "_LOOP_SECONDS", "_FLUSH_SECONDS", "_LEASE_LEAST_SECONDS"):
        monkeypatch.setattr(_shutdown, name, 0.2)


@pytest.fixture
async def work() -> Work:
    return Work()


@pytest.fixture
def refusals(client: Client, monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(client, monkeypatch)
