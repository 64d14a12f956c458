"""What job types and calls say of the gates at which their jobs wait: read, refused, and given to stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from aioqueue import (
    ArgumentsError,
    Call,
    ConfigurationError,
    InSequence,
    Limit,
    Rate,
    Registry,
)
from aioqueue.definitions._continuation import step_after
from aioqueue.definitions._gates_of_types import gate_rules, limits_of
from aioqueue.vocabulary._gates import By, GateRules, LimitKind, NewLimit, SequenceMember
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._new_job import NewJob
from aioqueue.vocabulary._schedule_template import decode_template, encode_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue import JobType


def work(tenant_id: int, account: object = None, items: list[Any] | None = None) -> int:
    return tenant_id


def defined(**options: Any) -> JobType[..., int, Any]:
    made: JobType[..., int, Any] = Registry(prefix="site.").job(**options)(work)
    return made


# -- the values --------------------------------------------------------------------------------------------------------


def test_what_they_are_by_default() -> None:
    assert Limit(3).by is None
    assert Rate(5, per=timedelta(minutes=1)) == Rate(5, per=60.0)
    assert (InSequence("a").strict, InSequence("a").on_failure) == (False, "continue")


def test_they_are_shown_as_they_are_written() -> None:
    assert repr(Limit(3)) == "Limit(3)"
    assert repr(Limit(0, by="tenant")) == "Limit(0, by='tenant')"
    assert repr(Rate(5, per=1, burst=2)) == "Rate(5, per=1.0, burst=2)"
    assert repr(InSequence("a", strict=True, on_failure="block")) == "InSequence('a', strict=True, on_failure='block')"


UNFIT_VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: Limit(-1), "places must be a whole number from 0"),
    (lambda: Limit(2**31), "places must be a whole number"),
    (lambda: Limit(True), "places"),
    (lambda: Limit("3"), "places"),
    (lambda: Limit(1.5), "places"),
    (lambda: Limit(1, by=""), "by must be the name of one argument"),
    (lambda: Limit(1, by=("a",)), "by must be the name"),
    (lambda: Limit(1, by="a\0"), "by must be the name"),
    (lambda: Limit(1, by="metadata."), "by must be the name"),
    (lambda: Limit(1, by="\ud800"), "by must be the name"),
    (lambda: Rate(-1, per=1), "starts must be a whole number"),
    (lambda: Rate(1, per=0), "per must be positive"),
    (lambda: Rate(1, per=-1), "per must be positive"),
    (lambda: Rate(1, per=timedelta(seconds=-1)), "per must be positive"),
    (lambda: Rate(1, per=float("nan")), "per must be positive"),
    (lambda: Rate(1, per="1"), "per must be seconds"),
    (lambda: Rate(1, per=1, burst=0), "burst must be at least 1"),
    (lambda: Rate(1, per=1, burst=-1), "burst"),
    (lambda: Rate(1, per=1, burst=True), "burst"),
    (lambda: Rate(1_000_001, per=1), "more than a million a second"),
    (lambda: InSequence(""), "1 to 1,024 bytes"),
    (lambda: InSequence("a" * 1025), "1 to 1,024 bytes"),
    (lambda: InSequence("ä" * 513), "1 to 1,024 bytes"),
    (lambda: InSequence("a\0"), "no NUL"),
    (lambda: InSequence("\ud800"), "lone surrogate"),
    (lambda: InSequence(42), "must be a str"),
    (lambda: InSequence("a", strict=1), "strict must be True or False"),
    (lambda: InSequence("a", on_failure="stop"), 'must be "continue" or "block"'),
]


@pytest.mark.parametrize(("make", "says"), UNFIT_VALUES)
def test_values_that_cannot_be(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


# -- options of types --------------------------------------------------------------------------------------------------


UNFIT_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"limit": 3}, "limit must be a Limit"),
    ({"limit": [Limit(3)]}, "limit must be a Limit"),
    ({"limit": (Limit(3), Limit(4))}, "one Limit.* and one name"),
    ({"limit": ("a", "b")}, "one Limit.* and one name"),
    ({"limit": "job:resize"}, "aioqueue gives"),
    ({"limit": "rate:resize"}, "aioqueue gives"),
    ({"limit": "fair:resize"}, "aioqueue gives"),
    ({"limit": "pause:resize"}, "aioqueue gives"),
    ({"limit": "sequence"}, "aioqueue gives"),
    ({"limit": "a=b"}, "use ASCII letters"),
    ({"limit": ""}, "use ASCII letters"),
    ({"limit": "a" * 201}, "200 at most"),
    ({"rate": 5}, "rate must be a Rate"),
    ({"rate": Limit(5)}, "rate must be a Rate"),
    ({"sequence_by": 5}, "sequence_by must be the name"),
    ({"sequence_by": ""}, "sequence_by must be the name"),
    ({"sequence_by": InSequence("a" * 201)}, "sequence_by must be the name"),
    ({"fairness_by": ("tenant_id",)}, "fairness_by must be the name"),
]


@pytest.mark.parametrize(("options", "says"), UNFIT_OPTIONS)
def test_options_that_cannot_be_name_the_type(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^site.work: .*{says}"):
        defined(**options)


def test_a_type_without_any_has_no_rules() -> None:
    plain = defined(limit=None, rate=None, sequence_by=None, fairness_by=None)
    assert plain.gate_rules is None
    assert plain(1).to_new_job().sequence is None
    assert gate_rules({"site.work": plain}) == {}
    assert limits_of({"site.work": plain}) == []


def test_what_names_no_parameter_is_a_field_of_the_metadata() -> None:
    made = defined(
        limit=("stripe", Limit(3, by="tenant_id")),
        rate=Rate(100, per=60, by="region"),
        sequence_by=InSequence("account", strict=True, on_failure="block"),
        fairness_by="user",
    )
    assert made.gate_rules == GateRules(
        type="site.work",
        limit=True,
        limit_by=By("tenant_id"),
        shared="stripe",
        rate=True,
        rate_by=By("region", metadata=True),
        sequence_by=By("account"),
        strict=True,
        block=True,
        fair_by=By("user", metadata=True),
    )


A_LETTER_APART = ["tenantid", "tenantId", "tennant_id", "tenant_ids", "tenant_di", "tenant_ix", "acount", "item"]
WORDS_APART = ["tenant", "Tenant", "tenant_id_hash", "tenantIdHash", "account_id", "accountId"]


@pytest.mark.parametrize("name", [*A_LETTER_APART, *WORDS_APART])
@pytest.mark.parametrize("option", ["limit", "rate", "sequence_by", "fairness_by"])
def test_a_name_that_is_nearly_a_parameters_is_refused(option: str, name: str) -> None:
    given = {"limit": Limit(1, by=name), "rate": Rate(1, per=1, by=name)}.get(option, name)
    with pytest.raises(
        ConfigurationError, match=f"^site.work: '{name}' is no parameter.*(tenant_id|account|items)'.*'metadata.{name}'"
    ):
        defined(**{option: given})


@pytest.mark.parametrize("name", ["tenant", "tenant_id", "tennant_id", "x", "metadata.x"])
def test_a_field_of_the_metadata_can_be_said(name: str) -> None:
    given = f"metadata.{name}"
    rules = defined(limit=Limit(1, by=given), rate=Rate(1, per=1, by=given), sequence_by=given, fairness_by=given).gate_rules
    assert rules is not None
    assert rules.told_apart_by == dict.fromkeys(("limit=", "rate=", "sequence_by=", "fairness_by="), By(name, metadata=True))


@pytest.mark.parametrize("name", ["id", "region", "ten_ant_name", "my_tenant_id", "_"])
def test_names_that_are_fields_of_the_metadata(name: str) -> None:
    rules = defined(fairness_by=name).gate_rules
    assert rules is not None
    assert rules.fair_by == By(name, metadata=True)


def test_short_names_are_not_alike() -> None:
    def work(id: int) -> None: ...  # noqa: A002 - as people name it

    rules = Registry().job(fairness_by="ids")(work).gate_rules
    assert rules is not None
    assert rules.fair_by == By("ids", metadata=True)


def test_a_shared_limit_alone() -> None:
    made = defined(limit="stripe")
    assert made.gate_rules == GateRules(type="site.work", shared="stripe")
    assert limits_of({"site.work": made}) == []  # how many it lets in is said at run time


def test_rules_and_limits_are_those_of_the_present_name() -> None:
    made = defined(limit=Limit(3), rate=Rate(0, per=1), aliases=("old", "older"))
    registry = dict.fromkeys(("site.work", "old", "older"), made)
    assert gate_rules(registry) == dict.fromkeys(registry, made.gate_rules)
    assert limits_of(registry) == [
        NewLimit(name="job:site.work", places=3),
        NewLimit(name="rate:site.work", kind=LimitKind.STARTS, places=0, per=1.0, burst=1),
    ]
    assert limits_of({"a": defined(rate=Rate(5, per=2, burst=9))})[0].burst == 9
    assert limits_of({"a": defined(rate=Rate(5, per=2))})[0].burst == 5


def test_a_handler_has_what_was_declared_where_nothing_else_is_said() -> None:
    registry = Registry()
    declared = registry.declare(limit=(Limit(3), "stripe"), rate=Rate(5, per=1), sequence_by="account", fairness_by="t")(work)
    inherits = Registry().implement(declared)(work)
    assert inherits.gate_rules == declared.gate_rules
    assert inherits.gate_rules is not None
    changes = Registry().implement(declared, limit=Limit(4), rate=None)(work)
    assert changes.gate_rules == replace(inherits.gate_rules, rate=False, shared=None)
    assert limits_of({"work": changes}) == [NewLimit(name="job:work", places=4)]


def test_another_limit_is_another_definition() -> None:
    registry = Registry()
    first = registry.job(limit=Limit(3))(work)
    assert first.defines_the_same(Registry().job(limit=Limit(3))(work))
    assert not first.defines_the_same(Registry().job(limit=Limit(4))(work))


# -- sequences of calls ------------------------------------------------------------------------------------------------


def test_a_call_says_its_sequence() -> None:
    call = defined()(1).options(sequence="account:42")
    assert call.to_new_job().sequence == SequenceMember(name="account:42")
    assert call.options(sequence=None).to_new_job().sequence is None
    strict = call.options(sequence=InSequence("a", strict=True, on_failure="block"))
    assert strict.to_new_job().sequence == SequenceMember(name="a", strict=True, block=True)
    assert call == defined()(1).options(sequence=InSequence("account:42"))
    assert "sequence=InSequence('account:42')" in repr(call)


@pytest.mark.parametrize("value", ["", 5, "a\0", b"a", Limit(3)])
def test_sequences_of_calls_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="sequence"):
        defined()(1).options(sequence=value).mark_used()


def test_the_type_puts_its_calls_in_sequences() -> None:
    made = defined(sequence_by=InSequence("account", strict=True))

    def name(call: Call[int]) -> str:
        member = call.to_new_job().sequence
        assert member is not None
        assert (member.strict, member.block) == (True, False)
        return member.name

    names = [name(made(1, value)) for value in (1, "1", None, 1.5, {"b": 1, "a": 2})]
    assert names == ["site.work=1", 'site.work="1"', "site.work=null", "site.work=1.5", 'site.work={"a":2,"b":1}']
    assert name(made(1)) == "site.work"  # what wasn't passed
    assert name(made(1, "x" * 500)).startswith("site.work=#")
    chosen = made(1, 1).options(sequence="other")
    assert chosen.to_new_job().sequence == SequenceMember(name="other")
    assert name(chosen.options(sequence=None)) == "site.work=1"


def test_the_metadata_may_say_the_sequence() -> None:
    made = defined(sequence_by="metadata.tenant")
    call = made(1).options(metadata={"tenant": "acme"})
    assert call.to_new_job().sequence == SequenceMember(name='site.work="acme"')
    assert made(1).to_new_job().sequence == SequenceMember(name="site.work")


def test_the_metadata_of_the_step_before_counts_too() -> None:
    made = defined(sequence_by="metadata.tenant")
    finished = NewJob(id=new_id(), type="site.before", tags=("a",))
    step = step_after(made(1), finished, b'{"tenant":"acme"}', None)
    assert step.sequence == SequenceMember(name='site.work="acme"')
    own = made(1).options(metadata={"tenant": "other"})
    assert step_after(own, finished, b'{"tenant":"acme"}', None).sequence == SequenceMember(name='site.work="other"')


# -- values without an order --------------------------------------------------------------------------------------------


OPTIONS_BY: list[dict[str, Any]] = [
    {"limit": Limit(1, by="account")},
    {"rate": Rate(1, per=1, by="account")},
    {"sequence_by": "account"},
    {"fairness_by": "account"},
]


@pytest.mark.parametrize("options", OPTIONS_BY, ids=str)
def test_a_set_says_no_gate(options: dict[str, Any]) -> None:
    made, (option,) = defined(**options), options
    for value in ({"a", "b"}, frozenset({"a"}), [{"a"}], {"a": [{"b"}]}):
        with pytest.raises(ArgumentsError, match=f"^site.work: 'account' has a set in it.*{option}= of the type") as caught:
            made(1, value)
        assert caught.value.path == "account"
    made(1, {"a": ["b"]}).mark_used()


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS_BY, ids=str)
def test_what_is_not_known_yet_says_no_gate(options: dict[str, Any]) -> None:
    made, waited_for = defined(**options), defined()(1)
    (option,) = options
    for value in (waited_for.output, [{"a": waited_for.settled}]):
        with pytest.raises(ArgumentsError, match=f"^site.work: 'account' has an output.*{option}= of the type") as caught:
            made(1, value)
        assert caught.value.path == "account"
    made(1, "a", [waited_for.output]).mark_used()


def test_outputs_beside_metadata_of_the_same_name() -> None:
    made, waited_for = defined(limit=Limit(1, by="region"), sequence_by="number"), defined()(1)
    made(1, waited_for.output).mark_used()


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_a_template_has_the_sequence() -> None:
    job = defined()(1).options(sequence=InSequence("a", strict=True, on_failure="block")).to_new_job()
    again = decode_template(encode_template(job), job.id, None)
    assert again.sequence == SequenceMember(name="a", strict=True, block=True)
    plain = defined()(1).to_new_job()
    assert "sequence" not in orjson.loads(encode_template(plain))  # or each schedule that is stored would look changed
    assert decode_template(encode_template(plain), plain.id, None).sequence is None


def test_a_template_whose_sequence_cannot_be_read() -> None:
    fields = orjson.loads(encode_template(defined()(1).to_new_job()))
    with pytest.raises(ValueError, match="can't be read"):
        decode_template(orjson.dumps({**fields, "sequence": {"name": "a", "newer": 1}}), new_id(), None)


def test_a_schedule_has_the_sequence_of_its_type() -> None:
    registry = Registry(prefix="site.")
    made = registry.job(sequence_by="account")(work)
    registry.schedule(made(1, "a"), every=60)
    (schedule,) = registry.schedules
    assert decode_template(schedule.template, new_id(), None).sequence == SequenceMember(name='site.work="a"')
