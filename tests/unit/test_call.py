"""Calls are values: arguments copied, options checked, enqueued at most once, noticed when they're dropped."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from aioqueue import (
    ArgumentsError,
    Call,
    CallAlreadyEnqueued,
    CallNeverEnqueued,
    ConfigurationError,
    ConflictingOptions,
    Fixed,
    JobType,
    Registry,
    Retry,
)
from aioqueue.vocabulary._unique import Unique

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")

registry = Registry("site.")


@dataclass
class Page:
    url: str
    links: list[str]


@registry.job
async def fetch(url: str, *, depth: int = 1) -> str:
    return url * depth


@registry.job(priority=1, tags=("pages",), timeout=60, expires=timedelta(hours=1), keep=9, retry=Retry(max_attempts=3))
def store(page: Page, links: list[str] | None = None) -> None: ...


def test_a_call_runs_nothing_and_has_an_id_its_type_and_its_arguments() -> None:
    call = fetch("a", depth=2)
    assert isinstance(call, Call)
    assert call.id.version == 7
    assert isinstance(call.id, UUID)
    assert call.job_type is fetch
    assert call.arguments == {"url": "a", "depth": 2}
    assert call.payload == b'{"url":"a","depth":2}'


def test_only_what_was_passed_is_stored_by_name() -> None:
    assert fetch("a").arguments == {"url": "a"}
    assert fetch(depth=1, url="a").payload == b'{"url":"a","depth":1}'
    assert fetch("a") != fetch("a", depth=1)


def test_a_call_is_not_awaitable() -> None:
    assert not hasattr(fetch("a"), "__await__")


def test_arguments_are_copied_when_the_call_is_made() -> None:
    page = Page("a", ["x"])
    call = store(page)
    page.links.append("y")
    assert call.arguments == {"page": Page("a", ["x"])}
    call.arguments["page"].links.append("z")
    assert call.arguments == {"page": Page("a", ["x"])}


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
    ((), {}, "misses 'url'", "url"),
    (("a", 2), {}, "takes 1 positional arguments, and 2 were given", ""),
    (("a",), {"url": "b"}, "got 'url' twice", "url"),
    (("a",), {"deep": 1}, "has no parameter 'deep'; it takes url, depth", "deep"),
    ((1,), {}, "Expected `str`, got `int`", "url"),
    (("a",), {"depth": "1"}, "Expected `int`, got `str`", "depth"),
    (("a",), {"depth": 2**64}, "65 bits", "depth"),
]


@pytest.mark.parametrize(("args", "kwargs", "message", "path"), WRONG)
def test_wrong_arguments_fail_where_the_call_is_made(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str, path: str
) -> None:
    with pytest.raises(ArgumentsError, match=message) as raised:
        fetch(*args, **kwargs)
    assert raised.value.path == path


def test_equality_is_by_type_arguments_and_options() -> None:
    assert fetch("a") == fetch("a")
    assert fetch("a").id != fetch("a").id
    assert hash(fetch("a")) == hash(fetch("a"))
    assert fetch("a") != fetch("b")
    assert fetch("a") != fetch("a").options(priority=1)
    assert fetch("a").options(key="k") == fetch("a").options(key="k")
    assert fetch("a") != "a"
    assert fetch("a") != store(Page("a", []))
    assert [fetch("a"), fetch("b")] == [fetch("a"), fetch("b")]


def test_the_repr_explains_itself_and_is_short() -> None:
    call = fetch("a" * 1000).options(key="k")
    assert repr(call).startswith("<Call site.fetch(url='aaa")
    assert ").options(key='k')" in repr(call)
    assert "not enqueued" in repr(call)
    assert len(repr(call)) < 250
    call.mark_enqueueing()
    assert repr(call).endswith(f"{call.id} enqueued>")


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_make_a_copy_with_the_same_id() -> None:
    call = fetch("a")
    later = call.options(delay=timedelta(minutes=1))
    assert later is not call
    assert later.id == call.id
    assert later.arguments == call.arguments
    assert later.to_new_job().delay == 60
    assert call.to_new_job().delay is None


def test_options_add_up_and_can_be_taken_back() -> None:
    call = fetch("a").options(delay=5, key="k").options(priority=1)
    job = call.to_new_job()
    assert (job.delay, job.key, job.priority) == (5.0, "k", 1)
    job = call.options(delay=None, key=None, priority=None).to_new_job()
    assert (job.delay, job.key, job.priority) == (None, None, 2)
    assert fetch("a").options(key="k").options(key=None) == fetch("a")


def test_every_option_reaches_the_row() -> None:
    moment = datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    retry = Retry(max_attempts=None, backoff=Fixed(3), jitter=0)
    call = fetch("a").options(
        at=moment, key="k", unique=Unique(), priority=4, tags=["x", "x", "y"], metadata={"tenant": 7},
        retry=retry, timeout=timedelta(seconds=9), expires=10, keep=timedelta(days=1),
    )  # fmt: skip
    job = call.to_new_job()
    assert job.id == call.id
    assert job.type == "site.fetch"
    assert job.payload == b'{"url":"a"}'
    assert job.run_at == moment
    assert job.run_at is not None
    assert job.run_at.tzinfo is UTC
    assert (job.key, job.unique, job.priority, job.tags) == ("k", Unique(), 4, ("x", "y"))
    assert job.metadata == b'{"tenant":7}'
    assert job.max_attempts is None
    assert job.retry == retry.encode()
    assert (job.timeout, job.expires, job.keep) == (9.0, 10.0, 86_400.0)


def test_what_a_call_does_not_say_is_the_job_types() -> None:
    job = store(Page("a", [])).options(tags=["new"]).to_new_job()
    assert (job.priority, job.tags, job.expires, job.keep, job.max_attempts) == (1, ("pages", "new"), 3600.0, 9.0, 3)
    assert job.retry == Retry(max_attempts=3).encode()
    assert job.timeout is None  # the worker knows its own type's
    plain = fetch("a").to_new_job()
    assert (plain.priority, plain.tags, plain.expires, plain.keep, plain.max_attempts, plain.retry) == (
        2,
        (),
        None,
        None,
        10,
        None,
    )


CONFLICTS: list[dict[str, Any]] = [
    {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    {"unique": True},
]


@pytest.mark.parametrize("options", CONFLICTS)
def test_contradictions_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConflictingOptions):
        fetch("a").options(**options)


def test_contradictions_are_noticed_over_several_steps() -> None:
    with pytest.raises(ConflictingOptions):
        fetch("a").options(delay=1).options(at=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(ConflictingOptions):
        fetch("a").options(key="k", unique=True).options(key=None)


BAD: list[dict[str, Any]] = [
    {"delay": -1},
    {"delay": float("nan")},
    {"delay": float("inf")},
    {"delay": True},
    {"delay": "5"},
    {"delay": timedelta(seconds=-1)},
    {"at": datetime(2030, 1, 1)},
    {"at": "2030-01-01"},
    {"timeout": 0},
    {"timeout": -5},
    {"expires": -1},
    {"keep": -1},
    {"priority": 0},
    {"priority": 5},
    {"priority": True},
    {"priority": 1.0},
    {"key": ""},
    {"key": "a\0"},
    {"key": "\ud800"},
    {"key": "x" * 1025},
    {"key": 5},
    {"key": "k", "unique": 1},
    {"tags": "one"},
    {"tags": [1]},
    {"tags": [""]},
    {"metadata": {"a": 2**64}},
    {"metadata": {1: 2}},
    {"metadata": {"a": float("nan")}},
    {"metadata": [1]},
    {"retry": 3},
    {"retry": Retry(fail_on=(ValueError,))},
]


@pytest.mark.parametrize("options", BAD, ids=ascii)
def test_values_out_of_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        fetch("a").options(**options)
    name = "tag" if "tags" in options else "retry_on" if isinstance(options.get("retry"), Retry) else list(options)[-1]
    assert name in str(raised.value)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="later"):
        fetch("a").options(later=1)


def test_metadata_is_copied() -> None:
    metadata = {"ids": [1]}
    call = fetch("a").options(metadata=metadata)
    metadata["ids"].append(2)
    assert call.to_new_job().metadata == b'{"ids":[1]}'


# -- enqueueing once ----------------------------------------------------------------------------------------------------


def test_a_call_is_enqueued_once() -> None:
    call = fetch("a")
    call.mark_enqueueing()
    with pytest.raises(CallAlreadyEnqueued, match=r"copy\(\)"):
        call.mark_enqueueing()
    with pytest.raises(CallAlreadyEnqueued):
        call.options(delay=1).mark_enqueueing()


def test_copies_by_options_share_the_id_so_one_of_them_is_enqueued() -> None:
    call = fetch("a")
    later = call.options(delay=1)
    later.mark_enqueueing()
    with pytest.raises(CallAlreadyEnqueued):
        call.mark_enqueueing()


def test_after_a_failure_it_may_be_enqueued_again() -> None:
    call = fetch("a")
    call.mark_enqueueing()
    call.mark_failed()
    call.mark_enqueueing()


@pytest.mark.parametrize("make", [lambda call: call.copy(), copy.copy, copy.deepcopy])
def test_a_copy_is_another_job(make: Any) -> None:
    call = fetch("a").options(priority=1)
    call.mark_enqueueing()
    other = make(call)
    assert other.id != call.id
    assert other == call
    other.mark_enqueueing()


# -- dropped calls ------------------------------------------------------------------------------------------------------


def dropped(use: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use()
        gc.collect()
    return [each for each in caught if each.category is CallNeverEnqueued]


def test_a_dropped_call_warns_with_the_place_where_it_was_made() -> None:
    (warning,) = dropped(lambda: fetch("a") and None)
    assert "site.fetch was made and dropped" in str(warning.message)
    assert warning.filename == __file__


def test_a_dropped_copy_warns_once() -> None:
    assert len(dropped(lambda: fetch("a").options(delay=1) and None)) == 1


USES: list[Any] = [
    lambda: fetch("a").mark_enqueueing(),
    lambda: fetch("a").options(delay=1).mark_enqueueing(),
    lambda: fetch("a").to_new_job(),
    lambda: fetch("a").mark_used(),
    lambda: fetch("a") == fetch("a"),
    lambda: fetch("a") in [fetch("b"), fetch("a")],
]


@pytest.mark.parametrize("use", USES)
def test_uses_stay_quiet(use: Any) -> None:
    assert dropped(use) == []


def test_an_enqueued_original_keeps_its_copies_quiet() -> None:
    def use() -> None:
        call = fetch("a")
        later = call.options(delay=1)
        call.mark_enqueueing()
        del later

    assert dropped(use) == []


def test_a_call_that_could_not_be_made_stays_quiet() -> None:
    def use() -> None:
        with pytest.raises(ArgumentsError):
            fetch(1)

    assert dropped(use) == []


def test_at_the_interpreters_end_nothing_warns() -> None:
    code = (
        "from aioqueue import Registry\nregistry = Registry()\n"
        "@registry.job\nasync def fetch(url: str) -> None: ...\ncall = fetch('a')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stderr == ""


def test_job_types_are_generic_in_their_signature() -> None:
    assert isinstance(fetch, JobType)
