"""Both adapters have the same rooms: whoever knows one finds anything in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

import aioqueue

ADAPTERS = ("postgres", "sqlite")
ROOMS = frozenset(
    {"store", "opened", "claim", "settle", "lease", "recovery", "insert", "transaction", "operate", "listing", "stats"}
    | {"rows", "notifications", "connections", "migrations", "foreign", "options", "errors"}
)


def files_of(adapter: str) -> set[str]:
    return {path.stem for path in (Path(aioqueue.__file__).parent / adapter).glob("*.py")}


def misplaced(files: set[str]) -> set[str]:
    """Files that are neither a room nor a part of one, `_ROOM_part`."""
    return {name for name in files if not (name.startswith("_") and name[1:].partition("_")[0] in ROOMS)} - {"__init__"}


def missing(files: set[str]) -> set[str]:
    """Rooms that have no file."""
    return {f"_{room}" for room in ROOMS} - files


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_has_every_room_and_only_those(adapter: str) -> None:
    files = files_of(adapter)
    assert misplaced(files) == set()
    assert missing(files) == set()


def test_a_file_of_another_name_is_found() -> None:
    rooms = {f"_{room}" for room in ROOMS}
    assert misplaced(rooms | {"__init__", "_claim_odd", "_connections_threads"}) == set()
    assert misplaced(rooms | {"_statements", "_claimed", "claim_odd", "helpers", "__main__"}) == {
        *("_statements", "_claimed", "claim_odd", "helpers", "__main__")
    }


def test_a_room_that_is_only_a_part_is_missing() -> None:
    rooms = {f"_{room}" for room in ROOMS}
    assert missing((rooms - {"_claim"}) | {"_claim_odd"}) == {"_claim"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_migrations_are_files_of_the_adapter(adapter: str) -> None:
    folders = {path.name for path in (Path(aioqueue.__file__).parent / adapter).iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {"migrations"}
