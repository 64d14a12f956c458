"""Outputs are filled into stored arguments exactly, and what is stored of their places may be anything."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pydantic
import pytest

from aioqueue.errors import ArgumentsError
from aioqueue.vocabulary._blockers import ChainEnd, EndedBlocker
from aioqueue.vocabulary._codec import ArgumentsCodec, ValueCodec
from aioqueue.vocabulary._ends import Completed, Failed
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._placeholders import filled


def ended(output: bytes = b"1", *places: list[str | int], end: ChainEnd = ChainEnd.COMPLETED, cause: str = "") -> EndedBlocker:
    return EndedBlocker(new_id(), end, output, cause, orjson.dumps(list(places)))


def test_what_stands_there_keeps_its_text() -> None:
    payload = b'{"big": 123456789012345678901234567890, "e": [1e2, 1.0, {"x": null}, 1.10], "text": "\\u0000\\u00e4"}'
    big = b'{"n": 987654321098765432109876543210, "f": 1.50e0}'
    assert filled(payload, [ended(big, ["output", "e", 2, "x"])]) == (
        b'{"big":123456789012345678901234567890,"e":[1e2,1.0,{"x":%s},1.10],"text":"\\u0000\\u00e4"}' % big
    )


def test_without_places_nothing_is_read() -> None:
    payload = b"anything"
    assert filled(payload, [ended(), ended(end=ChainEnd.FAILED)]) is payload


def test_one_output_stands_in_many_places_and_many_in_one_list() -> None:
    blockers = [ended(b"%d" % number, ["output", "many", number], ["settled", "ends", str(number)]) for number in range(200)]
    payload = orjson.dumps({"many": [None] * 200, "ends": {str(number): None for number in range(200)}})
    read = orjson.loads(filled(payload, blockers))
    assert read["many"] == list(range(200))
    assert read["ends"]["199"] == {"end": "completed", "value": 199}


def test_a_chain_that_completed_without_an_output_gives_null() -> None:
    blocker = EndedBlocker(new_id(), ChainEnd.COMPLETED, None, places=b'[["output","a"],["settled","b"]]')
    assert filled(b'{"a":null,"b":null}', [blocker]) == b'{"a":null,"b":{"end":"completed","value":null}}'


@pytest.mark.parametrize(
    ("end", "state"), [(ChainEnd.FAILED, "failed"), (ChainEnd.CANCELLED, "cancelled"), (ChainEnd.DELETED, "deleted")]
)
def test_an_end_without_an_output_says_what_became_of_it(end: ChainEnd, state: str) -> None:
    blocker = ended(b"", ["settled", "end"], end=end, cause='site.fetch 0190: failed: ValueError: "\ud800"')
    (written,) = orjson.loads(filled(b'{"end":null}', [blocker])).values()
    read = ValueCodec(Completed[int] | Failed, {}).decode(orjson.dumps(written), "end")
    assert read == Failed(blocker.chain_id, cast("Any", state), 'site.fetch 0190: failed: ValueError: "?"')
    with pytest.raises(ArgumentsError, match="no output of the chain"):
        filled(b'{"end":null}', [ended(b"", ["output", "end"], end=end)])


ODD_PLACES: list[tuple[str, bytes, bytes]] = [
    ("no JSON", b"{}", b"[["),
    ("no list", b"{}", b"7"),
    ("no lists", b"{}", b'["output"]'),
    ("a number that isn't one", b'{"a":[null]}', b'[["output","a",0.5]]'),
    ("a boolean", b'{"a":[null]}', b'[["output","a",false]]'),
    ("no way", b"null", b'[["output"]]'),
    ("nothing", b"null", b"[[]]"),
    ("another kind", b'{"a":null}', b'[["result","a"]]'),
    ("a number as a kind", b'{"a":null}', b'[[0,"a"]]'),
    ("no such name", b'{"a":null}', b'[["output","b"]]'),
    ("a name with a lone surrogate", b'{"a":null}', b'[["output","\\ud800"]]'),
    ("beyond the end", b'{"a":[null]}', b'[["output","a",1]]'),
    ("before the beginning", b'{"a":[null]}', b'[["output","a",-1]]'),
    ("not empty", b'{"a":[0]}', b'[["output","a",0]]'),
    ("within a number", b'{"a":5}', b'[["output","a",0]]'),
    ("a number in an object", b'{"a":{"0":null}}', b'[["output","a",0]]'),
    ("a name in a list", b'{"a":[null]}', b'[["output","a","0"]]'),
    ("a name and a number", b'{"a":[null]}', b'[["output","a",0],["output","a","b"]]'),
    ("twice", b'{"a":null}', b'[["output","a"],["settled","a"]]'),
    ("within another one", b'{"a":null}', b'[["output","a"],["output","a",0]]'),
    ("around another one", b'{"a":[null]}', b'[["output","a",0],["output","a"]]'),
    ("arguments that are no JSON", b'{"a":', b'[["output","a"]]'),
    ("arguments that are no object", b"[null]", b'[["output","a"]]'),
    ("too deep", b"[" * 5000 + b"null" + b"]" * 5000, orjson.dumps([["output", *[0] * 5000]])),
    ("deep", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b'[["output","a",0]]'),
]


@pytest.mark.parametrize(("payload", "places"), [each[1:] for each in ODD_PLACES], ids=[each[0] for each in ODD_PLACES])
def test_odd_places_are_the_jobs_own_error(payload: bytes, places: bytes) -> None:
    with pytest.raises(ArgumentsError):
        filled(payload, [EndedBlocker(new_id(), ChainEnd.COMPLETED, b"1", places=places)])


@pytest.mark.parametrize("value", [Completed([1, 2]), Failed(new_id(), "deleted", "it's gone")])
def test_ends_can_be_stored_and_read(value: Any) -> None:
    both = ValueCodec(Completed[list[int]] | Failed, {})
    assert both.decode(both.encode(value, "end"), "end") == value
    many = ValueCodec(dict[str, list[Completed[list[int]] | Failed]], {})
    assert many.decode(many.encode({"a": [value]}, "ends"), "ends") == {"a": [value]}


class Page(pydantic.BaseModel):
    url: str = pydantic.Field(alias="theUrl")


class Report(pydantic.BaseModel):
    end: Completed[Page] | Failed
    ends: list[Completed[int] | Failed] = []


@pytest.mark.parametrize("end", [Completed(Page(theUrl="a")), Failed(new_id(), "cancelled", "no")])
def test_pydantic_knows_ends_too(end: Any) -> None:
    report = Report(end=end, ends=[Completed(1)])
    for annotation, value in ((Report, report), (Completed[Page | Report] | Failed, end), (list[Report], [report])):
        codec = ValueCodec(annotation, {})
        assert codec.decode(codec.encode(value, "value"), "value") == value
    stored = filled(b'{"value":{"end":null}}', [ended(b'{"theUrl":"b"}', ["settled", "value", "end"])])
    assert ArgumentsCodec({"value": Report}, frozenset(), {}).decode(stored)["value"].end == Completed(Page(theUrl="b"))
    with pytest.raises(pydantic.ValidationError):
        Report.model_validate({"end": {"end": "completed", "value": 1}})
