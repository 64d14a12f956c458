"""The port's metrics need neither an SDK nor a provider of OpenTelemetry's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import ROOT

_WITHOUT_THE_SDK = """
import asyncio, sys, urllib.request


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client")):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
from aioqueue import Client, Registry, Worker, serve_metrics

registry = Registry()


@registry.job
async def work() -> None: ...


async def main():
    with serve_metrics(0) as server:
        async with Client(sys.argv[1]) as client, Worker(client, registry):
            await (await client.enqueue(work())).result(timeout=60)
            await asyncio.to_thread(lambda: print(urllib.request.urlopen(server.url + "/metrics").read().decode()))


asyncio.run(main())
"""


@pytest.mark.parametrize("disabled", ["", "true"])
def test_the_port_needs_no_sdk_and_no_provider(url: str, disabled: str) -> None:
    environment = {**os.environ, "OTEL_SDK_DISABLED": disabled}
    command = [sys.executable, "-c", _WITHOUT_THE_SDK, url]
    shown = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'aioqueue_jobs_enqueued_total{type="work"} 1' in shown
    assert 'aioqueue_jobs_processed_total{type="work",outcome="ok"} 1' in shown
