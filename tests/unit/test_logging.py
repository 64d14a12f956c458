"""The two formats of log records: one line each, whatever a record holds, and an object that can be read."""

from __future__ import annotations

import io
import json
import logging
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aioqueue import ConfigurationError
from aioqueue import logging as aioqueue_logging
from aioqueue.logging import JobFields, JsonFormatter, TextFormatter, set_up_handler

FORGED = "x\n2030-01-01T00:00:00.000Z ERROR root forged\r\x1b[2J\x1b[31mred\x00\x7f\x85\u2028\u202eend\ud800"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e\ud800]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError(FORGED)


def record(message: str = "done", *arguments: object, **fields: Any) -> logging.LogRecord:
    made = logging.getLogger("app").makeRecord("app", logging.WARNING, __file__, 1, message, arguments, None, "f", fields)
    made.created = 1_900_000_000.1234
    return made


def failed(text: str) -> logging.LogRecord:
    made = record("failed")
    try:
        raise ValueError(text)
    except ValueError as error:
        made.exc_info = type(error), error, error.__traceback__
    return made


def written(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(made)
    assert not UNSAFE.search(line)
    assert line.isascii()
    loaded: dict[str, Any] = json.loads(line)
    return loaded


def test_an_object_has_the_time_the_level_the_logger_the_message_and_the_fields() -> None:
    made = record("%s of %d", "one", 2, event="thing.done", size=3, ratio=0.5, ok=True, none=None, ids=[1, "a"])
    made.name = "aioqueue.worker"
    assert written(made) == {
        "time": "2030-03-17T17:46:40.123Z",
        "level": "WARNING",
        "logger": "aioqueue.worker",
        "event": "thing.done",
        "message": "one of 2",
        "size": 3,
        "ratio": 0.5,
        "ok": True,
        "none": None,
        "ids": [1, "a"],
    }


def test_a_record_of_somebody_else_has_no_event() -> None:
    assert set(written(record())) == {"time", "level", "logger", "message"}


def test_the_exception_is_a_text_in_the_object() -> None:
    shown = written(failed(FORGED))
    assert shown["message"] == "failed"
    assert shown["exception"].startswith("Traceback (most recent call last):\n")
    assert "ValueError: x\n2030" in shown["exception"]


def test_what_is_not_json_is_written_as_text() -> None:
    loop: list[object] = []
    loop.append(loop)
    odd = {"nan": float("nan"), "huge": 10**30, "loop": loop, "unwritable": Unwritable(), "set": {1}, "keys": {(1, 2): 3}}
    shown = written(record(**odd))
    assert shown["nan"] == "nan"
    assert shown["huge"] == str(10**30)
    assert shown["loop"] == "[[...]]"
    assert shown["unwritable"] == "<its text can't be made: RuntimeError>"
    assert shown["set"] == "{1}"
    assert shown["keys"] == "{(1, 2): 3}"


def test_a_field_takes_no_name_of_the_objects_own() -> None:
    shown = written(record(time="mine", level="mine", exception="mine"))
    assert shown["level"] == "WARNING"
    assert (shown["time_"], shown["level_"], shown["exception_"]) == ("mine", "mine", "mine")


def test_a_name_that_is_taken_by_another_field_loses_neither() -> None:
    long = "n" * 500
    shown = written(record(level=1, level_=2, level__=3, **{f"{long}1{long}": 4, f"{long}2{long}": 5}))
    assert (shown["level_"], shown["level__"], shown["level___"]) == (1, 2, 3)
    assert {4, 5} <= set(shown.values())


def test_only_aioqueues_own_records_have_an_event() -> None:
    made = record(event="attempt.ended", event_="mine")
    shown = written(made)
    assert "event" not in shown
    assert {shown["event_"], shown["event__"]} == {"attempt.ended", "mine"}
    made.name = "aioqueue_extras"
    assert "event" not in written(made)
    made.name = "aioqueue"
    shown = written(made)
    assert (shown["event"], shown["event_"]) == ("attempt.ended", "mine")


class Uncomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "uncomparable"


JOB = {"job_id": "0190", "job_type": "mail.send", "job_key": None, "chain_id": "018f", "attempt": 2, "worker": "w1"}


@pytest.fixture
def in_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SimpleNamespace(id="0190", type="mail.send", key=None, chain_id="018f", attempt=2, origin=None)
    monkeypatch.setattr(aioqueue_logging, "running_attempt", lambda: SimpleNamespace(job=job, worker_id="w1"))


def handled(made: logging.LogRecord) -> dict[str, Any]:
    """As two handlers write it, each with the filter; the second's object."""
    for _ in range(2):
        assert JobFields().filter(made)
    return {name: value for name, value in written(made).items() if name not in {"time", "level", "logger", "message"}}


@pytest.mark.usefixtures("in_a_handler")
@pytest.mark.parametrize("name", JOB)
@pytest.mark.parametrize(
    ("theirs", "shown"), [("mine", "mine"), (7, 7), (True, True), (None, None), (Uncomparable(), "uncomparable")], ids=str
)
def test_inside_a_handler_the_jobs_fields_are_the_jobs(name: str, theirs: object, shown: object) -> None:
    made = record(**{name: theirs})
    kept = {} if theirs is JOB[name] else {f"{name}_": shown}
    assert handled(made) == {**JOB, **kept}
    assert TextFormatter().format(made).endswith(" done [mail.send 0190 attempt 2]")
    assert handled(record(**{name: "1", f"{name}_": "2"})) == {**JOB, f"{name}__": "1", f"{name}_": "2"}


@pytest.mark.usefixtures("in_a_handler")
def test_many_fields_dont_displace_the_jobs() -> None:
    assert JOB.items() <= handled(record(**{f"field{number}": number for number in range(1000)})).items()


@pytest.mark.usefixtures("in_a_handler")
@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ({"job_id": "other"}, {"job_id": "other"}),
        ({"worker": "other", "jobs": 2}, {"worker": "other", "jobs": 2}),
        ({"jobs": 2}, {**JOB, "jobs": 2}),
    ],
)
def test_what_aioqueue_says_of_another_job_isnt_mixed_with_the_handlers(own: dict[str, Any], shown: dict[str, Any]) -> None:
    made = record(event="thing.done", **own)
    made.name = "aioqueue.sqlite"
    assert handled(made) == {"event": "thing.done", **shown}


