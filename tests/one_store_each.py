"""By default each test of what is built upon stores runs with one of them: with which is told by its name.

What stores promise is tested with each of them (tests/conformance, tests/postgres, tests/sqlite), though with an older
PostgreSQL only where that matters. Above them a test that runs with every store takes its time as often, and seldom finds
more. `make stores` runs the rest.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from pathlib import Path

import pytest

_FOLDERS = frozenset({"cli", "client", "docs", "examples", "faults", "telemetry", "web", "worker"})
_STORES = frozenset({"memory", "sqlite", "postgres"})
_OLDER = "postgresql15"
"""What tests/conformance calls the older one."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is left out by default. Whoever names a single test gets it; what is long with a store counts for none."""
    if any("::" in argument for argument in config.args):
        return
    same: dict[tuple[str, str, str], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec") or item.get_closest_marker("soak"):
            continue
        parts = item.callspec.id.split("-")
        if _folder(item) == "conformance" and _OLDER in parts:
            item.add_marker("other_store")
        elif _folder(item) in _FOLDERS:
            stores = [part for part in parts if part in _STORES]
            if len(stores) == 1:
                others = "-".join(part for part in parts if part not in _STORES)
                same[str(item.path), item.originalname, others][stores[0]] = item
    for (path, name, others), by_store in same.items():
        kept = sorted(by_store)[zlib.crc32(f"{Path(path).name} {name} {others}".encode()) % len(by_store)]
        for store, item in by_store.items():
            if store != kept:
                item.add_marker("other_store")


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]
