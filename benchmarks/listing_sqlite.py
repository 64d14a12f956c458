"""The jobs of `benchmarks.listing` in a file of SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fill"]

_NUMBERS = "WITH RECURSIVE number(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM number WHERE n < :last)"
_ID = "(printf('%08x-%04x-7000-8000-00%010x', ({ms}) >> 16, ({ms}) & 65535, {n}))"
_COMMON = """CASE WHEN n % 100000 = 7 THEN 'bench.rare' ELSE 'bench.type' || (n % 20) END,
    CASE n % 50 WHEN 0 THEN 1 WHEN 1 THEN 3 ELSE 2 END, (:start + n) * 1000,
    CASE WHEN n % 10 = 3 THEN 'common' WHEN n % 100000 = 4 THEN 'rare' END,
    CASE WHEN n % 10 = 4 THEN '["common"]' WHEN n % 100000 = 5 THEN '["rare","common"]' ELSE '[]' END"""

_ARCHIVED = f"""{_NUMBERS}
INSERT INTO archive (id, type, priority, created_at, key, tags, run_at, state, attempt, claims, reschedules, chain_id, position,
    finished_at, outcome, metadata, payload, errors)
SELECT {_ID.format(ms=":start + n", n="n")}, {_COMMON}, (:start + n) * 1000,
    CASE WHEN n % 1000 = 9 THEN 6 WHEN n % 100000 = 17 THEN 7 WHEN n % 20 = 18 THEN 5 ELSE 4 END, 1, 1, 0,
    CASE WHEN n % 20 = 19 THEN {_ID.format(ms=":start + n - 1", n="n - 1")} END, CASE WHEN n % 20 = 19 THEN 1 ELSE 0 END,
    (:start + n) * 1000 + 10000000 + n % 100 * 1000000,
    CASE WHEN n % 100000 = 16 THEN 'rare' WHEN n % 10 = 6 THEN 'common' END, '{{}}', '{{"number": 1}}',
    CASE WHEN n % 1000 = 9 OR n % 100 = 11 THEN json_array(json_object('attempt', 1, 'at', '2026-01-01T00:00:00+00:00',
        'type', CASE WHEN n % 100000 = 9 THEN 'RareError' ELSE 'ValueError' END, 'message', 'no', 'traceback', ''))
        ELSE '[]' END
FROM number"""

_LIVE = f"""{_NUMBERS}
INSERT INTO job (id, type, priority, created_at, key, tags, run_at, state, attempt, claims, lease_id, payload)
SELECT {_ID.format(ms=":start + n", n="n")}, {_COMMON},
    :now + CASE WHEN n % 10 < 4 THEN -1 ELSE 1 END * (n % 1000000) * 1000000,
    CASE WHEN n % 1000 = 31 THEN 2 WHEN n % 500 = 33 THEN 0 ELSE 1 END, CASE WHEN n % 1000 = 31 THEN 1 ELSE 0 END,
    CASE WHEN n % 1000 = 31 THEN 1 ELSE 0 END, CASE WHEN n % 1000 = 31 THEN 1 + n / 1000 % 20 END, '{{"number": 1}}'
FROM number"""

_LEASES = f"""{_NUMBERS}
INSERT INTO lease (id, worker, expires_at) SELECT n, 'worker' || n, :now + 3600000000 FROM number"""


def fill(path: Path, *, start: int, live: int, archived: int) -> None:
    """Fill the tables of a file that has been migrated.

    Arguments:
        path: The file.
        start: The millisecond in which the first job was made; each is a millisecond younger than the one before.
        live: Unfinished jobs.
        archived: Finished jobs, the older ones.
    """
    began = time.perf_counter()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = off")
        connection.execute("PRAGMA cache_size = -200000")
        common = {"start": start, "now": int(time.time() * 1e6)}
        for statement, first, last in ((_ARCHIVED, 1, archived), (_LIVE, archived + 1, archived + live), (_LEASES, 1, 20)):
            connection.execute(statement, {**common, "first": first, "last": last})
        connection.execute("PRAGMA wal_checkpoint(truncate)")
    print(json.dumps({"filled": {"live": live, "archived": archived}, "seconds": round(time.perf_counter() - began)}))
