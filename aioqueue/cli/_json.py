"""`--json`, which every command has that prints something: one JSON object, or one a line, and nothing else."""

from __future__ import annotations

import json
import math
from datetime import date, time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["json_option", "print_json", "read_json", "to_json"]

Command = TypeVar("Command", bound="Callable[..., Any]")


def json_option(text: str = "As one JSON object.") -> Callable[[Command], Command]:
    """Add `--json`, which the command gets as `as_json`.

    Arguments:
        text: The help's.
    """
    return click.option("--json", "as_json", is_flag=True, help=text)


def print_json(value: Mapping[str, object]) -> None:
    """Print one object in one line of ASCII to standard output."""
    click.echo(to_json(value).replace("\x7f", "\\u007f"))


def to_json(value: object) -> str:
    """Write a value as JSON: times in ISO 8601, and what else isn't JSON as its text."""
    return json.dumps(value, default=_text)


def read_json(text: str | bytes) -> Any:
    """Read JSON; integers of any size are read exactly, where orjson makes floats of large ones.

    Raises:
        ValueError: It isn't JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it's nested too deeply") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"there is no {word} in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, (date, time)) else str(value)
