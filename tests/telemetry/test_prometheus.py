"""A real Prometheus scrapes a worker, and evaluates the rules of the examples."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from aioqueue import Client, Fail, Registry, serve_metrics
from aioqueue.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "observability"
PROMETHEUS = shutil.which("prometheus") or "prometheus isn't installed"


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())["data"]


async def ask(url: str) -> Any:
    try:
        return await asyncio.to_thread(asked, url)
    except OSError:  # it's starting
        return None


@pytest.mark.skipif(not Path(PROMETHEUS).exists(), reason="Debian's package prometheus isn't installed")
async def test_the_rules_are_evaluated_and_one_fires(client: Client, tmp_path: Path) -> None:
    registry = Registry()

    @registry.job
    async def hopeless() -> None:
        raise Fail("no")

    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    with serve_metrics(0) as server:
        config = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{server.port}"]}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={own}",
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(120), Worker(client, registry):
                query = urllib.parse.urlencode({"query": 'aioqueue_jobs_processed_total{type="hopeless",outcome="poison"}'})
                while not ((found := await ask(f"http://{own}/api/v1/query?{query}")) and found["result"]):
                    await asyncio.sleep(0.2)
                await client.enqueue(hopeless())  # after the zero was scraped
                while True:
                    found = await ask(f"http://{own}/api/v1/rules")
                    rules = [rule for group in found["groups"] for rule in group["rules"]]
                    if {rule["health"] for rule in rules} == {"ok"} and "AioqueueJobsFail" in {
                        rule["name"] for rule in rules if rule["state"] == "firing"
                    }:
                        break
                    await asyncio.sleep(0.2)
            firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
            assert firing == {"AioqueueJobsFail"}
        finally:
            process.terminate()
            process.wait(30)
