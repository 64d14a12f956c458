"""Options that several commands share, how their values and variables are read, and how a command ends."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click

from aioqueue.cli._text import configure_logging, one_line
from aioqueue.client import Client
from aioqueue.definitions._environment import Environment
from aioqueue.definitions._setting_kinds import Choice, Names, YesNo
from aioqueue.definitions._setting_table import APP_DIR, LOG_FORMAT, LOG_LEVEL, SETTINGS, URL
from aioqueue.errors import AioqueueError, CallError, ConfigurationError
from aioqueue.vocabulary._numbers import read_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from aioqueue.definitions._setting_kinds import Setting

__all__ = [
    "DURATION",
    "AnyType",
    "JobsFailed",
    "Problem",
    "SettingsCommand",
    "WrongUsage",
    "app_dir_option",
    "explained",
    "log_level_option",
    "looking_at",
    "read_time",
    "run",
    "set_up_logging",
    "setting_option",
    "url_option",
]

T = TypeVar("T")
Command = TypeVar("Command", bound="Callable[..., Any]")

_LOG_LEVEL_KEY = "aioqueue.log_level"
_LOG_FORMAT_KEY = "aioqueue.log_format"


if TYPE_CHECKING:
    FloatType = click.ParamType[float]
    AnyType = click.ParamType[Any]
else:
    FloatType = AnyType = click.ParamType  # not generic before click 8.4


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


def read_time(text: str, option: str, also: str = "") -> datetime:
    """Read a time in ISO 8601 that says in which time zone it is.

    Arguments:
        text: As written.
        option: Where it was, for the error.
        also: What else may be written there, for the error.

    Raises:
        WrongUsage: It isn't one.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"{option}: {text!r} isn't a time in ISO 8601, such as {_EXAMPLE_TIME}{also}") from None
    if time.utcoffset() is None:
        here = time.astimezone()
        raise WrongUsage(
            f"{option}: {text!r} doesn't say in which time zone: add an offset, such as {time.isoformat()}Z for UTC, or "
            f"{here.isoformat()} for the time of this machine"
        )
    return time


_EXAMPLE_TIME = "2030-01-31T12:00:00+01:00"


class SettingType(AnyType):
    """A setting's value after its option: read and checked as its variable's.

    Arguments:
        setting: Whose.
    """

    def __init__(self, setting: Setting[Any]) -> None:
        self.name = setting.name
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was written; click calls it."""
        try:
            return self._setting.kind.from_text(str(value), self._setting.name)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def setting_option(setting: Setting[Any], **attributes: Any) -> Callable[[Command], Command]:
    """An option for a setting, made of its definition.

    What isn't given is None and left to the client or the worker, which know the variable and the default; but a setting of
    the command line alone is read here.

    Arguments:
        setting: From the table.
        attributes: For click, before those of the setting; and `what` and `shown` in place of its sentence and its default.
    """
    kind = setting.kind
    what, shown = attributes.pop("what", setting.what), attributes.pop("shown", setting.shown_default)
    given: dict[str, Any] = {"default": None, "help": f"{what}  [{setting.variable}; default: {shown}]"}
    if isinstance(kind, Choice):
        given["type"] = click.Choice(kind.words, case_sensitive=False)
    elif not isinstance(kind, YesNo):
        given["type"] = SettingType(setting)
    else:
        given["is_flag"] = True
    if kind.metavar is not None:
        given["metavar"] = kind.metavar
    if isinstance(kind, Names):
        given["multiple"] = True
    if not setting.of:
        given["callback"] = partial(_read_here, setting)
    return click.option(setting.flag, setting.name, **given | attributes)


def _read_here(setting: Setting[Any], _context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    with explained():
        return setting.read(value, Environment())


class SettingsCommand(click.Command):
    """A command with many settings: its help has them in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; click calls it."""
        options = {each.name: each for each in self.get_params(ctx) if isinstance(each, click.Option)}
        grouped: dict[str, list[tuple[str, str]]] = {}
        for setting in SETTINGS:
            option = options.pop(setting.name, None)
            if option is not None and (record := option.get_help_record(ctx)) is not None:
                grouped.setdefault(setting.group, []).append(record)
        others = [record for option in options.values() if (record := option.get_help_record(ctx)) is not None]
        for title, records in {**grouped, "Others": others}.items():
            with formatter.section(title):
                formatter.write_dl(records)


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
    return setting_option(URL)(command)


def looking_at(url: str | None) -> Client:
    """A client for a command about what is there already: it makes no file, and no tables, where there are none."""
    meant = Environment().url() if url is None else url
    return Client(url, create=False) if meant.partition("://")[0].lower() == "sqlite" else Client(url)


def app_dir_option(command: Command) -> Command:
    """Add `--app-dir`: where the module with the registry lies."""
    return setting_option(APP_DIR)(command)


def set_up_logging() -> None:
    """Set up logging as its options say. Commands that import an application call it afterwards: it may have done so."""
    context = click.get_current_context(silent=True)
    if context is not None and _LOG_LEVEL_KEY in context.meta:
        level, given = context.meta[_LOG_LEVEL_KEY]
        configure_logging(level, context.meta.get(_LOG_FORMAT_KEY, LOG_FORMAT.default), given=given)


def log_level_option(default: str) -> Callable[[Command], Command]:
    """Add `--log-level`, with the command's own default, and `--log-format`."""

    def remember_level(context: click.Context, _parameter: click.Parameter, level: str | None) -> None:
        with explained():
            read = LOG_LEVEL.read(level, Environment(), default=default)
        context.meta[_LOG_LEVEL_KEY] = read, LOG_LEVEL.is_set(level, Environment())

    def remember_format(context: click.Context, _parameter: click.Parameter, log_format: str | None) -> None:
        with explained():
            context.meta[_LOG_FORMAT_KEY] = LOG_FORMAT.read(log_format, Environment())

    add_level = setting_option(LOG_LEVEL, callback=remember_level, expose_value=False, shown=default)
    add_format = setting_option(LOG_FORMAT, callback=remember_format, expose_value=False)
    return lambda command: add_level(add_format(command))
