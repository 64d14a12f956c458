"""What `aioqueue top` puts together of one look and the one before, and how it's made to fit a screen."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import JobState, LimitKind, Stats, StoredLimit
from aioqueue.cli._top_frame import as_json, make_frame, summary, tables
from aioqueue.cli._top_screen import fit, screen
from aioqueue.vocabulary._stats import TypeStats

if TYPE_CHECKING:
    from aioqueue.cli._top_frame import Table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def numbers(finished: int, *, capped: bool = False) -> Stats:
    counts = {JobState.COMPLETED: finished, JobState.READY: 1}
    return Stats(types={"a": TypeStats(counts=counts, capped=frozenset([JobState.COMPLETED] if capped else []))})


@pytest.mark.parametrize(
    ("then", "now", "rate"),
    [
        (numbers(10), numbers(30), 4.0),
        (numbers(10), numbers(10), 0.0),
        (numbers(30), numbers(10), None),  # somebody has removed some
        (numbers(10), numbers(10_000, capped=True), None),
        (numbers(10_000, capped=True), numbers(10_000, capped=True), None),
        (Stats(types={}), numbers(10), 2.0),
    ],
)
def test_throughput_is_told_only_where_it_is_known(then: Stats, now: Stats, rate: float | None) -> None:
    first = make_frame(NOW, then, [], [], None)
    assert first.rates.get("a") is None
    frame = make_frame(NOW + timedelta(seconds=5), now, [], [], first)
    assert frame.rates == {"a": rate}
    ((header, (row,)),) = tables(frame)
    assert row[header.index("finished/s")] == ("" if rate is None else f"{rate:.1f}")


def test_the_busiest_types_come_first() -> None:
    types = {
        name: TypeStats(counts={JobState.READY: ready}, oldest_ready=1.0 * ready)
        for name, ready in zip("abc", (1, 7, 3), strict=True)
    }
    frame = make_frame(NOW, Stats(types=types), [], [], None)
    ((_, rows),) = tables(frame)
    assert [row[0] for row in rows] == ["b", "c", "a"]
    assert summary(frame).startswith("ready 11  scheduled 0  running 0  failed 0  oldest ready 7.0 s  0 workers")


def test_what_is_held_and_the_limits_are_shown() -> None:
    held = Stats(types={"a": TypeStats(counts={JobState.HELD: 8}, oldest_ready=None)})
    limits = [
        StoredLimit(
            name=name,
            kind=LimitKind.PLACES,
            places=3,
            per=None,
            burst=None,
            defined=True,
            changed=False,
            running=running,
            waiting=waiting,
        )
        for name, running, waiting in (("idle", 0, 0), ("busy", 2, 0), ("full", 3, 8))
    ]
    frame = make_frame(NOW, held, [], [], None, (), limits)
    assert "held 8" in summary(frame)
    (_, by_limit), (header, by_type) = tables(frame)
    assert [row[0] for row in by_limit] == ["full", "busy", "idle"]
    assert by_limit[0] == ("full", "3 at once", "3", "8", "code")
    assert by_type[0][header.index("held")] == "8"
    shown: Any = as_json(frame)["limits"]
    assert [(each["name"], each["running"], each["waiting"]) for each in shown] == [
        ("idle", 0, 0),
        ("busy", 2, 0),
        ("full", 3, 8),
    ]
    many = make_frame(NOW, held, [], [], None, (), [replace(limits[0], name=f"l{number}") for number in range(50)])
    assert len(tables(many)[0][1]) == 20


@pytest.mark.parametrize(
    ("sizes", "lines", "shown"),
    [((5, 3), 40, (5, 3)), ((100, 3), 40, (26, 3)), ((100, 100), 40, (15, 15)), ((9, 9), 5, (2, 2)), ((), 40, ())],
)
def test_the_longest_tables_are_shortened(sizes: tuple[int, ...], lines: int, shown: tuple[int, ...]) -> None:
    tables: list[Table] = [(("name", "number"), [(f"row {number}", "1") for number in range(size)]) for size in sizes]
    fitted = fit(tables, lines)
    assert tuple(len(rows) for _, rows in fitted) == shown
    for (_, rows), size in zip(fitted, sizes, strict=True):
        if len(rows) < size:
            assert rows[-1] == (f"and {size - len(rows) + 1} more", "")


def test_without_rich_wide_characters_dont_run_over_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COLUMNS", "80"), ("LINES", "24"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    stream = StringIO()
    with screen(stream) as show:
        show("title", "", "line", [(("type", "ready"), [("漢" * 55, "1")])])
    assert re.findall("漢+", stream.getvalue()) == ["漢" * 40]
