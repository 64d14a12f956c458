"""Each benchmark runs, with a few jobs; what it measures is nobody's business here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from benchmarks import beside_pgqueuer
from benchmarks.listing import fill
from benchmarks.server import Databases

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: str) -> str:
    """Run a benchmark as a user does."""
    completed = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("AIOQUEUE_")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.soak  # the one with spans measures it without them, too
def test_drain() -> None:
    assert "here" in run("benchmarks.drain", "--jobs", "20", "--rounds", "1", "--concurrency", "5")


def test_drain_with_spans() -> None:
    printed = run("benchmarks.drain", "--tracing", "--jobs", "20", "--rounds", "1", "--concurrency", "5")
    assert "here, with spans" in printed
    assert "ratio" in printed


def test_drain_on_postgresql(postgres_url: str) -> None:
    printed = run("benchmarks.drain", "--jobs", "20", "--rounds", "1", "--concurrency", "5", "--url", postgres_url)
    assert "here" in printed


def test_chains() -> None:
    printed = run("benchmarks.chains", "--jobs", "20", "--rounds", "1", "--concurrency", "5").splitlines()
    assert [line.split()[0] for line in printed] == ["slots", "5"]


def test_dependents() -> None:
    printed = run("benchmarks.dependents", "--jobs", "20", "--rounds", "1").splitlines()
    assert [line.split("  ")[0] for line in printed] == ["shape", "one chain", "one dependent", "diamonds"]


def test_dependents_on_postgresql(postgres_url: str) -> None:
    printed = run("benchmarks.dependents", "--jobs", "20", "--rounds", "1", "--shapes", "diamonds", "--url", postgres_url)
    assert printed.splitlines()[-1].startswith("diamonds")


def test_latency() -> None:
    assert run("benchmarks.latency", "--jobs", "3").startswith("3 jobs: median")


def test_idle() -> None:
    assert run("benchmarks.idle", "--seconds", "0.1").startswith("resident")


def test_memory() -> None:
    lines = run("benchmarks.memory", "--jobs", "40", "--concurrency", "4").splitlines()
    assert lines[-1].split()[0] == "40"


def test_listing(postgres_url: str) -> None:
    asyncio.run(fill(postgres_url, live=200, archived=400, say=False))
    found = [json.loads(line) for line in run("benchmarks.listing", "--url", postgres_url, "--only", "rare").splitlines()]
    assert ("tag rare", "newest") in {(each["filter"], each["order"]) for each in found}


def test_retention() -> None:
    printed = run("benchmarks.retention", "--rows", "200", "--seconds", "0", "--longest", "5")
    assert "all that was old enough" in printed
    assert "       0 other old jobs" in printed
    assert "      12 unfinished jobs" in printed


@pytest.mark.soak  # on SQLite it's the same, and a server is what `test_horizon` has
def test_retention_on_postgresql(postgres_url: str) -> None:
    printed = run("benchmarks.retention", "--rows", "200", "--seconds", "0", "--longest", "5", "--server", postgres_url)
    assert "all that was old enough" in printed
    assert "       0 other old jobs" in printed


def test_events() -> None:
    printed = run("benchmarks.events", "--jobs", "20", "--rounds", "1", "--concurrency", "5").splitlines()
    assert [line.split("  ")[0] for line in printed] == ["code", "read", "not read", "ratio"]


def test_horizon(postgres_url: str) -> None:
    printed = run("benchmarks.horizon", "--minutes", "0.005", "--seconds", "0.1", "--rate", "20", "--server", postgres_url)
    assert "each job's row was updated 1.00 times" in printed


def test_databases_are_dropped(postgres_url: str) -> None:
    databases = Databases(postgres_url)
    with databases.fresh() as url:
        name = url.rpartition("/")[2]
        psycopg.connect(url).close()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select from pg_database where datname = %s", [name]).fetchone() is None


def test_a_contender_counts_its_jobs(postgres_url: str) -> None:
    """Our side of the comparison; theirs needs an environment of its own."""
    beside_round = pytest.importorskip("benchmarks.beside_round")
    result = asyncio.run(beside_round.measure("aioqueue", postgres_url, 20, 5))
    assert result["rate"] > 0


def test_the_comparison_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_url: str
) -> None:
    rates = {"aioqueue": 200.0, "pgqueuer": 100.0}

    def one_round(_python: Path, _databases: Databases, name: str, _jobs: int, _concurrency: int) -> dict[str, float]:
        return {"rate": rates[name], "cpu": 10.0}

    monkeypatch.setattr(beside_pgqueuer, "one_round", one_round)
    assert beside_pgqueuer.compare(Path(sys.executable), Databases(postgres_url), 2, 20, 5) == 2.0
    assert "ratio  2.00" in capsys.readouterr().out
