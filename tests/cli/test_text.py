"""One record is one line, and does nothing to a terminal."""

from __future__ import annotations

import pytest

from aioqueue.cli._text import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – größer 漢字", "plain – größer 漢字"),
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b\x85c\u2028d\u202ee", r"a\x00b\x85c\u2028d\u202ee"),
        ("lone \ud800", r"lone \ud800"),
        ("a\tb", r"a\tb"),
        ("\ufeffa\ufff9b\ufffa\ufffb", r"\ufeffa\ufff9b\ufffa\ufffb"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert len(one_line(text).splitlines()) == 1
