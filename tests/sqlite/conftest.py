"""A store on a fresh file, and rows for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.sqlite import SQLiteStore, make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path
    from uuid import UUID


def new_job(job_type: str = "a", **options: object) -> NewJob:
    return NewJob(id=new_id(), type=job_type, **options)


@contextmanager
def outsider(path: Path, timeout: float = 60.0) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the file, in autocommit mode; it waits so many seconds for locks."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as connection:
        yield connection


def execute(path: Path, *statements: str) -> None:
    """Do what somebody else might do with SQL."""
    with outsider(path) as connection:
        for statement in statements:
            connection.execute(statement)


def spoil(path: Path, job_id: UUID, change: str) -> None:
    """Change a job's columns, to what they shouldn't hold."""
    execute(path, f"UPDATE job SET {change} WHERE id = '{job_id}'")


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """See what is in the file."""
    with outsider(path) as connection:
        return connection.execute(statement).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(anyio_backend: str, path: Path) -> AsyncIterator[SQLiteStore]:
    made = make_store(f"sqlite:///{path}")
    await made.open()
    yield made
    await made.close()
