"""Texts of objects that may be broken: whatever their methods do, a plain text comes out, and nothing is raised."""

from __future__ import annotations

import re

__all__ = ["safe_repr", "safe_str", "storable", "type_name", "visible"]

# Control characters, the line separators that str.splitlines knows, what turns the direction of writing round, and what can't
# be seen: the byte order mark, and the marks of annotations.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]")
_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_LONGEST_REPR_CHARACTERS = 300


def storable(text: str) -> bool:
    """Whether every store can have this text in a column of its own: a NUL, or half a surrogate pair, no job has there."""
    return _NOT_STORABLE.search(text) is None


def safe_str(value: object) -> str:
    """The text of anything, as an exact `str`: no subclass whose methods could do more harm later."""
    try:
        return str.__str__(str(value))
    except BaseException as error:  # noqa: BLE001 - classified: what its text raises is part of what is described
        return f"<its text can't be made: {type_name(error)}>"


def safe_repr(value: object, longest: int = _LONGEST_REPR_CHARACTERS) -> str:
    """What to call a value in an error message, as an exact and bounded `str`."""
    try:
        shown = str.__str__(repr(value))
    except BaseException as error:  # noqa: BLE001 - classified: also an integer of over 4,300 digits has no text
        return f"<{type_name(value)} whose text can't be made: {type_name(error)}>"
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def type_name(value: object) -> str:
    """The name of its class, as the interpreter knows it, whatever the class says."""
    try:
        return str.__str__(type.__dict__["__name__"].__get__(type(value)))
    except BaseException:  # noqa: BLE001 - a name that isn't a text
        return "object"


def visible(text: str) -> str:
    r"""Make control characters visible: a newline becomes `\n`, an escape `\x1b`.

    Arguments:
        text: Anything.

    Returns:
        Text that stays on its line and does nothing to a terminal.
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
