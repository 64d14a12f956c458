"""The values by which gates of one name are told apart."""

from __future__ import annotations

import json

import pytest

from aioqueue.vocabulary._gate_values import sequence_of, value_of
from aioqueue.vocabulary._gates import By, GateKind, GateRules, kind_of, name_of

BY = By("tenant")


def value(payload: bytes, metadata: bytes = b"{}", by: By | None = BY) -> str:
    return value_of(by, payload, metadata)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("null", "=null"),
        ("1", "=1"),
        ('"1"', '="1"'),
        ("1.0", "=1.0"),
        ("true", "=true"),
        ("0", "=0"),
        ("false", "=false"),
        ('""', '=""'),
        ("{}", "={}"),
        ("[]", "=[]"),
        ('[1, "1", null]', '=[1,"1",null]'),
        ('{"b": 1, "a": {"d": 2, "c": 3}}', '={"a":{"c":3,"d":2},"b":1}'),
        ('{"a": {"c": 3, "d": 2}, "b": 1}', '={"a":{"c":3,"d":2},"b":1}'),
        (str(2**200), f"={2**200}"),
        (str(-(2**70)), f"={-(2**70)}"),
        ('"\\u00e9 \\u4e2d"', '="é 中"'),
        ('"a=b"', '="a=b"'),
        ('"\\u0000"', '="\\u0000"'),
        ('"\\n"', '="\\n"'),
    ],
)
def test_a_value_is_its_json(stored: str, expected: str) -> None:
    assert value(f'{{"tenant": {stored}}}'.encode()) == expected


def test_no_gate_has_a_character_that_a_database_refuses() -> None:
    assert "\x00" not in value(json.dumps({"tenant": "\x00"}).encode())


@pytest.mark.parametrize(
    "payload",
    [b"{}", b'{"Tenant": 1}', b'{"other": {"tenant": 1}}', b"[1, 2]", b"null", b"{broken", b"", b'"tenant"', b"\xff\xfe"],
)
def test_what_is_absent_or_cannot_be_read_is_no_value(payload: bytes) -> None:
    assert value(payload) == ""


@pytest.mark.parametrize("stored", ['"\\ud800"', '["\\udfff"]'])
def test_half_a_character_is_no_value(stored: str) -> None:
    """An operator may have written it: no database takes it as a gate's name."""
    assert value(f'{{"tenant": {stored}}}'.encode()) == ""


def test_without_a_name_there_is_no_value() -> None:
    assert value(b'{"tenant": 1}', by=None) == ""


def test_the_metadata_is_looked_at_where_the_rule_says_so() -> None:
    payload, metadata = b'{"tenant": 1}', b'{"tenant": 2}'
    assert value(payload, metadata) == "=1"
    assert value(payload, metadata, By("tenant", metadata=True)) == "=2"
    assert value(b"{broken", metadata, By("tenant", metadata=True)) == "=2"


def test_long_values_are_hashed() -> None:
    longest, longer = "x" * 198, "x" * 199  # with the quotes 200 and 201
    assert value(json.dumps({"tenant": longest}).encode()) == f'="{longest}"'
    hashed = value(json.dumps({"tenant": longer}).encode())
    assert hashed.startswith("=#")
    assert len(hashed) == len("=#") + 64
    assert hashed != value(json.dumps({"tenant": longer + "y"}).encode())
    assert hashed == value(json.dumps({"other": 1, "tenant": longer}).encode())


def test_hashed_objects_with_the_same_fields_are_the_same() -> None:
    fields = {f"field {number}": number for number in range(50)}
    backwards = dict(reversed(fields.items()))
    assert value(json.dumps({"tenant": fields}).encode()) == value(json.dumps({"tenant": backwards}).encode())


def test_a_text_that_looks_like_a_hash_is_another_value() -> None:
    hashed = value(json.dumps({"tenant": "x" * 500}).encode())
    assert value(json.dumps({"tenant": hashed.removeprefix("=")}).encode()) != hashed


def test_one_is_not_true() -> None:
    assert len({value(f'{{"tenant": {each}}}'.encode()) for each in ("1", "1.0", '"1"', "true", '"true"', "null")} | {""}) == 7


def test_the_sequence_of_a_type_has_its_name_and_the_value() -> None:
    rules = GateRules(type="site.charge", sequence_by=BY)
    assert sequence_of(rules, b'{"tenant": "acme"}', b"{}") == 'site.charge="acme"'
    assert sequence_of(rules, b"{}", b"{}") == "site.charge"
    assert sequence_of(GateRules(type="site.charge"), b'{"tenant": "acme"}', b"{}") is None


@pytest.mark.parametrize(
    ("gate", "name", "kind"),
    [
        ("stripe", "stripe", GateKind.LIMIT),
        ("job:site.resize", "job:site.resize", GateKind.LIMIT),
        ('job:site.resize="a=b"', "job:site.resize", GateKind.LIMIT),
        ("rate:resize=1", "rate:resize", GateKind.RATE),
        ("fair:resize=null", "fair:resize", GateKind.FAIR),
        ("sequence=account:42", "sequence", GateKind.SEQUENCE),
        ("sequence=rate:x=1", "sequence", GateKind.SEQUENCE),
        ("sequences", "sequences", GateKind.LIMIT),
    ],
)
def test_what_a_gate_is_for(gate: str, name: str, kind: GateKind) -> None:
    assert (name_of(gate), kind_of(gate)) == (name, kind)
