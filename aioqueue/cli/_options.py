"""Options that several commands share, how their values and variables are read, and how a command ends."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click
from click.core import ParameterSource

from aioqueue.cli._text import configure_logging, one_line
from aioqueue.client import Client
from aioqueue.definitions._environment import DEFAULT_URL, Environment, variable_of
from aioqueue.errors import AioqueueError, CallError, ConfigurationError
from aioqueue.vocabulary._numbers import read_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

__all__ = [
    "DURATION",
    "JobsFailed",
    "Problem",
    "WrongUsage",
    "app_dir_option",
    "command_option",
    "explained",
    "log_level_option",
    "looking_at",
    "run",
    "set_up_logging",
    "setting_option",
    "url_option",
]

T = TypeVar("T")
Command = TypeVar("Command", bound="Callable[..., Any]")

_LOG_LEVEL_KEY = "aioqueue.log_level"
_LOG_FORMAT_KEY = "aioqueue.log_format"
LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("text", "json")


if TYPE_CHECKING:
    FloatType = click.ParamType[float]
else:
    FloatType = click.ParamType  # not generic before click 8.4


class Duration(FloatType):
    """Seconds, or a number with a unit, as in the variables: `500ms`, `30s`, `5m`, `1h`, `2d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read what was written as seconds; click calls it."""
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return read_duration(str(value), (param and param.name) or self.name)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()


class CommandOption(click.Option):
    """An option of the command line alone, whose variable is read by the one reader of variables."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 - the signature of the base
        """The variable's text, if it's set."""
        assert isinstance(self.envvar, str)
        return Environment().text(self.envvar)


class SettingOption(click.Option):
    """An option for a setting whose variable and default the client or the worker knows: the help only tells them.

    What isn't given as an option is None, and left to the client or the worker.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 - the signature of the base
        """None: the variable isn't read here."""
        return None

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """None where there would be the default."""
        value, source = super().consume_value(ctx, opts)
        return (None if source is ParameterSource.DEFAULT else value), source


def command_option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option of the command line alone, such as `--once`, with its variable."""
    return click.option(*names, cls=CommandOption, envvar=_variable(names), show_envvar=True, **attributes)


def setting_option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option for a setting of the client or the worker, such as `--lease`."""
    return click.option(*names, cls=SettingOption, envvar=_variable(names), show_envvar=True, **attributes)


def _variable(names: tuple[str, ...]) -> str:
    return variable_of(names[0].partition("/")[0].removeprefix("--").replace("-", "_"))


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
    """The command did what it was asked to, and jobs have failed."""

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
    """Add `--url`, which may be missing: the client knows the variable and the default."""
    return setting_option(
        "--url",
        default=DEFAULT_URL,
        show_default=True,
        help="The database. A password is better given by the variable.",
    )(command)


def looking_at(url: str | None) -> Client:
    """A client for a command that only looks: it makes no file where there is none."""
    meant = Environment().url() if url is None else url
    return Client(url, create=False) if meant.partition("://")[0].lower() == "sqlite" else Client(url)


def app_dir_option(command: Command) -> Command:
    """Add `--app-dir`: where the module with the registry lies."""
    return command_option(
        "--app-dir",
        metavar="FOLDER",
        help="Where the module lies; appended to the import path. By default the working folder.",
    )(command)


def _remember_level(context: click.Context, parameter: click.Parameter, level: str) -> str:
    source = context.get_parameter_source(parameter.name or "")
    context.meta[_LOG_LEVEL_KEY] = level, source is not ParameterSource.DEFAULT
    return level


def _remember_format(context: click.Context, parameter: click.Parameter, log_format: str) -> str:  # noqa: ARG001 - of click
    context.meta[_LOG_FORMAT_KEY] = log_format.lower()
    return log_format


def set_up_logging() -> None:
    """Set up logging as its options say. Commands that import an application call it afterwards: it may have done so."""
    context = click.get_current_context(silent=True)
    if context is not None and _LOG_LEVEL_KEY in context.meta:
        level, given = context.meta[_LOG_LEVEL_KEY]
        configure_logging(level, context.meta.get(_LOG_FORMAT_KEY, "text"), given=given)


def log_level_option(default: str) -> Callable[[Command], Command]:
    """Add `--log-level`, with the command's own default, and `--log-format`."""
    add_level = command_option(
        "--log-level",
        default=default,
        show_default=True,
        type=click.Choice(LEVELS, case_sensitive=False),
        callback=_remember_level,
        is_eager=False,
        expose_value=False,
    )
    add_format = command_option(
        "--log-format",
        default="text",
        show_default=True,
        type=click.Choice(LOG_FORMATS, case_sensitive=False),
        callback=_remember_format,
        expose_value=False,
        help="For people, or one JSON object a line.",
    )
    return lambda command: add_level(add_format(command))
