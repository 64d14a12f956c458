"""`--json`, which every command has that prints something: one JSON object, or one a line, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["json_option", "print_json"]

Command = TypeVar("Command", bound="Callable[..., Any]")


def json_option(text: str = "As one JSON object.") -> Callable[[Command], Command]:
    """Add `--json`, which the command gets as `as_json`.

    Arguments:
        text: The help's.
    """
    return click.option("--json", "as_json", is_flag=True, help=text)


def print_json(value: Mapping[str, object]) -> None:
    """Print one object in one line of ASCII to standard output; what isn't JSON is written as its text."""
    click.echo(json.dumps(value, default=str).replace("\x7f", "\\u007f"))
