"""The folders, the contracts, docs/internals.md and CONTRIBUTING.md tell the same story."""

from __future__ import annotations

import re
import tomllib

import pytest

from aioqueue import cli
from tests.architecture.pages import INTERNALS, PACKAGE, ROOT, block, cells, files, rooms, section

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
CONTRACTS = {
    each["id"]: each for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


LAYERS = [re.split(r"\s{2,}", line)[0] for line in block(section(INTERNALS, "Layers"))]


def test_the_layers_are_those_of_the_contract() -> None:
    assert CONTRACTS["layers"]["layers"] == LAYERS


def test_the_layers_are_the_folders_and_modules_of_the_package() -> None:
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    assert {name for layer in LAYERS for name in layer.split(" | ")} == there


@pytest.mark.parametrize("folder", ["store_rules", "worker"])
def test_the_page_has_a_place_for_each_file(folder: str) -> None:
    text = section(INTERNALS, "The parts of a worker" if folder == "worker" else "The rooms of a store")
    missing = [name for name in sorted(files(PACKAGE / folder)) if f"`{name}`" not in text]
    assert missing == []


def test_the_page_names_no_part_of_a_worker_that_is_gone() -> None:
    named = re.findall(r"`(_[a-z_]+)`", section(INTERNALS, "The parts of a worker"))
    assert set(named) <= files(PACKAGE / "worker")


@pytest.mark.parametrize("folder", ["client", "worker"])
def test_a_folder_s_table_has_each_file(folder: str) -> None:
    docstring = (PACKAGE / folder / "__init__.py").read_text().split('"""')[1]
    named = re.findall(r"`(_[a-z_]+)`", "".join(row[0] for row in cells(docstring)))
    assert sorted(named) == sorted(files(PACKAGE / folder))


def test_the_page_names_who_is_excepted_from_a_contract() -> None:
    excepted = {each.partition(" -> ")[0] for contract in CONTRACTS.values() for each in contract.get("ignore_imports", ())}
    excepted |= set(CONTRACTS["layers"]["exhaustive_ignores"])
    text = section(INTERNALS, "Layers")
    assert [each for each in sorted(excepted) if f"`{each.removeprefix('aioqueue.')}`" not in text] == []


@pytest.mark.parametrize("text", [cli.__doc__ or "", (ROOT / "docs" / "cli.md").read_text()], ids=["the package", "the page"])
def test_the_commands_are_listed_at_the_top(text: str) -> None:
    (listed,) = re.findall(r"`aioqueue (\w+(?:\s\| \w+)+)`", text)
    assert sorted(re.split(r"\s\| ", listed)) == sorted(cli.main.commands)


def test_every_place_in_the_table_of_places_exists() -> None:
    table = section(CONTRIBUTING, "Where do I put…")
    places = {place for row in cells(table) for cell in row for place in re.findall(r"`([\w.]+/[\w./]+|\w+\.toml)`", cell)}
    assert len(places) > 30
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []
    named = {room for row in cells(table) for cell in row for room in re.findall(r"`(_\w+)\.py`", cell)}
    assert named <= rooms()


@pytest.mark.parametrize(
    "change",
    [
        "a new reason for an outcome",
        "a new outcome kind, stored in a new way",
        "a new column of a job",
        "a new store verb",
        "a new reason to wake the loop",
        "a new command",
        "a new conformance case",
        "a known mistake",
        "a setting of the worker, the client or the command line",
        "an error that callers want to catch",
    ],
)
def test_the_table_names_one_place_to_begin(change: str) -> None:
    (begin,) = (row[1] for row in cells(section(CONTRIBUTING, "Where do I put…")) if row[0] == change)
    assert re.search(r"`[\w./]+`", begin)
