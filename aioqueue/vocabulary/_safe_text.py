"""Texts of objects that may be broken: whatever their methods do, a plain text comes out, and nothing is raised."""

from __future__ import annotations

__all__ = ["safe_repr", "safe_str", "type_name"]

_LONGEST_REPR_CHARACTERS = 300


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