def test_text_shows_a_job_only_where_all_of_it_is_there() -> None:
    assert TextFormatter().format(record(job_id="0190", attempt=2)).endswith(" done")


def test_texts_are_bounded_and_so_is_the_number_of_fields() -> None:
    many = {f"field{number}": "x" * 100_000 for number in range(1000)}
    line = JsonFormatter().format(record("m" * 1_000_000, **many))
    assert len(line) < 600_000
    shown = json.loads(line)
    assert len(shown["message"]) < 33_000
    assert "characters left out" in shown["message"]
    assert len(TextFormatter().format(record("m" * 1_000_000))) < 33_000
    assert len(json.dumps(written(failed("e" * 1_000_000)))) < 40_000


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()], ids=["json", "text"])
@pytest.mark.parametrize(
    "made",
    [
        record(FORGED),
        record("%s", FORGED),
        record("%d", FORGED),
        record("%s %s", FORGED),
        record("%s", Unwritable()),
        record(job_id=FORGED, job_type=FORGED, attempt=FORGED, **{FORGED: FORGED}),
        failed(FORGED),
    ],
)
def test_nothing_forges_a_line_or_changes_a_terminal(formatter: logging.Formatter, made: logging.LogRecord) -> None:
    made.name = made.levelname = FORGED
    line = formatter.format(made)
    assert len(line.splitlines()) == 1
    assert not UNSAFE.search(line)


def test_text_is_aligned_and_ends_with_the_job_of_others_records() -> None:
    made = record(job_id="0190", job_type="mail.send", attempt=2)
    assert TextFormatter().format(made) == "2030-03-17T17:46:40.123Z WARNING  app               done [mail.send 0190 attempt 2]"
    made.name = "aioqueue.worker"
    assert TextFormatter().format(made) == "2030-03-17T17:46:40.123Z WARNING  aioqueue.worker   done"


def test_text_has_the_traceback_in_its_line() -> None:
    line = TextFormatter().format(failed("one\ntwo"))
    assert r"failed\nTraceback (most recent call last):\n" in line
    assert r"ValueError: one\ntwo" in line


@pytest.mark.parametrize(
    ("stream", "variables", "colored"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_only_a_terminal_gets_colors(monkeypatch, stream: io.StringIO, variables: dict[str, str], *, colored: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    handler = set_up_handler(logging.StreamHandler(stream))
    assert ("\x1b[33m" in handler.format(record())) == colored


def test_json_is_never_colored() -> None:
    assert "\x1b" not in set_up_handler(logging.StreamHandler(Terminal()), "json").format(record())


def test_a_handler_that_is_set_up_twice_has_one_filter() -> None:
    handler = logging.NullHandler()
    assert set_up_handler(set_up_handler(handler), "json") is handler
    assert isinstance(handler.formatter, JsonFormatter)
    assert len([each for each in handler.filters if isinstance(each, JobFields)]) == 1


def test_other_formats_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="text or json"):
        set_up_handler(logging.NullHandler(), cast("Any", "xml"))


def test_outside_of_a_handler_the_filter_adds_nothing() -> None:
    made = record()
    before = dict(made.__dict__)
    assert JobFields().filter(made) is True
    assert made.__dict__ == before
