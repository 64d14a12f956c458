"""How both stores find their numbered migrations, and what they say of a schema that doesn't fit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import StoreIncompatible
from aioqueue.store_rules._migrations import (
    AppliedMigration,
    Migration,
    check_complete,
    check_not_newer,
    packaged_migrations,
    pending_migrations,
)

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = (Migration(1, "0001_tables", 1, "CREATE"), Migration(2, "0002_column", 1, "ALTER"))
FIRST = {1: AppliedMigration("0001_tables", 1)}
BOTH = {**FIRST, 2: AppliedMigration("0002_column", 1)}


def _package(directory: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> str:
    name = f"package_{directory.name}"
    (directory / name).mkdir()
    (directory / name / "__init__.py").touch()
    for file, text in files.items():
        (directory / name / f"{file}.sql").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = "-- oldest code: 1\nCREATE", "-- oldest code: 2\nDROP"
    found = packaged_migrations(_package(tmp_path, monkeypatch, **{"0002_second": second, "0001_first": first}))
    assert found == (Migration(1, "0001_first", 1, first), Migration(2, "0002_second", 2, second))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"0001_first": "-- oldest code: 1\n", "0003_third": "-- oldest code: 1\n"}, "gap"),
        ({"0001_first": "-- oldest code: 1\n", "0001_other": "-- oldest code: 1\n"}, "twice"),
        ({"0001_first": "CREATE\n-- oldest code: 1\n"}, "which code may run"),
        ({"1_first": "-- oldest code: 1\n"}, "isn't called"),
    ],
)
def test_files_that_break_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        packaged_migrations(_package(tmp_path, monkeypatch, **files))


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_each_store_ships_its_own(store: str) -> None:
    known = packaged_migrations(f"aioqueue.{store}.migrations")
    assert known
    assert all(migration.oldest_code <= migration.number for migration in known)


def test_what_is_pending() -> None:
    assert pending_migrations({}, KNOWN) == list(KNOWN)
    assert pending_migrations(FIRST, KNOWN) == [KNOWN[1]]
    assert pending_migrations(BOTH, KNOWN) == []


def test_a_schema_that_is_missing_or_too_old() -> None:
    check_complete(BOTH, KNOWN, 'schema "jobs"')
    with pytest.raises(StoreIncompatible, match=r'^there is no schema "jobs" in this database yet: run `aioqueue migrate`$'):
        check_complete({}, KNOWN, 'schema "jobs"')
    with pytest.raises(StoreIncompatible, match=r'^the schema "jobs" is too old .* 0002_column: run `aioqueue migrate`$'):
        check_complete(FIRST, KNOWN, 'schema "jobs"')


def test_newer_schemas() -> None:
    """Further migrations are no hindrance, unless one says that this code can't run with it."""
    check_not_newer({**BOTH, 3: AppliedMigration("0003_more", 2)}, KNOWN, "file")
    with pytest.raises(StoreIncompatible, match=r"^the file is too new .* up to 2\): 0007_odd needs .* migration 5 at least$"):
        check_not_newer({**BOTH, 7: AppliedMigration("0007_odd", 5)}, KNOWN, "file")
    with pytest.raises(StoreIncompatible, match=r"0003_next needs .* migration 3 at least$"):  # the very next release
        check_not_newer({**BOTH, 3: AppliedMigration("0003_next", 3)}, KNOWN, "file")
