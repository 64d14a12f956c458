"""One record is one line, and does nothing to a terminal."""

from __future__ import annotations

import io
import logging
import re

import pytest

from aioqueue.cli._text import RECORD_FORMAT, OneLineFormatter, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – größer 漢字", "plain – größer 漢字"),
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b\x85c\u2028d\u202ee", r"a\x00b\x85c\u2028d\u202ee"),
        ("lone \ud800", r"lone \ud800"),
        ("a\tb", r"a\tb"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert len(one_line(text).splitlines()) == 1


def test_a_record_with_a_traceback_is_one_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLineFormatter(RECORD_FORMAT))
    logger = logging.Logger("forged")  # noqa: LOG001 - one that nobody else sees
    logger.addHandler(handler)
    try:
        raise ValueError("one\n2030-01-01T00:00:00.000Z ERROR root: forged \x1b[2J")
    except ValueError:
        logger.exception("job %s failed", "name\nwith a newline")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    assert "\x1b" not in written
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR forged: job name\\nwith", written)
