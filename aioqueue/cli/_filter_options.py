"""The options that say which jobs are meant, alike for listings and for changes of all that fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._options import AnyType, Problem, read_time
from aioqueue.errors import ConfigurationError, JobNotFound
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._numbers import read_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioqueue.client import Client

__all__ = ["FILTER_NAMES", "FILTER_OPTIONS", "filter_options", "is_filtered", "read_filter"]

Command = TypeVar("Command", bound="Callable[..., Any]")


class Moment(AnyType):
    """A time in ISO 8601, or how long ago it was, such as `90m`: by this machine's clock."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read what was written; click calls it."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.now(UTC) - timedelta(seconds=read_duration(str(value), self.name))
        except ConfigurationError:
            option = "--" + ((param and param.name) or self.name).replace("_", "-")
            return read_time(str(value), option, ", nor how long ago it was, such as 90m")
        except OverflowError:
            self.fail(f"{value!r} is too long ago", param, ctx)


MOMENT = Moment()

_TIMES = {
    "created-after": "Created at this time or later: ISO 8601 with an offset, or how long ago, such as 90m.",
    "created-before": "Created earlier than this.",
    "finished-after": "Finished at this time or later.",
    "finished-before": "Finished earlier than this.",
}
_TEXTS = {
    "key": ("key", "Exactly this key."),
    "tag": ("tag", "Among the tags."),
    "worker": ("worker", "Running on a worker of this name."),
    "outcome": ("outcome", "Finished with this label."),
    "error-type": ("error_type", "The newest error is of this type, such as ValueError."),
    "chain": ("chain", "Of this chain: any step's id, or its first digits."),
}
FILTER_NAMES = ("states", "types", *(name for name, _ in _TEXTS.values()), *(each.replace("-", "_") for each in _TIMES))
"""Of the parameters that a command gets."""
FILTER_OPTIONS = "--state, --type, " + ", ".join(f"--{each}" for each in (*_TEXTS, *_TIMES))


def filter_options(states: Iterable[str]) -> Callable[[Command], Command]:
    """Add them all. The command gets what was given as `FILTER_NAMES`, for `read_filter`.

    Arguments:
        states: Those that `--state` takes.
    """
    options = [
        click.option("--state", "states", multiple=True, type=click.Choice(tuple(states)), help="In any of these states."),
        click.option("--type", "types", multiple=True, metavar="NAME", help="Of any of these job types."),
        *(click.option(f"--{option}", name, help=text) for option, (name, text) in _TEXTS.items()),
        *(click.option(f"--{option}", type=MOMENT, metavar="TIME", help=text) for option, text in _TIMES.items()),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def is_filtered(given: Mapping[str, Any]) -> bool:
    """Whether any of the options was given."""
    return any(given[name] not in (None, ()) for name in FILTER_NAMES)


async def read_filter(client: Client, given: Mapping[str, Any], *, states: Iterable[str] = (), ends: bool = False) -> JobFilter:
    """Read what was given.

    Arguments:
        client: Open: a chain's id is looked up in it.
        given: The command's parameters.
        states: Where `--state` wasn't given.
        ends: Whether only chains' live or last steps are meant.

    Raises:
        Problem: There is no such chain.
    """
    values = {name: given[name] for name in FILTER_NAMES if name not in ("states", "types", "chain")}
    chain = given["chain"]
    if chain is not None:
        (wanted,) = await find_ids(client, [chain])
        try:
            chain = (await client.chain(wanted)).chain_id
        except JobNotFound:
            raise Problem(f"there is no job {given['chain']}") from None
    return JobFilter(states=given["states"] or states, types=given["types"], chain_id=chain, ends=ends, **values)
