"""The SQL function that stores jobs: which fields a job may have, and that any other one is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
import pytest

from aioqueue.postgres._insert_encoded import encode_jobs
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._gates import SequenceMember
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._new_job import NewJob
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._unique import Unique
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "transactions.md"


def enqueue(url: str, *jobs: Any, function: str = "enqueue_v2") -> list[tuple[object, ...]]:
    return execute(url, f"SELECT * FROM aioqueue.{function}('{orjson.dumps(jobs).decode()}')")


def known(url: str) -> set[str]:
    ((fields,),) = execute(url, "SELECT aioqueue.enqueue_fields()")
    assert isinstance(fields, list)
    return set(fields)


@pytest.mark.parametrize("function", ["enqueue_v1", "enqueue_v2"])
@pytest.mark.parametrize("wrong", [{"delayy": 60}, {"Type": "a"}, {"": 1}, {"from_tomorrow": None}, {'a "b" %': 1}], ids=str)
def test_a_field_that_is_not_known_is_refused(postgres_url: str, function: str, wrong: dict[str, object]) -> None:
    """One of a newer version, too: nothing of the batch is stored, and the error names it, and those that there are."""
    (name,) = wrong
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        enqueue(postgres_url, {"type": "a"}, {"type": "a", **wrong}, {"type": "a"}, function=function)
    message = str(caught.value).splitlines()[0]
    assert message.startswith(f'a job has no field "{name}": it has type, payload, ')
    assert set(message.partition(": it has ")[2].split(", ")) == known(postgres_url)
    assert execute(postgres_url, "SELECT count(*) FROM aioqueue.job") == [(0,)]


def test_a_slip_in_the_name_of_the_type_is_named(postgres_url: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='a job has no field "tpye"'):
        enqueue(postgres_url, {"tpye": "a"})


@pytest.mark.parametrize("wrong", [5, "a", [1], None], ids=str)
def test_what_is_no_object_is_refused(postgres_url: str, wrong: object) -> None:
    with pytest.raises(psycopg.errors.DataError):
        enqueue(postgres_url, {"type": "a"}, wrong)


def test_what_clients_give_is_known(postgres_url: str) -> None:
    every = NewJob(
        id=new_id(),
        type="a",
        run_at=datetime.now(UTC),
        expires=60.0,
        keep=60.0,
        retry=b"{}",
        timeout=5.0,
        key="k",
        unique=Unique(),
        max_delay=1.0,
        chosen_id=True,
        implied=True,
        aliases=("b",),
        tags=("t",),
        trace="{}",
        webhook="https://example.org",
        blockers=(NewBlocker(new_id()),),
        sequence=SequenceMember(name="s", strict=True),
        origin=Origin(schedule="s"),
    )
    (written,) = orjson.loads(encode_jobs([every]))
    assert set(written) == known(postgres_url)


def test_the_page_has_each_field(postgres_url: str) -> None:
    table = PAGE.read_text().partition("| field | what |")[2].partition("\n\n")[0]
    assert set(named(line.split("|")[1] for line in table.splitlines()[2:])) == known(postgres_url) - {"origin"}


def named(cells: Iterable[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
