"""Numbered migrations: how a package ships them, and whether a schema that has some of them fits this code.

How a migration is applied is each adapter's own; it knows how its database locks and rolls back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import StoreIncompatible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "AppliedMigration",
    "Migration",
    "check_complete",
    "check_not_newer",
    "packaged_migrations",
    "pending_migrations",
]

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")
_OLDEST_CODE = re.compile(r"-- oldest code: (\d+)\n")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema, as a file of this package.

    Attributes:
        number: From 1, without gaps.
        name: The file's name without its ending.
        oldest_code: The oldest code that may run once it is applied. The version of code is the number of the newest
            migration that it knows.
        sql: The file's text.
    """

    number: int
    name: str
    oldest_code: int
    sql: str


class AppliedMigration(NamedTuple):
    """What a database remembers of a migration that was applied, perhaps by newer code than this."""

    name: str
    oldest_code: int


@cache
def packaged_migrations(package: str) -> tuple[Migration, ...]:
    """Read the migrations of a package, in order.

    Arguments:
        package: Where the files are, such as `aioqueue.postgres.migrations`. A file is called `0001_some_name.sql`, and its
            first line says which code may run with it: `-- oldest code: 1`.

    Raises:
        ValueError: A file has another name or no such line, or a number is missing or there twice.
    """
    found: list[Migration] = []
    for file in resources.files(package).iterdir():
        if not file.name.endswith(".sql"):
            continue
        sql = file.read_text(encoding="utf-8")
        name, oldest = _FILE_NAME.fullmatch(file.name), _OLDEST_CODE.match(sql)
        if name is None:
            raise ValueError(f"{package}: {file.name} isn't called 0001_some_name.sql")
        if oldest is None:
            raise ValueError(f"{package}: {file.name} doesn't begin with a line that says which code may run with it")
        found.append(Migration(int(name[1]), file.name.removesuffix(".sql"), int(oldest[1]), sql))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: the numbers have a gap or come twice: {[migration.name for migration in found]}")
    return tuple(found)


def pending_migrations(applied: Mapping[int, AppliedMigration], known: Sequence[Migration]) -> list[Migration]:
    """Give the migrations that are still to be applied, in order.

    Arguments:
        applied: What the database remembers, by number.
        known: Those of this code.
    """
    return [migration for migration in known if migration.number not in applied]


def check_not_newer(applied: Mapping[int, AppliedMigration], known: Sequence[Migration], where: str) -> None:
    """Refuse a schema that newer code has made unfit for this code.

    Arguments:
        applied: What the database remembers, by number.
        known: Those of this code.
        where: The schema, for the error, such as `schema "aioqueue"`.

    Raises:
        StoreIncompatible: It is too new. One with further migrations that this code may run with isn't.
    """
    code = known[-1].number
    too_new = [each for each in applied.values() if each.oldest_code > code]
    if too_new:
        raise StoreIncompatible(
            f"the {where} is too new for this code (which knows migrations up to {code}): "
            f"{', '.join(each.name for each in too_new)} needs a newer aioqueue that knows migration "
            f"{max(each.oldest_code for each in too_new)} at least"
        )


def check_complete(applied: Mapping[int, AppliedMigration], known: Sequence[Migration], where: str) -> None:
    """Refuse a schema that lacks a migration, where opening a store doesn't apply it.

    Arguments:
        applied: What the database remembers, by number.
        known: Those of this code.
        where: The schema, for the error, such as `schema "aioqueue"`.

    Raises:
        StoreIncompatible: It is missing or too old.
    """
    if not applied:
        raise StoreIncompatible(f"there is no {where} in this database yet: run `aioqueue migrate`")
    if missing := pending_migrations(applied, known):
        names = ", ".join(migration.name for migration in missing)
        raise StoreIncompatible(f"the {where} is too old for this code, it lacks {names}: run `aioqueue migrate`")
