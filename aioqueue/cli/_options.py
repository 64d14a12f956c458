"""Options that several commands share, and how their values are read. Each is a variable, too."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click
from click.core import ParameterSource

from aioqueue.cli._text import configure_logging, one_line
from aioqueue.client import Client
from aioqueue.errors import AioqueueError, CallError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = [
    "DURATION",
    "JobsFailed",
    "Problem",
    "WrongUsage",
    "app_dir_option",
    "explained",
    "log_level_option",
    "looking_at",
    "run",
    "set_up_logging",
    "url_option",
]

T = TypeVar("T")
Command = TypeVar("Command", bound="Callable[..., Any]")

_LEVEL = "aioqueue.log_level"
LEVELS = ("debug", "info", "warning", "error", "critical")
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


if TYPE_CHECKING:
    FloatType = click.ParamType[float]
else:
    FloatType = click.ParamType  # not generic before click 8.4


class Duration(FloatType):
    """Seconds, or a number with a unit: `500ms`, `30s`, `5m`, `1h`, `2d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} isn't a duration: give seconds, or a number with ms, s, m, h or d", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "s"]


DURATION = Duration()


class Problem(click.ClickException):
    """What ends a command: an error that was foreseen, without a traceback.

    Arguments:
        message: What happened.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class WrongUsage(Problem):
    """Options, arguments or settings that can't be used."""

    exit_code = 2


class JobsFailed(Problem):
    """All went well, except for jobs that failed."""

    exit_code = 3


@contextmanager
def explained() -> Generator[None]:
    """Turn the package's own errors into a line of text and an exit code."""
    try:
        yield
    except (ConfigurationError, CallError) as error:
        raise WrongUsage(str(error)) from None
    except AioqueueError as error:
        raise Problem(f"{type(error).__name__}: {error}") from None


def run(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run a command's coroutine function; errors of the package are explained."""
    set_up_logging()
    with explained():
        return anyio.run(function, *arguments)


def url_option(command: Command) -> Command:
    """`--url`."""
    return click.option(
        "--url",
        envvar="AIOQUEUE_URL",
        show_envvar=True,
        default="sqlite:///aioqueue.db",
        show_default=True,
        help="The database. A password is better given by the variable.",
    )(command)


def looking_at(url: str) -> Client:
    """A client for a command that only looks: it makes no file where there is none."""
    return Client(url, create=False) if url.partition("://")[0].lower() == "sqlite" else Client(url)


def app_dir_option(command: Command) -> Command:
    """`--app-dir`."""
    return click.option(
        "--app-dir",
        envvar="AIOQUEUE_APP_DIR",
        show_envvar=True,
        metavar="FOLDER",
        help="Where the module lies; appended to the import path. By default the working folder.",
    )(command)


def _remember_level(context: click.Context, parameter: click.Parameter, level: str) -> str:
    source = context.get_parameter_source(parameter.name or "")
    context.meta[_LEVEL] = level, source is not ParameterSource.DEFAULT
    return level


def set_up_logging() -> None:
    """Set up logging as `--log-level` says. Commands that import an application call it afterwards: it may have done so."""
    context = click.get_current_context(silent=True)
    if context is not None and _LEVEL in context.meta:
        level, given = context.meta[_LEVEL]
        configure_logging(level, given=given)


def log_level_option(default: str) -> Callable[[Command], Command]:
    """`--log-level`, with the command's own default."""
    return click.option(
        "--log-level",
        envvar="AIOQUEUE_LOG_LEVEL",
        show_envvar=True,
        default=default,
        show_default=True,
        type=click.Choice(LEVELS, case_sensitive=False),
        callback=_remember_level,
        is_eager=False,
        expose_value=False,
    )
