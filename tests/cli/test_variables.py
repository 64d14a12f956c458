"""One reader of `AIOQUEUE_*` and one grammar: a program that embeds a worker and the command line read the same values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import aioqueue.cli._worker
from aioqueue import Client, ConfigurationError, Worker
from aioqueue.cli import main
from tests.cli.jobs import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.definitions._settings import WorkerSettings
    from tests.cli.conftest import Invoke

APP = "tests.cli.jobs:registry"


class Made(Exception):
    """Carries the settings of the worker that the command line has made, instead of its running."""


class Watched(Worker):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        raise Made(self.settings)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], WorkerSettings]:
    def make(variables: dict[str, str]) -> WorkerSettings:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return Worker(Client(), registry).settings

    return make


@pytest.fixture
def commanded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerSettings]:
    """The command line's worker: its settings, or the error's text as a `ConfigurationError`."""
    monkeypatch.setattr(aioqueue.cli._worker, "Worker", Watched)

    def make(variables: dict[str, str], *options: str) -> WorkerSettings:
        result = CliRunner().invoke(main, ["worker", APP, *options], env=variables)
        if isinstance(result.exception, Made):
            settings: WorkerSettings = result.exception.args[0]
            return settings
        assert result.exit_code == 2, result.output
        raise ConfigurationError(result.output)

    return make


OPTIONS = {"lease", "grace", "poll_interval", "concurrency"}

READ: list[tuple[str, str, str, float]] = [
    ("lease", "AIOQUEUE_LEASE", "1e2", 100),
    ("lease", "AIOQUEUE_LEASE", " 90 ", 90),
    ("lease", "AIOQUEUE_LEASE", "1_000", 1000),
    ("lease", "AIOQUEUE_LEASE", "", 60),
    ("lease", "AIOQUEUE_LEASE", "  ", 60),
    ("grace", "AIOQUEUE_GRACE", ".5", 0.5),
    ("grace", "AIOQUEUE_GRACE", "5.", 5),
    ("grace", "AIOQUEUE_GRACE", "+5 s", 5),
    ("grace", "AIOQUEUE_GRACE", "2m", 120),
    ("grace", "AIOQUEUE_GRACE", "1.5h", 5400),
    ("grace", "AIOQUEUE_GRACE", "2d", 172_800),
    ("poll_interval", "AIOQUEUE_POLL_INTERVAL", "500ms", 0.5),
    ("renew_every", "AIOQUEUE_RENEW_EVERY", "15s", 15),
    ("concurrency", "AIOQUEUE_CONCURRENCY", " 7 ", 7),
    ("max_reschedules", "AIOQUEUE_MAX_RESCHEDULES", "0", 0),
]


@pytest.mark.parametrize(("setting", "variable", "text", "value"), READ)
def test_both_doors_read_the_same_values(
    embedded: Any, commanded: Any, setting: str, variable: str, text: str, value: float
) -> None:
    assert getattr(embedded({variable: text}), setting) == pytest.approx(value)
    assert commanded({variable: text}) == embedded({variable: text})


@pytest.mark.parametrize(
    ("option", "_variable", "text", "value"), [each for each in READ if each[2].strip() and each[0] in OPTIONS]
)
def test_an_option_is_read_as_its_variable(commanded: Any, option: str, _variable: str, text: str, value: float) -> None:
    assert getattr(commanded({}, f"--{option.replace('_', '-')}", text), option) == pytest.approx(value)


REFUSED = [
    ("AIOQUEUE_LEASE", "1 minute", "must be a duration"),
    ("AIOQUEUE_LEASE", "5x", "must be a duration"),
    ("AIOQUEUE_LEASE", "inf", "must be a duration"),
    ("AIOQUEUE_LEASE", "nan", "must be a duration"),
    ("AIOQUEUE_LEASE", "1__0", "must be a duration"),
    ("AIOQUEUE_LEASE", "1e999", "must be zero or positive"),
    ("AIOQUEUE_LEASE", "\N{ARABIC-INDIC DIGIT SIX}0", "must be a duration"),
    ("AIOQUEUE_LEASE", "10ms", "must be at least 1 s"),
    ("AIOQUEUE_GRACE", "-5", "must be zero or positive"),
    ("AIOQUEUE_GRACE", "5mm", "must be a duration"),
    ("AIOQUEUE_POLL_INTERVAL", "0", "must be at least 0.01 s"),
    ("AIOQUEUE_RENEW_EVERY", "50", "must be at most half of the lease"),
    ("AIOQUEUE_CONCURRENCY", "0", "must be from 1 to 10,000"),
    ("AIOQUEUE_CONCURRENCY", "1e2", "must be a whole number"),
    ("AIOQUEUE_MAX_RESCHEDULES", "-1", "must be from 0"),
    ("AIOQUEUE_MAX_ATTEMPTS", "0", "must be from 1 to 32,767"),
]


@pytest.mark.parametrize(("variable", "text", "way_out"), REFUSED)
def test_both_doors_refuse_the_same_by_name(embedded: Any, commanded: Any, variable: str, text: str, way_out: str) -> None:
    refusals: list[str] = []
    for door in (embedded, commanded):
        with pytest.raises(ConfigurationError) as caught:
            door({variable: text})
        refusals.append(str(caught.value))
    assert variable in refusals[0]
    assert way_out in refusals[0]
    assert refusals[0] in refusals[1]


def test_an_option_comes_before_its_variable(commanded: Any) -> None:
    assert commanded({"AIOQUEUE_LEASE": "nonsense"}, "--lease", "90").lease == 90


def test_a_url_in_the_variable_is_refused_by_name_and_not_shown(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    for bad in ("user:hunter2@host", "mysql://user:hunter2@host/x", "sqlite:///x?password=hunter2"):
        monkeypatch.setenv("AIOQUEUE_URL", bad)
        with pytest.raises(ConfigurationError, match=r"^AIOQUEUE_URL: ") as caught:
            Client()
        assert str(caught.value) in invoke("stats", exit_code=2, AIOQUEUE_URL=bad).output
        assert "hunter2" not in str(caught.value)


def test_spaces_around_a_url_in_the_variable_do_not_matter(monkeypatch: pytest.MonkeyPatch, url: str, invoke: Invoke) -> None:
    monkeypatch.setenv("AIOQUEUE_URL", f" {url} ")
    assert Client().store.description == Client(url).store.description
    assert f"there is no file {url.removeprefix('sqlite:///')}:" in invoke("stats", exit_code=1, AIOQUEUE_URL=f" {url} ").output


@pytest.mark.parametrize(("variable", "text"), [("AIOQUEUE_ONCE", "perhaps"), ("AIOQUEUE_LOG_LEVEL", "loud")])
def test_what_only_the_command_line_reads_is_refused_by_name(invoke: Invoke, variable: str, text: str) -> None:
    output = invoke("worker", APP, exit_code=2, **{variable: text}).output
    assert variable in output
    assert text in output


def doctored(invoke: Invoke, exit_code: int = 0, **variables: str) -> list[dict[str, str]]:
    """What `aioqueue doctor` finds of the variables."""
    found = json.loads(invoke("doctor", "--json", exit_code=exit_code, **variables).stdout)["findings"]
    return [each for each in found if each["check"] == "variables"]


def test_the_doctor_knows_misspelt_and_bad_variables(invoke: Invoke) -> None:
    invoke("migrate")
    (fine,) = doctored(invoke, AIOQUEUE_GRACE="5m", AIOQUEUE_LEASE=" ")
    assert (fine["verdict"], fine["seen"]) == ("ok", "set for this process: AIOQUEUE_GRACE, AIOQUEUE_URL")
    (misspelt,) = doctored(invoke, AIOQUEUE_CONCURENCY="3")
    assert misspelt["verdict"] == "warning"
    assert misspelt["advice"] == "Did you mean AIOQUEUE_CONCURRENCY?"
    for bad in ({"AIOQUEUE_LEASE": "soon"}, {"AIOQUEUE_RENEW_EVERY": "50"}, {"AIOQUEUE_ONCE": "perhaps"}):
        (problem,) = doctored(invoke, exit_code=1, **bad)
        assert problem["verdict"] == "problem"
        assert problem["seen"].startswith(next(iter(bad)))
