"""What commands are told of a call: its arguments, its options, and the registry that they are checked against."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from aioqueue.cli._imports import load_registry
from aioqueue.cli._json import read_json
from aioqueue.cli._options import DURATION, WrongUsage, read_time
from aioqueue.errors import ArgumentsError
from aioqueue.vocabulary._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions

__all__ = ["call_options", "read_arguments", "read_options", "typed_call"]

Command = TypeVar("Command", bound="Callable[..., Any]")

_NAMES = (
    "delay",
    "at",
    "key",
    "unique",
    "priority",
    "tags",
    "max_attempts",
    "timeout",
    "expires",
    "keep",
    "webhook",
    "sequence",
)


def call_options(*, at: bool = True) -> Callable[[Command], Command]:
    """Add `--app`, against which the arguments are checked, and the options of a call; the command gets them for
    `read_options`.

    Arguments:
        at: Whether it may be due at some time.
    """
    options = [
        click.option("--app", metavar="MODULE:REGISTRY", help="Check the arguments against the job type that it has."),
        click.option("--delay", type=DURATION, help="Not before this has passed."),
        click.option("--at", help="Not before this time, in ISO 8601 with an offset."),
        click.option("--key", help="A label to find it by."),
        click.option("--unique", is_flag=True, help="At most one unfinished job of the type with this key."),
        click.option("--priority", type=click.IntRange(1, 4), help="1 is the most urgent; 2 is the default."),
        click.option("--tag", "tags", multiple=True, help="A label; may be repeated."),
        click.option("--max-attempts", type=click.IntRange(min=1), help="Of this job."),
        click.option("--timeout", type=DURATION, help="For each attempt."),
        click.option("--expires", type=DURATION, help="Discard it if it hasn't started this long after it was due."),
        click.option("--keep", type=DURATION, help="Keep it this long after its end, whatever workers' retention says."),
        click.option("--webhook", metavar="URL", help="Tell this URL of its end, once it has ended."),
        click.option(
            "--sequence", metavar="NAME", help="Those of one sequence run one at a time, in the order of their inserts."
        ),
    ]
    if not at:
        del options[2]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def typed_call(app: str, app_dir: str | None, name: str, values: dict[str, Any], options: CallOptions) -> Call[Any]:
    """Make a call of a registry's type, which checks the arguments.

    Raises:
        WrongUsage: It has no such type, or an argument is text where it should be something else.
        ArgumentsError: The arguments don't fit.
    """
    registry = load_registry(app, app_dir)
    job_type = registry.types.get(name)
    if job_type is None:
        raise WrongUsage(f"{app} has no job type {name!r}; it has {', '.join(sorted(registry.types)) or 'none'}")
    try:
        return job_type(**values).options(**options)
    except ArgumentsError as error:
        name = re.split(r"[.\[]", error.path, maxsplit=1)[0]
        if isinstance(values.get(name), str):
            raise WrongUsage(f"{error}. A value that isn't text is given as JSON: {name}:={values[name]}") from None
        raise


def read_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Read `name=text`, `name:=json`, or one JSON object.

    Raises:
        WrongUsage: One is none of these.
    """
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        return cast("dict[str, Any]", _json(texts[0], "ARGUMENTS"))
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        raw = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name.isidentifier():
            raise WrongUsage(f"{text!r} is neither name=text nor name:=json")
        if name in values:
            raise WrongUsage(f"the argument {name} is given twice")
        values[name] = _json(value, name) if raw else value
    return values


def _json(text: str, name: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise WrongUsage(f"{name}: that isn't JSON: {error}") from None


def read_options(given: Mapping[str, Any]) -> CallOptions:
    """Read what was given with `call_options`.

    Raises:
        WrongUsage: A time isn't one.
    """
    values = {name: given.get(name) for name in _NAMES}
    at, attempts = values.pop("at"), values.pop("max_attempts")
    options = {name: value for name, value in values.items() if value is not None and value is not False and value != ()}
    if at is not None:
        options["at"] = read_time(at, "--at")
    if attempts is not None:
        options["retry"] = Retry(max_attempts=attempts)
    return cast("CallOptions", options)
