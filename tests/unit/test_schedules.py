"""Schedules in code: what a registry keeps of them, and what is refused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from aioqueue import (
    CallError,
    ConfigurationError,
    ConflictingOptions,
    RegistrationError,
    Registry,
    Unique,
    done,
)
from aioqueue.definitions._schedules import generation_of, read_schedule

others = Registry()


@others.job(tags=("a",), priority=3)
async def tidy(days: int = 30) -> int:
    return days


@others.job
async def mail(text: str) -> None: ...


@pytest.fixture
def shop() -> Registry:
    return Registry(name="shop")


# -- what is kept ----------------------------------------------------------------------------------------------------------


def test_a_schedule_is_kept_as_workers_store_it(shop: Registry) -> None:
    shop.schedule(
        tidy(7).options(priority=1, delay=5),
        cron="  0 9 *  * MON-FRI",
        timezone="Europe/Berlin",
        name="tidying",
        catch_up="all",
        grace=timedelta(minutes=5),
        catch_up_limit=3,
        overlap="skip",
    )
    (kept,) = shop.schedules
    assert replace(kept, template=b"") == replace(
        kept,
        name="shop/tidying",
        owner="shop",
        job_type="tidy",
        template=b"",
        cron="0 9 * * MON-FRI",
        every=None,
        timezone="Europe/Berlin",
        catch_up="all",
        grace=300.0,
        catch_up_limit=3,
        overlap="skip",
    )
    template = orjson.loads(kept.template)
    assert (template["type"], template["payload"], template["priority"], template["delay"]) == ("tidy", '{"days":7}', 1, 5.0)
    assert template["tags"] == ["a"]
    assert "id" not in template


def test_what_isnt_said_is_as_the_signature_has_it(shop: Registry) -> None:
    shop.schedule(tidy(), every=timedelta(minutes=5))
    (kept,) = shop.schedules
    assert (kept.name, kept.cron, kept.every, kept.timezone) == ("shop/tidy", None, 300.0, "UTC")
    assert (kept.catch_up, kept.grace, kept.catch_up_limit, kept.overlap) == ("latest", 3600.0, 100, "allow")


def test_schedules_are_in_order_whenever_they_were_defined(shop: Registry) -> None:
    for name in ("b", "c", "a"):
        shop.schedule(tidy(), every=60, name=name)
    assert [each.name for each in shop.schedules] == ["shop/a", "shop/b", "shop/c"]


def test_the_call_may_be_enqueued_or_scheduled_all_the_same(shop: Registry) -> None:
    call = tidy(1)
    shop.schedule(call, every=60)
    shop.schedule(call, every=120, name="less often")
    assert not call.enqueued
    assert shop.schedules[0].template == shop.schedules[1].template


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        (Registry(name="shop"), "shop"),
        (Registry("shop."), "shop"),
        (Registry("shop/eu:"), "shop/eu"),
        (Registry("shop_"), "shop"),
        (Registry("shop.", name="store"), "store"),
        (Registry(), None),
        (Registry("_"), None),
    ],
)
def test_a_registry_s_name_is_its_own_or_that_of_its_prefix(registry: Registry, name: str | None) -> None:
    assert registry.name == name


@pytest.mark.parametrize("name", ["", " ", "a b", "\n", 5, "ä", "x" * 300])
def test_a_registry_s_name_has_to_be_one(name: Any) -> None:
    with pytest.raises(RegistrationError, match="name"):
        Registry(name=name)


# -- registries in registries ------------------------------------------------------------------------------------------------


def test_included_schedules_belong_to_whom_a_worker_serves(shop: Registry) -> None:
    billing = Registry("billing.")
    billing.schedule(tidy(), every=60)
    shop.schedule(mail("x"), every=60)
    shop.include(billing)
    billing.schedule(tidy(), every=60, name="later")
    assert [(each.name, each.owner) for each in shop.schedules] == [
        ("shop/later", "shop"),
        ("shop/mail", "shop"),
        ("shop/tidy", "shop"),
    ]
    assert [(each.name, each.owner) for each in billing.schedules] == [
        ("billing/later", "billing"),
        ("billing/tidy", "billing"),
    ]


def test_a_registry_without_a_name_has_no_schedules_and_says_the_way_out() -> None:
    nameless = Registry()
    with pytest.raises(
        RegistrationError, match=r'a registry with schedules needs a name.*: Registry\(name="shop"\), or a prefix'
    ):
        nameless.schedule(tidy(), every=60)
    named = Registry("site.")
    nameless.include(named)
    assert nameless.schedules == []
    nameless.check()
    named.schedule(tidy(), every=60)
    for look in (nameless.check, lambda: nameless.schedules):
        with pytest.raises(RegistrationError, match=r"such as 'tidy', and has no name.*Registry\(name=\"shop\"\)"):
            look()


def test_a_name_is_taken_once(shop: Registry) -> None:
    inner, outer = Registry("inner."), Registry("outer.")
    shop.include(inner)
    outer.include(shop)
    inner.schedule(tidy(1), every=60)
    for registry in (shop, outer, inner):
        with pytest.raises(RegistrationError, match=r"there is a schedule 'tidy' already.*name="):
            registry.schedule(tidy(2), every=60)
    outer.schedule(mail("x"), every=60)
    with pytest.raises(RegistrationError, match="there is a schedule 'mail' already"):
        inner.schedule(mail("x"), every=60)
    another = Registry("another.")
    another.schedule(mail("y"), every=60)
    with pytest.raises(RegistrationError, match="there is a schedule 'mail' already"):
        outer.include(another)
    assert [each.name for each in outer.schedules] == ["outer/mail", "outer/tidy"]


def test_one_that_is_included_on_two_ways_is_there_once(shop: Registry) -> None:
    left, right, common = Registry("left."), Registry("right."), Registry("common.")
    common.schedule(tidy(), every=60)
    for registry in (left, right):
        registry.include(common)
        shop.include(registry)
    assert [each.name for each in shop.schedules] == ["shop/tidy"]


def test_the_very_same_may_be_defined_again_as_a_reload_does(shop: Registry) -> None:
    for _ in range(2):
        shop.schedule(tidy(1), every=60)
    assert len(shop.schedules) == 1
    with pytest.raises(RegistrationError, match="already"):
        shop.schedule(tidy(1), every=61)
    notebook = Registry(name="notebook", replace=True)
    notebook.schedule(tidy(1), every=60)
    notebook.schedule(tidy(1), every=61)
    assert [each.every for each in notebook.schedules] == [61.0]


# -- generations ---------------------------------------------------------------------------------------------------------------


def digest(*defined: dict[str, Any], name: str = "shop") -> str:
    registry = Registry(name=name)
    for each in defined:
        registry.schedule(each.pop("call", None) or tidy(), **each)
    return generation_of(name, registry.schedules).digest


def test_a_generation_is_the_same_for_the_same_definitions() -> None:
    assert digest({"every": 60}, {"every": 60, "name": "b"}) == digest(
        {"every": 60.0, "name": "b"}, {"every": timedelta(minutes=1)}
    )
    assert generation_of("shop", [], release=3) == generation_of("shop", [], release=3)
    assert generation_of("shop", []).digest == hashlib.sha256(b"[]").hexdigest()


def test_a_generation_is_another_one_for_any_other_definition() -> None:
    changed: list[dict[str, Any]] = [
        {},
        {"every": 61},
        {"every": None, "cron": "* * * * *"},
        {"name": "other"},
        {"call": tidy(1)},
        {"call": tidy().options(priority=1)},
        {"call": mail("x"), "name": "tidy"},
        {"catch_up": "none"},
        {"grace": 60},
        {"catch_up_limit": 5},
        {"overlap": "skip"},
    ]
    found = [digest({"every": 60} | each) for each in changed]
    assert len(set(found)) == len(changed)


SETS = """
from dataclasses import dataclass
import pydantic
from aioqueue import Registry
from aioqueue.definitions._schedules import generation_of
registry = Registry("site.")

