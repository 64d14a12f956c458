"""Chains as trees: what each step waits for, who waits for the end, and how much of it is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import pytest

from aioqueue import Call, Client, Registry
from aioqueue.abc import NewBlocker
from aioqueue.cli._tree import Node, draw
from aioqueue.vocabulary._job import NewJob
from tests.cli.terminal import on_terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")

registry = Registry(prefix="shop.")

EVIL = "a\x1b[31m\nforged"


@registry.job
async def login() -> str:
    return "session"


@registry.job
async def page(url: str, session: str) -> int:
    return len(url + session)


@registry.job
async def total(pages: list[int]) -> int:
    return sum(pages)


@registry.job
async def mail(number: int) -> None:
    del number


def _put(url: str, *calls: Call[int] | Call[None]) -> None:
    async def put() -> None:
        async with Client(url) as client:
            await client.enqueue_many(calls)

    anyio.run(put)


def test_what_a_chain_waits_for_and_who_waits_for_it(each_invoke: Invoke, each_url: str) -> None:
    session = login()
    pages = [page(str(number), session.output) for number in range(12)]
    report = total([each.output for each in pages])
    mails = [mail(report.output) for _ in range(11)]
    _put(each_url, *mails)
    answer = each_invoke("chains", "show", str(report.id))
    first, step, *lines = answer.stdout.splitlines()
    assert first == f"chain {report.id}: at step 0, shop.total, blocked"
    assert step == f"└─ step 0  shop.total  blocked  {report.id}  waits for 12 chains"
    assert lines[0] == f"   ├─ shop.page  blocked  {pages[0].id}  waits for 1 chain"
    assert lines[1].startswith(f"   │  └─ shop.login  ready  {session.id}  due 20")
    assert lines[3] == f"{lines[1]}  (shown above)"
    assert lines[20] == "   └─ … and 2 more"
    assert lines[21] == "these wait for its end"
    assert [line.split()[:4] for line in lines[22:32]] == [["├─", "shop.mail", "blocked", str(each.id)] for each in mails[:10]]
    assert lines[32:] == ["└─ … and 1 more"]
    described = json.loads(each_invoke("chains", "show", str(report.id), "--json").stdout)
    assert [each["chain"] for each in described["steps"][0]["blockers"]] == [str(each.id) for each in pages]
    assert described["dependents"] == [str(each.id) for each in mails]


def test_more_than_are_counted_wait_for_it(invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = login()
    _put(url, *(page(str(number), session.output) for number in range(12)))
    monkeypatch.setattr("aioqueue.cli._tree._MOST_COUNTED", 11)
    assert invoke("chains", "show", str(session.id)).stdout.splitlines()[-1] == "└─ … and at least 1 more"


def test_it_goes_no_deeper_than_a_few_levels(invoke: Invoke, url: str) -> None:
    ids = [UUID(int=number) for number in range(1, 8)]
    jobs = [
        NewJob(id=each, type="t", blockers=(NewBlocker(ids[number - 1]),) if number else ()) for number, each in enumerate(ids)
    ]

    async def put() -> None:
        async with Client(url) as client:
            await client.store.insert(jobs)

    anyio.run(put)
    lines = invoke("chains", "show", str(ids[-1])).stdout.splitlines()
    assert len(lines) == 6
    assert lines[-1].endswith(f"{ids[2]}  waits for 1 chain  (more: aioqueue chains show {ids[2]})")
    below = invoke("chains", "show", str(ids[0])).stdout.splitlines()
    assert below[2] == "these wait for its end"
    assert below[-1].lstrip().startswith(f"└─ t  blocked  {ids[4]}")


@pytest.mark.parametrize("output", ["terminal", "pipe"])
def test_no_name_forges_a_line_or_a_colour(url: str, output: str) -> None:
    ids = [UUID(int=number) for number in (1, 2, 3)]

    async def put() -> None:
        async with Client(url) as client:
            jobs = [
                NewJob(id=each, type=EVIL, blockers=tuple(NewBlocker(before) for before in ids[:number]))
                for number, each in enumerate(ids)
            ]
            await client.store.insert(jobs)

    anyio.run(put)
    ended = on_terminal("chains", "show", str(ids[1]), output=output, AIOQUEUE_URL=url, TERM="dumb")
    text = ended.stdout if output == "pipe" else ended.shown
    assert text.count(r"a\x1b[31m\nforged") == 4
    assert "\x1b[" not in text
    assert not any(line.startswith("forged") for line in text.splitlines())


def test_an_encoding_without_its_lines_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii:
        encoding = "ascii"

    tree = [Node("a", [Node("b", [Node("c")]), Node("d")]), Node("e")]
    assert draw(tree) == ["├─ a", "│  ├─ b", "│  │  └─ c", "│  └─ d", "└─ e"]
    monkeypatch.setattr("sys.stdout", Ascii())
    assert draw(tree) == ["|- a", "|  |- b", "|  |  `- c", "|  `- d", "`- e"]
