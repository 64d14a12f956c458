"""Fixtures of the fault tests."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.faults.scene import Scene
from tests.postgres_databases import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.postgres_server import Server


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """On a database of the test's own, of each kind."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    scene = Scene(url, tmp_path)
    try:
        yield scene
    finally:
        scene.close()


@pytest.fixture
def scene_on_sqlite(tmp_path: Path) -> Iterator[Scene]:
    with closing(Scene(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)) as scene:
        yield scene


@pytest.fixture
def scene_on_postgres(postgres_url: str, tmp_path: Path) -> Iterator[Scene]:
    """On a database of the test's own."""
    with closing(Scene(postgres_url, tmp_path)) as scene:
        yield scene


@pytest.fixture
def postgres_scene(own_postgres: Server, tmp_path: Path) -> Iterator[Scene]:
    """On a server of the test's own."""
    migrate(own_postgres.url())
    scene = Scene(own_postgres.url(), tmp_path)
    try:
        yield scene
    finally:
        scene.close()