@dataclass
class Group:
    members: set[str]
    nested: list[dict[str, frozenset[int | str]]]

class Model(pydantic.BaseModel):
    names: set[str]

class Odd: ...

registry.converter(Odd, encode=lambda odd: ["b", "a"], decode=lambda value: Odd())

@registry.job
async def job(names: set[str], by: dict[str, int], *, group: Group, model: Model, pair: tuple[int, frozenset[str]]) -> None: ...

letters = {"x", "y", "z", "v", "w"}
group = Group(letters, [{"b": frozenset({1, "p", "q", "r"}), "a": frozenset(letters)}])
call = job(letters, {"b": 1, "a": 2}, group=group, model=Model(names=letters), pair=(1, frozenset(letters)))
registry.schedule(call, every=60)
print(generation_of("site", registry.schedules).digest)
print(registry.schedules[0].template.decode())
"""


def test_a_generation_is_the_same_in_each_process() -> None:
    """The order of a set is another one in each: a deploy would never come to an end."""
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SETS], capture_output=True, text=True, check=True, timeout=60, env={"PYTHONHASHSEED": seed}
        )
        found.add(done.stdout)
    (stored,) = found
    payload = orjson.loads(orjson.loads(stored.splitlines()[1])["payload"])
    assert payload["names"] == payload["model"]["names"] == payload["pair"][1] == ["v", "w", "x", "y", "z"]
    assert list(payload["by"]) == ["b", "a"]  # as it was written: that is the same everywhere


# -- what is refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConflictingOptions, "the schedule tidy: it has neither cron= nor every=: give one, such as"),
        ({"cron": "* * * * *", "every": 60}, ConflictingOptions, "it has both cron= and every=: leave out one"),
        (
            {"cron": "60 * * * *"},
            ConfigurationError,
            "the schedule tidy: cron='60 \\* \\* \\* \\*' can't be read: '60' isn't a minute",
        ),
        ({"cron": "0 0 30 2 *"}, ConfigurationError, "would never fire"),
        ({"cron": ""}, ConfigurationError, "cron is empty"),
        ({"cron": 5}, ConfigurationError, "cron must be an expression"),
        (
            {"every": 0.5},
            ConfigurationError,
            "every must be at least 1 second, not 0.5: for more, have one job do it repeatedly",
        ),
        ({"every": 0}, ConfigurationError, "every must be at least 1 second"),
        ({"every": -60}, ConfigurationError, "every must be zero or positive"),
        ({"every": float("nan")}, ConfigurationError, "every must be"),
        ({"every": "5m"}, ConfigurationError, "every must be seconds or a timedelta"),
        ({"every": True}, ConfigurationError, "every must be seconds or a timedelta"),
        (
            {"cron": "@daily", "timezone": "Mars/Base"},
            ConfigurationError,
            "there is no time zone 'Mars/Base' here: give a name such as",
        ),
        ({"cron": "@daily", "timezone": UTC}, ConfigurationError, "timezone must be a name"),
        ({"every": 60, "timezone": "Europe/Berlin"}, ConflictingOptions, "an interval is elapsed time.*: leave out timezone="),
        ({"every": 60, "grace": 0}, ConfigurationError, 'grace must be at least 1 second.*catch_up="none"'),
        ({"every": 60, "grace": -1}, ConfigurationError, "grace must be zero or positive"),
        ({"every": 60, "catch_up": "some"}, ConfigurationError, "catch_up must be 'latest' or 'none' or 'all', not 'some'"),
        ({"every": 60, "catch_up": ["all"]}, ConfigurationError, "catch_up must be"),
        ({"every": 60, "overlap": "wait"}, ConfigurationError, "overlap must be 'allow' or 'skip', not 'wait'"),
        ({"every": 60, "catch_up_limit": 0}, ConfigurationError, "catch_up_limit must be a number from 1 to 1,000"),
        ({"every": 60, "catch_up_limit": 1001}, ConfigurationError, "catch_up_limit must be a number from 1 to 1,000"),
        ({"every": 60, "catch_up_limit": True}, ConfigurationError, "catch_up_limit must be"),
        ({"every": 60, "name": ""}, ConfigurationError, "the name of a schedule is a text of 1 to 200 characters"),
        ({"every": 60, "name": "x" * 201}, ConfigurationError, "the name of a schedule is a text of 1 to 200 characters"),
        ({"every": 60, "name": "  "}, ConfigurationError, "the name of a schedule is a text"),
        ({"every": 60, "name": "a\nb"}, ConfigurationError, "has no characters that can't be seen"),
        ({"every": 60, "name": "a\ud800"}, ConfigurationError, "has no characters that can't be seen"),
        ({"every": 60, "name": 5}, ConfigurationError, "the name of a schedule is a text"),
    ],
)
def test_what_is_said_wrongly_is_refused_with_the_way_out(
    shop: Registry, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        shop.schedule(tidy(), **options)
    assert shop.schedules == []


def test_another_option_is_refused() -> None:
    options: dict[str, Any] = {"at": datetime.now(UTC)}
    call = tidy()
    with pytest.raises(TypeError, match="a schedule has no at"):
        read_schedule(call, **options)
    read_schedule(call, every=60)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            tidy().options(at=datetime(2030, 1, 1, tzinfo=UTC)),
            ConflictingOptions,
            "its schedule says when its jobs are due: leave out at=",
        ),
        (tidy().options(id="0197c1a0-0000-7000-8000-000000000001"), ConflictingOptions, "has a chosen id.*: leave out id="),
        (tidy(tidy().output), ConflictingOptions, "waits for other jobs, which would be the same ones at each tick"),
        (tidy(tidy(tidy().output).output), ConflictingOptions, "waits for other jobs"),
        (tidy().options(after=[mail("x")]), ConflictingOptions, "waits for other jobs"),
        (done(5), CallError, "is a finished value, and no job"),
        (tidy, TypeError, r"a schedule takes a call, such as job_type\(...\), not <JobType tidy"),
        (None, TypeError, "a schedule takes a call"),
        ([tidy()], TypeError, "a schedule takes a call"),
    ],
)
def test_what_cant_be_enqueued_again_and_again_is_refused(
    shop: Registry, call: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        shop.schedule(call, every=60)


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
def test_a_unique_key_stays_the_call_s(shop: Registry, on_conflict: Any) -> None:
    shop.schedule(tidy().options(key="k", unique=Unique(on_conflict=on_conflict)), every=60)
    assert orjson.loads(shop.schedules[0].template)["unique"]["on_conflict"] == on_conflict
