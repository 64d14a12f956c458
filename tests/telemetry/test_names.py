"""The names of metrics: what is printed, what is documented, and what the examples ask for are the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from aioqueue.telemetry._counters import AttemptOutcome, Counters
from aioqueue.telemetry._metrics import METRICS, Kind
from aioqueue.telemetry._prometheus import exposition
from tests.architecture.pages import cells

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
EXAMPLES = ROOT / "examples" / "observability"
NAME = re.compile(r"\baioqueue_\w+")
SUFFIXES = {Kind.COUNTER: [""], Kind.GAUGE: [""], Kind.HISTOGRAM: ["_bucket", "_sum", "_count"]}
SERIES = {f"{metric.prometheus_name}{suffix}" for metric in METRICS for suffix in SUFFIXES[metric.kind]}


def test_the_page_has_each_metric_with_its_labels() -> None:
    rows = [row for row in cells(PAGE) if row[0].startswith("`aioqueue_")]
    documented = [(row[0].strip("`"), row[1], tuple(re.findall(r"`(\w+)`", row[2])), row[3]) for row in rows]
    assert documented == [(each.prometheus_name, each.kind.value, each.labels, each.help) for each in METRICS]


def test_the_page_explains_each_outcome() -> None:
    (explained,) = re.findall(r"- `outcome`:.*?\n- ", PAGE, re.DOTALL)
    assert set(re.findall(r"`([a-z]+)`[,;]", explained)) == {each.value for each in AttemptOutcome} | set()


def test_what_is_printed_is_what_is_named() -> None:
    lines = exposition().decode().splitlines()
    announced = [line.split()[2:4] for line in lines if line.startswith("# TYPE")]
    assert announced == [[each.prometheus_name, each.kind.value] for each in METRICS]
    families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    assert {sample.name for family in families for sample in family.samples} <= SERIES


def test_labels_are_escaped_and_histograms_are_cumulated(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters({'a"b\\c\nd': 'a"b\\c\nd'})
    counted = counters.of('a"b\\c\nd')
    counted.outcomes[AttemptOutcome.OK] += 1
    for value in (0.001, 0.3, 7200.0):
        counted.ended(value)
    monkeypatch.setattr("aioqueue.telemetry._metrics.LEDGER.total", lambda: counters)
    samples = [
        sample
        for family in text_string_to_metric_families(exposition().decode())
        for sample in family.samples
        if sample.labels.get("type") == 'a"b\\c\nd'
    ]
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("duration_seconds_bucket")}
    assert (buckets["0.005"], buckets["0.25"], buckets["0.5"], buckets["3600.0"], buckets["+Inf"]) == (1, 1, 2, 2, 3)
    (total,) = (sample.value for sample in samples if sample.name == "aioqueue_job_duration_seconds_sum")
    assert total == pytest.approx(7200.301)


def expressions(tree: Any) -> list[str]:
    """What Prometheus is asked in a file of rules or of Grafana's, whereever it stands."""
    if isinstance(tree, dict):
        own = [tree[key] for key in ("expr", "query") if isinstance(tree.get(key), str)]
        return own + [each for value in tree.values() for each in expressions(value)]
    return [each for value in tree for each in expressions(value)] if isinstance(tree, list) else []


@pytest.mark.parametrize("file", ["alerts.yml", "grafana.json"])
def test_the_examples_ask_for_what_is_there(file: str) -> None:
    text = (EXAMPLES / file).read_text()
    found = expressions(json.loads(text) if file.endswith("json") else yaml.safe_load(text))
    asked = {name for each in found for name in NAME.findall(each)}
    assert len(asked) > 5
    assert asked <= SERIES
    labels = {label for metric in METRICS for label in metric.labels} | {"instance", "le"}
    grouped = {name.strip() for each in found for names in re.findall(r"by \(([^)]*)\)", each) for name in names.split(",")}
    assert grouped <= labels


def test_the_six_numbers_are_there() -> None:
    page = (ROOT / "docs" / "how-to" / "alerting.md").read_text()
    assert set(NAME.findall(page)) <= SERIES
    ruled = " ".join(expressions(yaml.safe_load((EXAMPLES / "alerts.yml").read_text())))
    assert [name for name in NAME.findall(page) if name not in ruled] == []


@pytest.mark.soak
def test_prometheus_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool isn't installed: Debian's package prometheus has it")
    checked = subprocess.run(
        [promtool, "check", "config", str(EXAMPLES / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    printed = subprocess.run([promtool, "check", "metrics"], input=exposition(), capture_output=True, check=False)
    assert printed.returncode in (0, 3), printed  # 3: the linter dislikes a name or a unit
