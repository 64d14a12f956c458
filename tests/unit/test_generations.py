"""Which generation's schedules tick, whatever happens to the workers that have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from aioqueue.store_rules._generations import KEPT_GENERATIONS, Decision, KnownGeneration, decide
from aioqueue.testing.memory._rows_schedules import Schedules
from aioqueue.vocabulary._schedules import Generation

LIVE = 90.0


class Deploys:
    """An owner's generations, with a clock, as a store keeps them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.stored = Schedules()
        self.current: list[str] = []

    def say(self, digest: str, release: int | None = None) -> Decision:
        """A worker says what it has; what it's told."""
        generation = Generation(owner="shop", digest=digest, release=release)
        now = datetime(2030, 1, 31, tzinfo=UTC) + timedelta(seconds=self.seconds)
        decision = decide(generation, self.stored.known("shop", now))
        if not decision.refused:
            self.stored.keep_alive(generation, decision.seen, now + timedelta(seconds=LIVE))
        if decision.current and self.current[-1:] != [digest]:
            self.current.append(digest)
        return decision

    def wait(self, seconds: float = 30.0) -> None:
        self.seconds += seconds


@pytest.fixture
def deploys() -> Deploys:
    return Deploys()


def known(digest: str, seen: int, *, live: bool = True, release: int | None = None) -> KnownGeneration:
    return KnownGeneration(digest, release, seen, live)


def test_the_first_one_is_current(deploys: Deploys) -> None:
    assert deploys.say("a") == Decision(seen=1, current=True)
    assert deploys.say("a") == Decision(seen=1, current=True)


@pytest.mark.parametrize("seed", range(20))
def test_a_rolling_deploy_goes_over_once(deploys: Deploys, seed: int) -> None:
    """Whatever starts, or starts again, in between, and in whatever order they ask."""
    random = Random(seed)
    workers = ["old"] * 5
    deploys.say("old")
    for _ in range(40):
        if "old" in workers and random.random() < 0.3:
            workers[random.choice([place for place, code in enumerate(workers) if code == "old"])] = "new"
        for code in random.sample(workers, len(workers)):
            deploys.say(code)
        deploys.wait(random.choice([1.0, 30.0]))
    assert deploys.current == (["old", "new"] if "new" in workers else ["old"])


def test_a_worker_of_old_code_that_comes_back_changes_nothing(deploys: Deploys) -> None:
    """Such as one that was frozen for an hour, or a machine that was forgotten in the deploy."""
    for code in ("old", "new"):
        deploys.say(code)
    for _ in range(120):
        deploys.wait()
        assert deploys.say("new").current
    assert not deploys.say("old").current
    assert deploys.current == ["old", "new"]


def test_a_rollback_comes_about_when_the_newer_workers_are_gone(deploys: Deploys) -> None:
    for code in ("old", "new"):
        deploys.say(code)
    answers: list[bool] = []
    for _ in range(5):
        deploys.wait()
        answers.append(deploys.say("old").current)
    assert answers == [False, False, True, True, True]
    assert deploys.say("new").current
    assert deploys.current == ["old", "new", "old", "new"]


def test_a_rollback_with_a_higher_number_comes_about_at_once(deploys: Deploys) -> None:
    assert deploys.say("old", 1).current
    assert deploys.say("new", 2).current
    assert deploys.say("old", 3).current
    assert [deploys.say("new", 2).current, deploys.say("old", 1).current] == [False, False]
    assert deploys.current == ["old", "new", "old"]


def test_numbers_come_before_the_order_of_being_seen(deploys: Deploys) -> None:
    """And before those that have none."""
    assert deploys.say("seven", 7).current
    assert not deploys.say("five", 5).current
    assert not deploys.say("none").current
    assert deploys.say("eight", 8).current


def test_a_number_that_is_given_for_the_first_time_counts_at_once(deploys: Deploys) -> None:
    assert deploys.say("a").current
    assert deploys.say("b").current
    assert deploys.say("a", 0).current
    assert not deploys.say("b").current


def test_the_same_number_with_other_definitions_is_refused(deploys: Deploys) -> None:
    """Whoever lives, and without being stored: nobody could say which of both is meant."""
    deploys.say("a", 1)
    deploys.wait(LIVE * 10)
    for _ in range(2):
        assert deploys.say("b", 1) == Decision(seen=0, current=False, refused=True)
    assert deploys.say("a", 1) == Decision(seen=1, current=True)
    assert deploys.current == ["a"]


def test_the_same_definitions_under_another_number_are_another_generation() -> None:
    decision = decide(Generation(owner="shop", digest="a", release=2), [known("a", 1, release=1), known("a", 2)])
    assert decision == Decision(seen=3, current=True)


def test_places_are_never_given_twice() -> None:
    """Also where those before were forgotten."""
    assert decide(Generation(owner="shop", digest="c"), [known("b", 7, live=False)]).seen == 8


def test_only_live_ones_stand_in_the_way() -> None:
    generation = Generation(owner="shop", digest="a")
    assert not decide(generation, [known("a", 1), known("b", 2)]).current
    assert decide(generation, [known("a", 1), known("b", 2, live=False)]).current
    assert decide(generation, [known("b", 2)]) == Decision(seen=3, current=True)


def test_the_ones_that_were_live_longest_ago_are_forgotten(deploys: Deploys) -> None:
    """The one that is live longest stays, however old it is; one that was forgotten is new again."""
    deploys.say("kept")
    for number in range(KEPT_GENERATIONS + 10):
        deploys.wait(LIVE)
        deploys.say(f"{number}")
        deploys.say("kept")
    now = datetime(2030, 1, 31, tzinfo=UTC) + timedelta(seconds=deploys.seconds)
    digests = {each.digest for each in deploys.stored.known("shop", now)}
    assert len(digests) == KEPT_GENERATIONS
    assert {"kept", f"{KEPT_GENERATIONS + 9}"} <= digests
    deploys.wait(LIVE * 2)
    newest = max(each.seen for each in deploys.stored.known("shop", now))
    assert deploys.say("0") == Decision(seen=newest + 1, current=True)
