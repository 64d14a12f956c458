"""`aioqueue webhooks`, and what other commands show of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, Worker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry
from tests.cli.jobs import registry

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke


@pytest.fixture
def failed(invoke: Invoke, url: str) -> str:
    """The id of a job whose webhook was given up."""
    enqueued = invoke("enqueue", "jobs.greet", "name=Ada", "--webhook", "https://hooks.example/in?token=secret", "--json")
    job_id: str = json.loads(enqueued.stdout)["id"]

    async def run() -> None:
        async with Client(url) as client:
            await Worker(client, registry).run_once()
            (taken,) = await client.store.take_deliveries(1, 60)
            tried = DeliveryTry(id=taken.id, tries=1, state=DeliveryState.FAILED, status=500, response="oh\x1b[31m\nno")
            await client.store.write_tries([tried])

    anyio.run(run)
    return job_id


def test_listed_and_replayed(invoke: Invoke, failed: str) -> None:
    shown = invoke("webhooks", "list", "--state", "failed")
    assert "hooks.example" in shown.stdout
    assert "no" in shown.stdout.split()[-1]  # what the receiver has answered, made harmless
    listed = json.loads(invoke("webhooks", "list", "--job", failed, "--json").stdout)
    (delivery,) = listed["deliveries"]
    assert (delivery["job"], delivery["state"], delivery["status"], delivery["host"]) == (
        failed,
        "failed",
        500,
        "hooks.example",
    )
    assert "failed, tries: 1, status 500" in invoke("jobs", "show", failed).stdout
    assert json.loads(invoke("jobs", "show", failed, "--json").stdout)["deliveries"] == [delivery]
    for command in (("webhooks", "list"), ("webhooks", "list", "--json"), ("jobs", "show", failed)):
        output = invoke(*command).stdout
        assert "secret" not in output
        assert "\x1b" not in output
    assert invoke("webhooks", "replay", "--failed").stdout == "1 to be sent\n"
    assert json.loads(invoke("webhooks", "list", "--json").stdout)["deliveries"][0]["state"] == "pending"
    assert json.loads(invoke("webhooks", "replay", delivery["id"], "--json").stdout)["replayed"] == [delivery["id"]]
    assert invoke("webhooks", "replay", str(new_id()), exit_code=3).stdout == "0 to be sent\n"


def test_wrong_usage(invoke: Invoke) -> None:
    invoke("migrate")
    assert "no deliveries" in invoke("webhooks", "list").stdout
    for wrong in (("replay",), ("replay", "x"), ("replay", "--failed", str(new_id())), ("list", "--cursor", "x")):
        invoke("webhooks", *wrong, exit_code=2)
    assert "https://" in invoke("enqueue", "jobs.greet", "name=Ada", "--webhook", "ftp://hooks.example/", exit_code=2).stderr


def test_a_secret_fits_the_setting(invoke: Invoke) -> None:
    secret = invoke("webhooks", "secret").stdout.strip()
    assert secret != invoke("webhooks", "secret").stdout.strip()
    assert Worker(Client("sqlite:///nowhere.db"), registry, webhook_secret=secret).settings.webhook_secret == (secret,)
