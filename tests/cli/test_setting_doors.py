"""Every setting comes in by three doors of one name: a keyword argument, a variable and an option."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import aioqueue.cli._worker
from aioqueue import Client, ConfigurationError, Retry, Worker
from aioqueue.cli import main
from aioqueue.cli._options import _LOG_FORMAT_KEY, _LOG_LEVEL_KEY
from aioqueue.cli._worker import worker as command
from aioqueue.definitions._setting_kinds import Choice, Duration, Names, Setting, Text, Visible, WholeNumber, YesNo
from aioqueue.definitions._setting_table import SETTINGS
from aioqueue.definitions._settings import WorkerOptions
from aioqueue.definitions._webhook_kinds import Receivers
from tests.cli.jobs import registry

APP = "tests.cli.jobs:registry"
FOLDER = str(Path(__file__).parent)
OWNED = [setting for setting in SETTINGS if setting.of]
WITH_OPTION = [setting for setting in OWNED if setting.option]
ALONE = [setting for setting in SETTINGS if not setting.of]
BOTH = [setting for setting in SETTINGS if len(setting.of) > 1]
CODE_ONLY = {
    Client: {"self", "source", "middlewares", "options"},
    Worker: {"self", "client", "registry", "resources", "default_retry", "on_purge", "settings"},
}
"""What is code, or an object, and so has neither option nor variable."""
NEEDS = {"wait": {"singleton": "alone"}, "standby": {"singleton": "alone"}}
"""Settings without which others are refused."""
SECRET = "whsec_" + "A" * 32
WEBHOOKS: dict[str, tuple[str, Any]] = {
    "webhook": ("https://hooks.example/in",) * 2,
    "webhook_secret": (SECRET, (SECRET,)),
    "webhook_allow": ("10.0.0.0/8, Hooks.internal:80", ("10.0.0.0/8", "hooks.internal:80")),
}


def named(setting: object) -> str:
    return setting.name if isinstance(setting, Setting) else ""


def sample(setting: Setting[Any]) -> tuple[str, Any]:
    """A value that isn't the default, as it's typed, and as it's read."""
    special = {"url": ("sqlite:///elsewhere.db",) * 2, "types": ("jobs.greet, jobs.fail", ("jobs.greet", "jobs.fail"))}
    if setting.name in special:
        return special[setting.name]
    if setting.name in WEBHOOKS:
        return WEBHOOKS[setting.name]
    kind = setting.kind
    if isinstance(kind, YesNo):
        value = setting.default is not True
        return ("1" if value else "0"), value
    if isinstance(kind, Duration):
        return "7s", 7.0
    if isinstance(kind, WholeNumber):
        return "7", 7
    if isinstance(kind, Choice):
        return kind.words[-1], kind.words[-1]
    assert isinstance(kind, Text)
    return FOLDER, FOLDER


def as_options(setting: Setting[Any]) -> list[str]:
    """The sample as it's typed after the command."""
    if isinstance(setting.kind, YesNo):
        flags = setting.flag.split("/")
        return [flags[0] if sample(setting)[1] else flags[1]]
    return [setting.flag, sample(setting)[0]]


def held(owner: Any, setting: Setting[Any]) -> Any:
    """What a client or worker has made of a setting."""
    if setting.name == "url":
        return "sqlite:///elsewhere.db" if "elsewhere.db" in owner.store.description else None
    if setting.name == "max_attempts":
        return owner.settings.default_retry.max_attempts
    if isinstance(owner, Client):
        value = getattr(owner._session._settings, setting.name)
        return value._on if setting.name == "tracing" else value
    return getattr(owner.settings, setting.name)


class Made(Exception):
    """Carries the client and the worker that the command has made, instead of their running."""


class Watched(Worker):
    def __init__(self, client: Client, *arguments: Any, **settings: Any) -> None:
        super().__init__(client, *arguments, **settings)
        raise Made(client, self)


def commanded(monkeypatch: pytest.MonkeyPatch, *options: str, **variables: str) -> dict[str, Any]:
    """The client and the worker of `aioqueue worker`, by their names."""
    monkeypatch.setattr(aioqueue.cli._worker, "Worker", Watched)
    result = CliRunner().invoke(main, ["worker", APP, *options], env=variables)
    assert isinstance(result.exception, Made), result.output
    client, made = result.exception.args
    return {"Client": client, "Worker": made}


