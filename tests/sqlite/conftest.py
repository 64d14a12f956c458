"""A store on a fresh file, and rows for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import SQLiteStore, make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def new_job(job_type: str = "a", **options: object) -> NewJob:
    return NewJob(id=new_id(), type=job_type, **options)


def execute(path: Path, *statements: str) -> None:
    """Do what somebody else might do with SQL."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(anyio_backend: str, path: Path) -> AsyncIterator[SQLiteStore]:
    made = make_store(f"sqlite:///{path}")
    await made.open()
    yield made
    await made.close()
