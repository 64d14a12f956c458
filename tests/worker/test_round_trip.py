"""Values on their way through the database: from the call to the handler, and from there to whoever awaits the result."""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioqueue import ArgumentsError, Client, Registry
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import JobType

pytestmark = pytest.mark.anyio

LIMIT = 120


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0


EXACT: list[tuple[Any, object]] = [
    (Any, ["a\x00b", {"k\x00": 1}, "\\u0000", [["a\x00b", {"k\x00": 1}, "\\u0000"]]]),
    (str, "\x00"),
    (str, "\u2028 \U0001f600 \ufffd '\"; drop table job; --"),
    (int, 2**63),
    (int, 2**64 - 1),
    (int, -(2**63)),
    (float, 5e-324),
    (float, -0.0),
    (Any, {"big": 2**64 - 1, "small": -(2**63), "float": 1.0}),
    (dict[int, str], {1: "a", -2: "b"}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+400")),
    (datetime, datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
    (datetime, datetime(2024, 2, 29, 12)),
    (UUID, UUID("01890a5d-ac96-774b-bcce-b302099a8057")),
    (bytes, b"\x00\xff"),
    (Colour, Colour.RED),
    (Point, Point(1, 2.5)),
    (list[Point], [Point(2**64 - 1)]),
]

REFUSED: list[tuple[object, str]] = [
    ("\ud800", "value"),
    (["a\x00b", {"k\x00": ["\ud800"]}], "value[1]['k\\x00'][0]"),
    (2**64, "value"),
    ({"a": [1, 2**200]}, "value.a[1]"),
    ([-(2**70)], "value[0]"),
    ({1: "a"}, "value[1]"),
    ({1: "a", "1": "b"}, "value[1]"),
    (float("nan"), "value"),
    ([float("inf")], "value[0]"),
    ({"a": (1,)}, "value.a"),
    ({1}, "value"),
    (Decimal("1.1"), "value"),
    (datetime(2024, 1, 1), "value"),
    (UUID(int=1), "value"),
    (b"ab", "value"),
    (Colour.RED, "value"),
    (Point(1), "value"),
]


@pytest.fixture(params=["sqlite", "postgresql"])
async def either_client(request: pytest.FixtureRequest, url: str, anyio_backend: str) -> AsyncIterator[Client]:
    source = url if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    async with Client(source) as client:
        yield client


def echo(registry: Registry, name: str, annotation: Any, received: dict[str, object]) -> JobType[..., Any, Any]:
    """A job type whose handler gives back what it gets."""

    async def handler(value: Any) -> Any:
        received[name] = value
        return value

    handler.__annotations__ = {"value": annotation, "return": annotation}
    return registry.job(name=name)(handler)


async def test_values_arrive_as_they_were_sent(either_client: Client) -> None:
    registry, received = Registry(), dict[str, object]()
    types = [echo(registry, f"echo_{number}", annotation, received) for number, (annotation, _) in enumerate(EXACT)]
    handles = await either_client.enqueue_many([job_type(value) for job_type, (_, value) in zip(types, EXACT, strict=True)])
    async with asyncio.timeout(LIMIT):
        await Worker(either_client, registry).run_once()
    for number, (handle, (_, value)) in enumerate(zip(handles, EXACT, strict=True)):
        for read in (received[f"echo_{number}"], await handle.result(timeout=LIMIT)):
            assert (type(read), read, repr(read)) == (type(value), value, repr(value))


async def test_what_would_not_arrive_is_refused_at_the_call(either_client: Client) -> None:
    registry, received = Registry(), dict[str, object]()
    anything = echo(registry, "anything", Any, received)
    paths = []
    for value, _ in REFUSED:
        with pytest.raises(ArgumentsError) as raised:
            await either_client.enqueue(anything(value))
        paths.append(raised.value.path)
    assert paths == [path for _, path in REFUSED]
    fine = await either_client.enqueue(anything("\\ud800 \\u0000"))
    async with asyncio.timeout(LIMIT):
        await Worker(either_client, registry).run_once()
    assert await fine.result(timeout=LIMIT) == "\\ud800 \\u0000"
    counts = Counter({name: sum(each.counts.values()) for name, each in (await either_client.stats()).types.items()})
    assert counts == {"anything": 1}
