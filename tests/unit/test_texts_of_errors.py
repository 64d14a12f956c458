"""Texts of what users' code raises: exact, bounded, and made whatever the objects' own methods do."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue.vocabulary._safe_text import safe_repr, safe_str, type_name
from aioqueue.worker._text import attempt_error, described, one_line, stored_text


class Trap(str):
    """A text whose methods are traps."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def __repr__(self) -> str:
        return self

    def __len__(self) -> int:
        raise SystemExit(1)

    def __getitem__(self, key: Any) -> str:
        raise SystemExit(2)


class Trapped(Exception):
    def __str__(self) -> str:
        return Trap("the text")

    __repr__ = __str__


class Raising(Exception):
    """Every way to look at it raises what would end an event loop."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__
    __class__ = property(__str__)
    __traceback__ = property(__str__)
    __cause__ = property(__str__)
    __notes__ = property(__str__)


class NoText(Exception):
    def __str__(self) -> Any:
        return 5


class Deep(Exception):
    def __str__(self) -> str:
        return str(self)


class Nameless(type):
    @property
    def __name__(cls) -> Any:
        raise ValueError("no")


class OfNoName(Exception, metaclass=Nameless):
    pass


def caught(kind: type[Exception]) -> Exception:
    try:
        raise kind
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Trapped, "the text"),
        (Raising, "<its text can't be made: SystemExit>"),
        (NoText, "<its text can't be made: TypeError>"),
        (Deep, "<its text can't be made: RecursionError>"),
        (OfNoName, ""),
    ],
    ids=["trapped", "raising", "no text", "deep", "nameless"],
)
def test_an_errors_text(kind: type[Exception], text: str) -> None:
    error = caught(kind)
    name = type.__dict__["__name__"].__get__(kind)
    entry = attempt_error(error, 1)
    assert (entry.type, entry.message) == (name, text)
    for made in (
        safe_str(error),
        stored_text(error),
        one_line(error),
        described(error),
        entry.type,
        entry.message,
        entry.traceback,
    ):
        assert type(made) is str
    assert described(error) == f"{name}: {text}"
    assert entry.encode()


def test_the_text_of_anything() -> None:
    assert (safe_str(Trap("x")), type(safe_str(Trap("x")))) == ("x", str)
    assert (safe_repr(Trap("x")), type(safe_repr(Trap("x")))) == ("x", str)
    assert safe_repr(10**5_000) == "<int whose text can't be made: ValueError>"
    assert safe_repr("x" * 10_000).endswith("x…")
    assert len(safe_repr("x" * 10_000)) < 400
    assert type_name(OfNoName()) == "OfNoName"
    assert stored_text("a\0b\ud800") == "a\\x00b\\ud800"
    assert one_line("a\nb") == "a\\nb"
