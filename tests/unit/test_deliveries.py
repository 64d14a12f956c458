"""What is sent of the end of a chain, whatever is stored of its job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest

from aioqueue.store_rules._deliveries import LARGEST_OUTPUT_BYTES, ChainEnding, delivery_of
from aioqueue.vocabulary._job import AttemptError, StoredState

ENDING = ChainEnding(
    job_id=UUID(int=2),
    chain_id=UUID(int=1),
    job_type="a",
    state=StoredState.COMPLETED,
    attempt=1,
    finished_at=datetime(2030, 1, 31, 12, tzinfo=UTC),
    webhook="https://hooks.example/",
    output=b'{"big":12345678901234567890123,"x":1.0}',
)


def body(ending: ChainEnding) -> bytes:
    made = delivery_of(ending)
    assert made is not None
    orjson.loads(made.body)
    return made.body


def test_the_output_is_sent_as_it_is_stored() -> None:
    assert b'"output":{"big":12345678901234567890123,"x":1.0}' in body(ENDING)
    assert b'"timestamp":"2030-01-31T12:00:00Z"' in body(ENDING)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (b"{broken", "not JSON"),
        (b"\xff", "not JSON"),
        (b"NaN", "not JSON"),
        (b'"' + b"x" * LARGEST_OUTPUT_BYTES + b'"', "too large"),
    ],
)
def test_an_output_that_cant_be_sent_is_left_out(output: bytes, why: str) -> None:
    data = orjson.loads(body(replace(ENDING, output=output)))["data"]
    assert (data["output"], data["output_omitted"]) == (None, why)


def test_odd_texts_are_sent_as_well_as_can_be() -> None:
    error = AttemptError(attempt=1, at=ENDING.finished_at, type="E\ud800", message="\x00m\udfff" * 2_000, traceback="secret")
    odd = replace(ENDING, state=StoredState.FAILED, error=error, key="k\ud800", tags=("t\udc00", 7), outcome="\x00")
    data = orjson.loads(body(odd))["data"]
    assert (data["key"], data["tags"], data["outcome"]) == ("k?", ["t?", "7"], "\x00")
    assert data["error"]["type"] == "E?"
    assert len(data["error"]["message"]) == 2_000
    assert b"secret" not in body(odd)
    assert orjson.loads(body(replace(odd, error=None)))["data"]["error"] is None


@pytest.mark.parametrize("state", [0, 1, 2, 3, StoredState.CONTINUED, 99])
def test_nothing_is_sent_of_what_hasnt_ended(state: int) -> None:
    assert delivery_of(replace(ENDING, state=state)) is None
    assert delivery_of(replace(ENDING, webhook=None)) is None
    assert delivery_of(replace(ENDING, webhook="")) is None