def parsed(*options: str) -> dict[str, Any]:
    """What the command `worker` reads for its own use."""
    context = command.make_context("worker", [APP, *options])
    return {"log_level": context.meta[_LOG_LEVEL_KEY][0], "log_format": context.meta[_LOG_FORMAT_KEY], **context.params}


def owners(**settings: Any) -> dict[str, Any]:
    """A client and a worker of a program's, of which each is given those of the settings that are its own."""
    mine = {
        owner: {name: value for name, value in settings.items() if (name, owner) in KNOWN} for owner in ("Client", "Worker")
    }
    return {"Client": Client(**mine["Client"]), "Worker": Worker(Client(), registry, **mine["Worker"])}


KNOWN = {(setting.name, owner) for setting in SETTINGS for owner in setting.of}


@pytest.mark.parametrize("setting", OWNED, ids=named)
def test_a_keyword_argument(setting: Setting[Any]) -> None:
    value = sample(setting)[1]
    made = owners(**{setting.name: value}, **NEEDS.get(setting.name, {}))
    for owner in setting.of:
        assert held(made[owner], setting) == value


@pytest.mark.parametrize("setting", OWNED, ids=named)
def test_a_variable(setting: Setting[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = sample(setting)
    monkeypatch.setenv(setting.variable, f" {text} ")
    for name, needed in NEEDS.get(setting.name, {}).items():
        monkeypatch.setenv(f"AIOQUEUE_{name.upper()}", needed)
    made, by_command = owners(), commanded(monkeypatch)
    for owner in setting.of:
        assert held(made[owner], setting) == value
        assert held(by_command[owner], setting) == value


@pytest.mark.parametrize("setting", WITH_OPTION, ids=named)
def test_an_option_which_comes_before_the_variable(setting: Setting[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    needed = [text for name, value in NEEDS.get(setting.name, {}).items() for text in (f"--{name}", value)]
    made = commanded(monkeypatch, *as_options(setting), *needed, **{setting.variable: "nonsense, which nobody reads"})
    for owner in setting.of:
        assert held(made[owner], setting) == sample(setting)[1]


@pytest.mark.parametrize("setting", ALONE, ids=named)
def test_what_is_the_command_lines_alone_has_a_variable_and_an_option(
    setting: Setting[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = sample(setting)
    assert parsed(*as_options(setting))[setting.name] == value != parsed()[setting.name]
    monkeypatch.setenv(setting.variable, text)
    assert parsed()[setting.name] == value


@pytest.mark.parametrize("setting", SETTINGS, ids=named)
def test_an_empty_variable_is_not_set(setting: Setting[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    without = [held(owners()[owner], setting) for owner in setting.of], parsed()
    monkeypatch.setenv(setting.variable, " ")
    assert ([held(owners()[owner], setting) for owner in setting.of], parsed()) == without


TYPED = [setting for setting in SETTINGS if type(setting.kind) not in (Text, Visible)]


@pytest.mark.parametrize("setting", TYPED, ids=named)
def test_a_bad_value_is_refused_by_the_name_of_its_variable_or_option(
    setting: Setting[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "," if isinstance(setting.kind, Names | Receivers) else "perhaps"
    refusal = CliRunner().invoke(main, ["worker", APP], env={setting.variable: bad})
    assert (refusal.exit_code, setting.variable in refusal.output) == (2, True), refusal.output
    if not isinstance(setting.kind, YesNo) and setting.option:
        refusal = CliRunner().invoke(main, ["worker", APP, setting.flag, bad])
        assert (refusal.exit_code, setting.flag in refusal.output) == (2, True), refusal.output
    monkeypatch.setenv(setting.variable, bad)
    for owner in setting.of:
        with pytest.raises(ConfigurationError, match=f"^{setting.variable} must be"):
            Client() if owner == "Client" else Worker(Client(), registry)


@pytest.mark.parametrize("setting", [each for each in OWNED if each.name != "url"], ids=named)  # a pool may be given there
def test_an_argument_of_another_type_is_refused_by_name(setting: Setting[Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{setting.name}\\b"):
        owners(**{setting.name: object()})


@pytest.mark.parametrize("owner", [Client, Worker])
def test_every_keyword_argument_is_in_the_table(owner: type[Client | Worker]) -> None:
    named = {Client: set[str](), Worker: set(WorkerOptions.__annotations__)}
    taken = (set(inspect.signature(owner.__init__).parameters) | named[owner]) - CODE_ONLY[owner]
    assert taken == {setting.name for setting in SETTINGS if owner.__name__ in setting.of}


def test_the_worker_takes_an_option_for_every_setting_and_no_others() -> None:
    options = {each.name for each in command.params if isinstance(each, click.Option)}
    assert options == {setting.name for setting in SETTINGS if setting.option}
    assert [setting.name for setting in SETTINGS if not setting.option] == ["webhook_secret"]  # others see what is typed


def test_the_help_tells_each_with_its_variable_and_default() -> None:
    text = " ".join(CliRunner().invoke(main, ["worker", "--help"], terminal_width=4000).output.split())
    for setting in [each for each in SETTINGS if each.option]:
        default = "5 s" if setting.name == "close_timeout" else setting.shown_default.partition(",")[0]
        assert setting.flag.partition("/")[0] in text
        assert f"{setting.what} [{setting.variable}; default: {default}" in text
    assert text.count("Show this message") == 1


def test_a_whole_policy_and_a_number_of_attempts_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Retry(max_attempts=3)
    with pytest.raises(ConfigurationError, match=r"^max_attempts and default_retry .*default_retry=Retry\(max_attempts=7\)"):
        Worker(Client(), registry, max_attempts=7, default_retry=policy)
    monkeypatch.setenv("AIOQUEUE_MAX_ATTEMPTS", "7")
    assert Worker(Client(), registry, default_retry=policy).settings.default_retry is policy


@pytest.mark.parametrize("waiting", ["wait", "standby"])
def test_waiting_for_no_name_is_refused(waiting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {waiting: True}
    with pytest.raises(ConfigurationError, match=f"^{waiting} is about a name .*singleton"):
        Worker(Client(), registry, **given)
    refusal = CliRunner().invoke(main, ["worker", APP, f"--{waiting}"])
    assert (refusal.exit_code, "singleton" in refusal.output) == (2, True), refusal.output
    monkeypatch.setenv(f"AIOQUEUE_{waiting.upper()}", "1")
    with pytest.raises(ConfigurationError, match=f"^AIOQUEUE_{waiting.upper()} is about"):
        Worker(Client(), registry)


def test_waiting_for_one_lease_and_for_ever_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match=r"^wait is for one lease, and standby for as long as it takes"):
        Worker(Client(), registry, singleton="alone", wait=True, standby=True)


def test_running_once_and_standing_by_exclude_each_other() -> None:
    refusal = CliRunner().invoke(main, ["worker", APP, "--singleton", "alone", "--once", "--standby"])
    assert (refusal.exit_code, "--once" in refusal.output) == (2, True), refusal.output


@pytest.mark.anyio
async def test_in_a_program_too(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(ConfigurationError, match="standby"):
            await Worker(client, registry, singleton="alone", standby=True).run_once()


@pytest.mark.parametrize("name", ["a\nb", "x" * 201, " "])
def test_a_name_that_people_cant_see_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^singleton must be"):
        Worker(Client(), registry, singleton=name)


def test_a_setting_that_there_isnt_is_refused_by_its_name() -> None:
    given: dict[str, Any] = {"concurency": 3}
    with pytest.raises(TypeError, match="concurency"):
        Worker(Client(), registry, **given)


def test_two_sources_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="one source"):
        Client("sqlite:///one.db", url="sqlite:///other.db")


def test_an_unknown_type_in_the_variable_is_refused_by_its_name() -> None:
    refusal = CliRunner().invoke(main, ["worker", APP], env={"AIOQUEUE_TYPES": "jobs.gret"})
    assert refusal.exit_code == 2
    assert "AIOQUEUE_TYPES" in refusal.output
    assert "did you mean jobs.greet" in refusal.output


def test_a_worker_closes_its_client_sooner_unless_something_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commanded(monkeypatch)["Client"]._session._settings.close_timeout == 5
    assert Client()._session._settings.close_timeout == 10


def test_an_enqueue_takes_how_long_it_may_try(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    given: list[Any] = []

    class Asked(Client):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            given.append(settings.get("retry_for"))
            super().__init__(*arguments, **settings)

    monkeypatch.setattr("aioqueue.cli._queue.Client", Asked)
    result = CliRunner().invoke(main, ["enqueue", "any", "--retry-for", "500ms"], env={**os.environ, "AIOQUEUE_URL": url})
    assert (result.exit_code, given) == (0, [0.5]), result.output
