# ruff: noqa: INP001 - a script, not a package
"""Prints a constraints file: each library that aioqueue itself works with, at the oldest version it promises."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=(?P<version>[0-9][0-9.]*(?:b[0-9]+)?)")
EXTRAS = ("uvloop", "pydantic", "sqlalchemy", "otel")


def main() -> None:
    """Read pyproject.toml's lower bounds: of the dependencies and of the supported libraries, not of the tests' tools."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in project["optional-dependencies"][name])]
    for requirement in wanted:
        found = REQUIREMENT.fullmatch(requirement.split(";")[0].strip())
        if found is None:
            raise SystemExit(f"{requirement!r} has no plain lower bound")
        sys.stdout.write(f"{found['name']}=={found['version']}\n")


if __name__ == "__main__":
    main()
