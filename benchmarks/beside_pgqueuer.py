"""aioqueue and pgqueuer, alternately, on the same PostgreSQL: `python -m benchmarks.beside_pgqueuer [--rounds N]`.

Both drain no-op jobs that were enqueued before, with one worker process; see `beside_round` for what is timed. Every
round is a new process on a new database, and the two alternate, so that what else the machine does hits both.

`--python` names an interpreter that has `pgqueuer`, `asyncpg`, `uvloop` and aioqueue; without it such an environment
is made in a temporary folder, through pip.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.server import add_options, postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.server import Databases

ROOT = Path(__file__).resolve().parent.parent
ROUND = Path(__file__).with_name("beside_round.py")
PGQUEUER = "pgqueuer==1.6.0"
NAMES = ("aioqueue", "pgqueuer")


@contextmanager
def environment(python: Path | None) -> Iterator[Path]:
    """The interpreter that has both libraries."""
    if python is not None:
        yield python
        return
    with tempfile.TemporaryDirectory(prefix="aioqueue-beside-") as folder:
        venv.create(folder, with_pip=True)
        made = Path(folder) / "bin" / "python"
        pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, PGQUEUER, "asyncpg", "uvloop", str(ROOT)], check=True)
        yield made


def one_round(python: Path, databases: Databases, name: str, jobs: int, concurrency: int) -> dict[str, float]:
    """Run one contender once."""
    with databases.fresh() as url:
        completed = subprocess.run(
            [str(python), str(ROUND), name, url, str(jobs), str(concurrency)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            check=True,
        )
    result: dict[str, float] = json.loads(completed.stdout.splitlines()[-1])
    return result


def compare(python: Path, databases: Databases, rounds: int, jobs: int, concurrency: int) -> float:
    """Run the rounds and print them.

    Returns:
        Our median by theirs.
    """
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    costs: dict[str, list[float]] = {name: [] for name in NAMES}
    print(f"{databases.version()}, {jobs:,} jobs, concurrency {concurrency}; jobs/s (µs of the worker's CPU per job)")
    print(f"round  {'aioqueue':>18}  {'pgqueuer':>18}  load", flush=True)
    for number in range(rounds):
        # Who goes first changes, too.
        for name in NAMES if number % 2 == 0 else NAMES[::-1]:
            result = one_round(python, databases, name, jobs, concurrency)
            rates[name].append(result["rate"])
            costs[name].append(result["cpu"])
        cells = (f"{rates[name][-1]:10,.0f} ({costs[name][-1]:5.1f})" for name in NAMES)
        print(f"{number + 1:5}  {'  '.join(cells)}  {os.getloadavg()[0]:4.1f}", flush=True)
    ours, theirs = (statistics.median(rates[name]) for name in NAMES)
    print(f"median {ours:9,.0f} {'':9}{theirs:10,.0f}")
    print(f"ratio  {ours / theirs:.2f}", flush=True)
    return ours / theirs


def main(arguments: list[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_pgqueuer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--python", type=Path, help="an interpreter that has both libraries")
    add_options(parser, Path)
    given = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    with environment(given.python) as python, postgres(given.server, given.binaries) as databases:
        compare(python, databases, given.rounds, given.jobs, given.concurrency)


if __name__ == "__main__":
    main()
