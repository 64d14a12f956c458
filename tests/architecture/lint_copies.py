"""Lints changed copies of the package: `python -m tests.architecture.lint_copies FOLDER < changes > broken`.

Run in a process of its own, since the linter looks for the package where it was imported from: FOLDER has a copy, which comes
first on the path. A change adds texts at the ends of files, or makes such files; afterwards it's undone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from importlinter import configuration
from importlinter.application import use_cases

ROOT = Path(__file__).parent.parent.parent


def broken_contracts(cache: Path) -> list[str]:
    """The ids of the contracts that the copy breaks."""
    options = use_cases.read_user_options(str(ROOT / "pyproject.toml"))
    report = use_cases.create_report(options, cache_dir=str(cache))
    assert not report.invalid_contract_options, report.invalid_contract_options
    ids = {contract["name"]: contract["id"] for contract in options.contracts_options}
    return sorted(ids[contract.name] for contract, check in report.get_contracts_and_checks() if not check.kept)


def read(path: Path) -> str | None:
    """What the file has, `None` if there is none."""
    return path.read_text() if path.exists() else None


def main(folder: Path) -> None:
    """Lint the copy as it is, and with each change alone."""
    configuration.configure()
    use_cases._register_built_in_contract_types()  # as the command line does; a report alone doesn't
    cache = folder / "cache"
    found = [broken_contracts(cache)]
    for change in json.load(sys.stdin):
        before = {name: read(folder / "aioqueue" / name) for name in change}
        for name, text in change.items():
            path = folder / "aioqueue" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{before[name] or ''}\n{text}\n")
        found.append(broken_contracts(cache))
        for name, text in before.items():
            path = folder / "aioqueue" / name
            path.unlink() if text is None else path.write_text(text)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
