"""The command line on PostgreSQL: migrating by hand or with a script, and a job's way."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from aioqueue.cli import main
from tests.postgres_server import execute

APP = "tests.cli.jobs:registry"


pytestmark = pytest.mark.usefixtures("same_logging")


def aioqueue(url: str, *arguments: str, code: int = 0) -> str:
    """Call it; returns what it says."""
    result = CliRunner().invoke(main, [*arguments, "--url", url])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("schema", ["aioqueue", "Jobs-Prod"])
def test_from_nothing_to_a_finished_job(empty_postgres_url: str, schema: str) -> None:
    url = f"{empty_postgres_url}?schema={schema}"
    # What isn't there yet is told, and isn't made by itself.
    assert "aioqueue migrate" in aioqueue(url, "enqueue", "jobs.greet", "name=world", code=1)
    assert "0001_initial" in aioqueue(url, "migrate", "--check", code=1)
    would_run = aioqueue(url, "migrate", "--dry-run")
    assert execute(empty_postgres_url, f"select 1 from pg_namespace where nspname = '{schema}'") == []
    assert aioqueue(url, "migrate") == would_run
    assert "0001_initial" in would_run
    assert "nothing to do" in aioqueue(url, "migrate", "--dry-run")
    aioqueue(url, "migrate", "--check")
    assert "nothing to do" in aioqueue(url, "migrate")
    job_id = aioqueue(url, "enqueue", "jobs.greet", "name=world").split()[0]
    aioqueue(url, "worker", APP, "--once")
    shown = json.loads(aioqueue(url, "jobs", "show", job_id, "--json"))
    assert (shown["state"], shown["attempt"]) == ("completed", 1)
    assert "jobs.greet" in aioqueue(url, "stats")


def test_the_printed_script_does_what_migrating_does(empty_postgres_url: str) -> None:
    script = aioqueue(empty_postgres_url, "migrate", "--sql")
    assert execute(empty_postgres_url, "select 1 from pg_namespace where nspname = 'aioqueue'") == []
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(script.encode())
    aioqueue(empty_postgres_url, "migrate", "--check")


def test_a_password_is_in_no_message(empty_postgres_url: str) -> None:
    parts = urlsplit(empty_postgres_url)
    wrong = parts._replace(netloc=f"postgres:hunter2@{parts.hostname}:{parts.port}", path="/isnt_there").geturl()
    assert "hunter2" not in aioqueue(wrong, "stats", code=1)
