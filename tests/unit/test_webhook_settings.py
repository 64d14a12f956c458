"""What a worker is given to sign webhooks with, and what these may reach."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue import Client, ConfigurationError, Registry, Worker
from aioqueue.testing import MemoryStore

SECRET = "whsec_" + "A" * 32


def worker(**settings: Any) -> Worker:
    return Worker(Client(MemoryStore()), Registry(), **settings)


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_abc", "whsec_" + "!" * 32, [], [SECRET, "x-secret"], 7])
def test_a_secret_that_isnt_one_is_refused_and_not_shown(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="webhook_secret must be") as caught:
        worker(webhook_secret=secret)
    assert SECRET not in str(caught.value)
    assert "x-secret" not in str(caught.value)


def test_settings_dont_show_the_secret() -> None:
    made = worker(webhook_secret=f"{SECRET}, {SECRET[:-1]}B")
    assert made.settings.webhook_secret == (SECRET, f"{SECRET[:-1]}B")
    assert SECRET not in repr(made.settings)


@pytest.mark.parametrize("allow", ["10.0.0.0/8", ["10.1.2.3/8"], ["1.2.3"], [""], [7], ["*.internal"], ["host:port"], []])
def test_what_may_be_reached_is_checked(allow: Any) -> None:
    with pytest.raises(ConfigurationError, match="webhook_allow must be"):
        worker(webhook_allow=allow)
