"""Arguments are stored as one JSON object by name, and nothing that is too large for a row is."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue.client._named import named_call
from aioqueue.definitions._registry import Registry
from aioqueue.errors import ArgumentsError, ConfigurationError, RegistrationError
from aioqueue.vocabulary import _codec
from aioqueue.vocabulary._codec import LARGEST_VALUE_BYTES, ArgumentsCodec, CodecError, ValueCodec
from tests.unit.values import Money


def arguments(**annotations: Any) -> ArgumentsCodec:
    return ArgumentsCodec(annotations, frozenset({"a"}), {})


def test_arguments_are_one_object_of_what_was_passed() -> None:
    codec = arguments(a=int, b=str, naïve=list[str])
    stored = codec.encode({"a": 1, "naïve": ["ü"]})
    assert stored == '{"a":1,"naïve":["ü"]}'.encode()
    assert codec.decode(stored) == {"a": 1, "naïve": ["ü"]}
    assert arguments().encode({}) == b"{}"


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        (b'{"a":1,"c":2}', "c", "no parameter 'c'"),
        (b'{"b":"x"}', "a", "'a' is missing"),
        (b'{"a":"x"}', "a", "Expected `int`"),
        (b"[]", "", "JSON object"),
        (b"{", "", "JSON object"),
        (b"", "", "JSON object"),
        (b"\xff", "", "JSON object"),
    ],
)
def test_stored_arguments_that_do_not_fit(payload: bytes, path: str, reason: str) -> None:
    with pytest.raises(ArgumentsError, match=reason) as raised:
        arguments(a=int, b=str).decode(payload)
    assert raised.value.path == path


def test_values_that_are_too_large_for_a_row_are_refused_before_they_are_compared() -> None:
    codec = ValueCodec(Any, {})
    assert len(codec.encode("x" * (LARGEST_VALUE_BYTES - 2), "output")) == LARGEST_VALUE_BYTES
    with pytest.raises(CodecError, match=r"^output: 64\.0 MiB of JSON are more than the 64 MiB .* pass its name instead$"):
        codec.encode("x" * (LARGEST_VALUE_BYTES - 1), "output")
    with pytest.raises(CodecError, match=r"^output: 80\.0 MiB"):
        ValueCodec(bytes, {}).encode(b"\0" * (60 * 1024 * 1024), "output")  # it's the JSON that counts
    arguments = ArgumentsCodec({"one": str, "other": str}, frozenset(), {})
    with pytest.raises(ArgumentsError, match=r"^one: 64\.0 MiB of JSON are more") as caught:
        arguments.encode({"one": "x" * LARGEST_VALUE_BYTES})
    assert caught.value.path == "one"
    half = "x" * (LARGEST_VALUE_BYTES // 2)
    with pytest.raises(ArgumentsError, match=r"^the arguments together: 64\.0 MiB of JSON are more") as caught:
        arguments.encode({"one": half, "other": half})
    assert caught.value.path == ""


def test_what_a_call_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codec, "LARGEST_VALUE_BYTES", 1024)
    registry = Registry()

    @registry.job
    async def take(text: str) -> str:
        return text

    take("x" * 1000).mark_used()
    with pytest.raises(ArgumentsError, match="MiB of JSON are more"):
        take("x" * 1024)
    with pytest.raises(ArgumentsError, match=r"^arguments: .* MiB of JSON are more"):
        named_call("take", {"text": "x" * 1024}, {})
    with pytest.raises(ConfigurationError, match=r"^metadata: .* MiB of JSON are more"):
        take("").options(metadata={"text": "x" * 1024})
    with pytest.raises(CodecError, match=r"^output: .* MiB of JSON are more"):
        take.encode_output("x" * 1024)


def test_arguments_errors_are_type_errors_with_a_path() -> None:
    with pytest.raises(TypeError) as raised:
        arguments(a=list[int]).encode({"a": [1, "x"]})
    assert isinstance(raised.value, ArgumentsError)
    assert raised.value.path == "a[1]"
    with pytest.raises(RegistrationError, match="parameter 'a'"):
        arguments(a=Money)
