"""The example of traces: one trace from the request through a chain to its last job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from tests.telemetry.spans import Recorded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_one_trace_from_a_request_to_its_last_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spans = Recorded(monkeypatch)
    from examples.traced import app

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http,
    ):
        assert (await http.post("/orders/17")).status_code == 200
        with anyio.fail_after(30):
            while not spans.named("process send_receipt"):
                await anyio.sleep(0.01)
    assert "order 17: thank you" in capsys.readouterr().out
    by_id = {span.context.span_id: span.name for span in spans.all()}
    path = []
    span = spans.one("process send_receipt")
    while span.parent is not None:
        path.append(span.name)
        span = next(each for each in spans.all() if each.context.span_id == span.parent.span_id)
    assert [*path, span.name][:4] == [  # a FastAPI that makes spans itself has its own above
        "process send_receipt",
        "process charge",
        "send charge",
        "POST /orders/{order_id}",
    ]
    bank = spans.one("call the bank")
    assert bank.parent is not None
    assert by_id[bank.parent.span_id] == "process charge"
