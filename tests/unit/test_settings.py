"""Settings come from the argument, else the variable, else the default, and contradictions are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aioqueue import ConfigurationError, Retry
from aioqueue.definitions._settings import WorkerSettings


def test_the_defaults() -> None:
    settings = WorkerSettings.resolve()
    assert settings == WorkerSettings()
    assert (settings.concurrency, settings.lease, settings.renew_every) == (10, 60.0, 20.0)
    assert (settings.poll_interval, settings.grace) == (5.0, 30.0)
    assert settings.default_retry.max_attempts == 10


def test_arguments_come_first_then_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOQUEUE_CONCURRENCY", "7")
    monkeypatch.setenv("AIOQUEUE_LEASE", "90")
    settings = WorkerSettings.resolve(concurrency=3)
    assert (settings.concurrency, settings.lease, settings.renew_every) == (3, 90.0, 30.0)


@pytest.mark.parametrize(
    ("text", "expected"), [("5", 5.0), (" 2.5 ", 2.5), ("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1h", 3600.0), ("", 30.0)]
)
def test_durations_may_have_a_unit(text: str, expected: float) -> None:
    assert WorkerSettings.resolve(environment={"AIOQUEUE_GRACE": text}).grace == expected


def test_every_variable() -> None:
    settings = WorkerSettings.resolve(
        environment={
            "AIOQUEUE_CONCURRENCY": "1",
            "AIOQUEUE_LEASE": "10",
            "AIOQUEUE_RENEW_EVERY": "2",
            "AIOQUEUE_POLL_INTERVAL": "100ms",
            "AIOQUEUE_GRACE": "0",
            "AIOQUEUE_MAX_RESCHEDULES": "5",
            "AIOQUEUE_MAX_ATTEMPTS": "4",
            "AIOQUEUE_BLOCKED_AFTER": "2s",
            "AIOQUEUE_RELEASE": "20261129135243",
        }
    )
    assert settings == WorkerSettings(
        concurrency=1, lease=10, renew_every=2, renewals_set=True, poll_interval=0.1, grace=0, max_reschedules=5,
        blocked_after=2, release=20261129135243,
        default_retry=Retry(max_attempts=4),
    )  # fmt: skip


def test_timedeltas() -> None:
    policy = Retry(max_attempts=1)
    settings = WorkerSettings.resolve(lease=timedelta(minutes=2), grace=timedelta(seconds=1), default_retry=policy)
    assert (settings.lease, settings.grace, settings.default_retry) == (120.0, 1.0, policy)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency"),
    ({"concurrency": 1.5}, "concurrency"),
    ({"concurrency": True}, "concurrency"),
    ({"lease": 0.5}, "lease"),
    ({"lease": -1}, "lease"),
    ({"lease": "60"}, "lease"),
    ({"lease": float("nan")}, "lease"),
    (
        {"lease": 10, "renew_every": 6},
        r"renew_every \(6 s\) must be at most half of the lease \(10 s\): a renewal may take 1.66667 s",
    ),
    ({"environment": {"AIOQUEUE_RENEW_EVERY": "50"}, "lease": 60}, "AIOQUEUE_RENEW_EVERY .*lower it, or raise lease"),
    ({"renew_every": 0}, "renew_every"),
    ({"poll_interval": 0}, "poll_interval"),
    ({"grace": -1}, "grace"),
    ({"max_reschedules": -1}, "max_reschedules"),
    ({"default_retry": 5}, "default_retry"),
    ({"release": -1}, "release"),
    ({"release": 2**63}, "release"),
    ({"environment": {"AIOQUEUE_RELEASE": "v1.2"}}, "AIOQUEUE_RELEASE must be a whole number"),
    ({"environment": {"AIOQUEUE_CONCURRENCY": "many"}}, "AIOQUEUE_CONCURRENCY must be a whole number, not 'many'"),
    ({"environment": {"AIOQUEUE_CONCURRENCY": "0"}}, "AIOQUEUE_CONCURRENCY"),
    ({"environment": {"AIOQUEUE_LEASE": "1 minute"}}, "AIOQUEUE_LEASE"),
    ({"environment": {"AIOQUEUE_LEASE": "5x"}}, "AIOQUEUE_LEASE"),
    ({"environment": {"AIOQUEUE_LEASE": "inf"}}, "AIOQUEUE_LEASE"),
    ({"environment": {"AIOQUEUE_GRACE": "5mm"}}, "AIOQUEUE_GRACE"),
    ({"environment": {"AIOQUEUE_RENEW_EVERY": "50"}}, "AIOQUEUE_RENEW_EVERY"),
    ({"environment": {"AIOQUEUE_MAX_ATTEMPTS": "0"}}, "AIOQUEUE_MAX_ATTEMPTS"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=repr)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WorkerSettings.resolve(**given)
