"""Both adapters have the same rooms, which docs/internals.md lists: whoever knows one finds anything in the other."""

from __future__ import annotations

import pytest

from tests.architecture.pages import PACKAGE, files, rooms

ROOMS = rooms()


def misplaced(names: set[str]) -> set[str]:
    """Files that are neither a room nor a part of one, `_ROOM_part`."""
    return {name for name in names - ROOMS if not any(name.startswith(f"{room}_") for room in ROOMS)}


@pytest.mark.parametrize("adapter", ["postgres", "sqlite"])
def test_an_adapter_has_every_room_and_only_those(adapter: str) -> None:
    assert len(ROOMS) > 15
    assert misplaced(files(PACKAGE / adapter)) == set()
    assert files(PACKAGE / adapter) >= ROOMS


def test_a_file_of_another_name_is_found() -> None:
    assert misplaced(ROOMS | {"_claim_odd", "_connections_threads"}) == set()
    others = {"_statements", "_claimed", "claim_odd", "helpers"}
    assert misplaced(ROOMS | others) == others


@pytest.mark.parametrize("adapter", ["postgres", "sqlite"])
def test_the_only_folder_of_an_adapter_has_its_migrations(adapter: str) -> None:
    folders = {path.name for path in (PACKAGE / adapter).iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {"migrations"}


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("memory", set()),
        # What the cases are made of, and what is about more than one room.
        ("conformance", {"_case", "_tools", "_verbs", "_waiting", "_life", "_odd_rows", "_keys"}),
    ],
)
def test_the_store_in_memory_and_the_cases_are_named_after_rooms(folder: str, others: set[str]) -> None:
    assert misplaced(files(PACKAGE / "testing" / folder)) == others
