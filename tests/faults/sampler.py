"""What is seen of a database while workers run: counts, all the time, and rows."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg

from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.faults.scene import Scene

__all__ = ["Sampler", "deadlocks", "rows"]


class Sampler:
    """Counts what runs, by looking at the database all the time, in a thread with a connection of its own.

    Attributes:
        most: The highest of each count.
        samples: How many looks there were.
    """

    def __init__(self, scene: Scene, *queries: str) -> None:
        self._scene = scene
        self._queries = queries
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = dict.fromkeys(queries, 0)
        self.samples = 0
        self.error: Exception | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _look(self) -> None:
        try:
            if self._scene.on_sqlite:
                with closing(sqlite3.connect(self._scene.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
                    self._sample(lambda query: connection.execute(query.format(schema="")).fetchone()[0])
            else:
                with psycopg.connect(self._scene.direct, autocommit=True, application_name="sampler") as connection:
                    self._sample(lambda query: _first(connection, query.format(schema="aioqueue.")))
        except Exception as error:  # raised by whoever leaves the block
            self.error = error

    def _sample(self, count: Callable[[str], int]) -> None:
        while not self._over.is_set():
            for query in self._queries:
                self.most[query] = max(self.most[query], count(query))
            self.samples += 1
            time.sleep(0.001)  # for those who are looked at


def _first(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def rows(scene: Scene, query: str) -> list[tuple[Any, ...]]:
    if scene.on_sqlite:
        with closing(sqlite3.connect(scene.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
            return connection.execute(query.format(schema="")).fetchall()
    return list(execute(scene.direct, query.format(schema="aioqueue.")))


def deadlocks(scene: Scene) -> int:
    """How many there have been on PostgreSQL; on SQLite there are none."""
    if scene.on_sqlite:
        return 0
    return int(str(execute(scene.direct, "select deadlocks from pg_stat_database where datname = current_database()")[0][0]))
